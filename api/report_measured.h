// The parts of the report that tell times and memory. Without a measurement there are none, and the same optimization gives the same page.
#ifndef OCTAVO_API_REPORT_MEASURED_H_
#define OCTAVO_API_REPORT_MEASURED_H_

#include <map>
#include <string>
#include <vector>

#include "octavo/api/measured.h"

namespace octavo::api {

inline constexpr const char* kMeasuredStyle =
    R"(.lanes{display:grid;gap:.3em;min-width:60em}.lanes svg{display:block;width:100%;height:2.2em;background:var(--panel)}.lanes rect{fill:var(--seen)}
.lanes rect.quantized{fill:var(--quantized)}.lanes rect.fused{fill:var(--fused)}.hist{margin:.6em 0 0}.hist svg{width:100%;max-width:26em;height:4em;display:block}.hist figcaption{color:var(--soft);font-size:.9em}.hist rect{fill:var(--seen)}.hist rect.kept{fill:var(--bar)}.hist line{stroke:var(--left);stroke-width:2})";

// "2.31 times as fast here: 12.4 ms instead of 28.6 (batch ..., 2 threads)."
std::string SpeedSentence(const Measured& measured);
// Milliseconds that the steps made of this node take; a step of several counts for each of them.
std::map<std::string, double> MillisecondsByNode(const std::vector<runtime::ProfileEvent>& steps);
// Figures for the top of the page, headings over them.
std::string MeasuredCards(const Measured& measured);
// One run of both, to one scale, and what takes longest.
std::string TimelineHtml(const Measured& measured);

}  // namespace octavo::api

#endif  // OCTAVO_API_REPORT_MEASURED_H_
