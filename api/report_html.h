// The report for people: one self-contained HTML file (no network, no scripts from elsewhere).
#ifndef OCTAVO_API_REPORT_HTML_H_
#define OCTAVO_API_REPORT_HTML_H_

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "octavo/api/measured.h"
#include "octavo/api/optimize.h"
#include "octavo/api/report_json.h"

namespace octavo::api {

// What a person needs to get the page again, as far as the caller knows it.
struct Provenance {
  std::string command = {};  // what to type
  std::string version = {};  // with the commit; empty: octavo's number
  std::vector<std::pair<std::string, std::string>> sha256 =
      {};  // of files and folders, by what they are: "model m.onnx"
};

// The same optimization gives the same page: no date is in it, and times only where they were measured. measured: null, or where that failed the reason.
std::string ReportHtml(const Optimized& result, const FileSizes& bytes, std::string_view model,
                       const Provenance& from = {}, const ir::Result<Measured>* measured = nullptr);

}  // namespace octavo::api

#endif  // OCTAVO_API_REPORT_HTML_H_
