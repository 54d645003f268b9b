// The report for programs. Schema 1:
// {"schema": 1, "attention": {"found", "fused"}, "qkv": {"found", "fused"}, "linear": {"found", "quantized"},
//  "candidates": [{"kind", "nodes", "status", "rule", "reason", "place" (in a branch or body)}], "in_float": [{"op", "weights", "bytes"}], "bytes": {"before", "after"}, "time_s",
//  "pipeline": [...], "passes": [{"pass", "changed", "ms"}], "ranges": [{"value", "seen", "chosen", "scale", "zero_point"}],
//  "losses": [{"output", "sqnr_db", "cosine", "exact", ...}], "losses_of": {"samples", "held_out"}, "layers": [{"node", "output", "share", "sqnr_db", "cosine", "exact"}],
//  "notes": [...], "data": {"what", "random"},
//  "measured": {"threads", "shapes", "random", "speedup", "before", "after"} where it was (measured.h)}
#ifndef OCTAVO_API_REPORT_JSON_H_
#define OCTAVO_API_REPORT_JSON_H_

#include <cstdint>
#include <string>

#include "octavo/api/measured.h"
#include "octavo/api/optimize.h"

namespace octavo::api {

struct FileSizes {
  int64_t before = 0;  // bytes, external data included
  int64_t after = 0;
};

// measured: null where nothing was.
std::string ReportJson(const Optimized& result, const FileSizes& bytes, const Measured* measured = nullptr);

// The file and every external data file it refers to.
int64_t BytesOfModel(const ir::Graph& graph, int64_t file_bytes);

}  // namespace octavo::api

#endif  // OCTAVO_API_REPORT_JSON_H_
