// The parts of the report that tell times and memory. Without a measurement there are none, and the same optimization gives the same page.
#ifndef OCTAVO_API_REPORT_MEASURED_H_
#define OCTAVO_API_REPORT_MEASURED_H_

#include <map>
#include <set>
#include <string>
#include <vector>

#include "octavo/api/measured.h"
#include "octavo/passes/report.h"

namespace octavo::api {

inline constexpr const char* kMeasuredStyle =
    R"(.lanes{display:grid;gap:.3em;min-width:60em}.lanes svg{display:block;width:100%;height:2.2em;background:var(--panel)}.lanes rect{fill:var(--seen)}
.lanes rect.quantized{fill:var(--quantized)}.lanes rect.fused{fill:var(--fused)}.hist{margin:.6em 0 0}.hist svg{width:100%;max-width:26em;height:4em;display:block}.hist figcaption{color:var(--soft);font-size:.9em}.hist rect{fill:var(--seen)}.hist rect.kept{fill:var(--bar)}.hist line{stroke:var(--left);stroke-width:2})";

// "2.31 times as fast here: 12.4 ms instead of 28.6 (batch ..., 2 threads)."
std::string SpeedSentence(const Measured& measured);
// Milliseconds of the candidates of a report, before and now, of the same work.
class StepTimes {
 public:
  StepTimes(const Measured& measured, const std::vector<passes::Candidate>& candidates);
  double Before(size_t candidate) const;
  double Now(size_t candidate) const;
  // How many products its step makes, those of other candidates too.
  size_t Products(size_t candidate) const { return cells_[candidate].products.size(); }

 private:
  struct Cell {
    std::set<size_t> before = {}, now = {};  // steps
    std::set<size_t> products = {};          // Linears of the same steps
    std::set<size_t> beside = {};            // candidates of the same steps
  };
  std::vector<size_t> CellsOf(const runtime::ProfileEvent& step) const;

  const Measured& measured_;
  const std::vector<passes::Candidate>& candidates_;
  std::map<std::string, std::vector<size_t>> of_node_;
  std::vector<Cell> cells_;
};
// Figures for the top of the page, headings over them.
std::string MeasuredCards(const Measured& measured);
// One run of both, to one scale, and what takes longest.
std::string TimelineHtml(const Measured& measured);

}  // namespace octavo::api

#endif  // OCTAVO_API_REPORT_MEASURED_H_
