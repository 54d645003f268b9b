// The report for people: one self-contained HTML file (no network, no scripts from elsewhere).
#ifndef OCTAVO_API_REPORT_HTML_H_
#define OCTAVO_API_REPORT_HTML_H_

#include <string>
#include <string_view>

#include "octavo/api/optimize.h"
#include "octavo/api/report_json.h"

namespace octavo::api {

// command: what a person types to get it again; empty: not told. The same optimization gives the same page: no date or time is in it.
std::string ReportHtml(const Optimized& result, const FileSizes& bytes, std::string_view model,
                       std::string_view command = {});

}  // namespace octavo::api

#endif  // OCTAVO_API_REPORT_HTML_H_
