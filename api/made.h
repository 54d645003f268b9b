// What an optimized file tells of how it was made, in its metadata, for who finds it later.
#ifndef OCTAVO_API_MADE_H_
#define OCTAVO_API_MADE_H_

#include "octavo/api/optimize.h"
#include "octavo/api/report_html.h"

namespace octavo::api {

// The least and the largest id of each input that calibration saw: quant::ToText(IdRanges).
constexpr char kIdsKey[] = "octavo.ids";

// octavo.version with the commit, octavo.calibrator, octavo.fit and octavo.ids, which follow from model, options and data, however they came; the same
// model is then the same file. whole: also octavo.data, octavo.loss and octavo.sha256, which tell the names and files of this time.
void RecordMade(const OptimizeOptions& options, const Provenance& from, Optimized& result, bool whole = false);

}  // namespace octavo::api

#endif  // OCTAVO_API_MADE_H_
