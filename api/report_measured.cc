#include "octavo/api/report_measured.h"

#include <algorithm>
#include <format>
#include <ranges>
#include <set>

#include "octavo/api/report_text.h"
#include "octavo/passes/sources.h"

namespace octavo::api {

namespace {

using runtime::ProfileEvent;

// "linear_int8 avx512vnni" -> the class of its colour.
const char* LookOf(const ProfileEvent& step) {
  const std::string_view kernel = step.kernel;
  if (kernel.starts_with("interpreter")) return "other";
  for (const char* codes : {"int8", "s8", "u8", "fp8", "blocked", "quantized"}) {
    if (kernel.contains(codes)) return "quantized";
  }
  return "fused";
}

double EndOf(const std::vector<ProfileEvent>& steps) {
  double end = 1;
  for (const ProfileEvent& e : steps) end = std::max(end, e.start_us + e.duration_us);
  return end;
}

std::string NodesOf(const ProfileEvent& step) {
  std::string names;
  size_t count = 0;
  for (const std::string& origin : step.origin) {
    if (origin.starts_with("pass:") || ++count > 4) continue;
    names += (names.empty() ? "" : ", ") + std::string(passes::GivenName(origin));
  }
  if (count > 4) names += std::format(" and {} more", count - 4);
  return names.empty() ? step.name : names;
}

// A bar for each step; what is thinner than a pixel joins the one before it.
std::string Lane(std::string_view title, const std::vector<ProfileEvent>& steps, double whole) {
  std::string html = std::format(
      "<p class=legend>{}: {} steps, {:.2f} ms</p>\n<svg viewBox='0 0 1000 20' preserveAspectRatio=none role=img "
      "aria-label='steps of one run of the model {}'>",
      title, steps.size(), EndOf(steps) / 1e3, title);
  for (const ProfileEvent& e : steps) {
    html += std::format("<rect class={} x={:.2f} y=2 width={:.2f} height=16><title>{:.3f} ms {}: {}</title></rect>",
                        LookOf(e), 1000 * e.start_us / whole, std::max(0.4, 1000 * e.duration_us / whole - 0.3),
                        e.duration_us / 1e3, Escape(e.kernel), Escape(NodesOf(e)));
  }
  return html + "</svg>\n";
}

std::map<std::string, double> ByKernel(const std::vector<ProfileEvent>& steps) {
  std::map<std::string, double> ms;
  for (const ProfileEvent& e : steps) ms[e.kernel] += e.duration_us / 1e3;
  return ms;
}

std::string Kernels(const Measured& m) {
  const auto before = ByKernel(m.before.steps), after = ByKernel(m.after.steps);
  std::vector<std::pair<double, std::string>> order;
  std::set<std::string> names;
  for (const auto& kernels : {before, after}) {
    for (const auto& [kernel, ms] : kernels) names.insert(kernel);
  }
  const auto of = [](const auto& all, const std::string& kernel) {
    const auto it = all.find(kernel);
    return it == all.end() ? 0.0 : it->second;
  };
  for (const std::string& kernel : names) order.emplace_back(std::max(of(before, kernel), of(after, kernel)), kernel);
  std::ranges::sort(order, std::greater());
  std::string html = "<div class=wide><table><tr><th>kernel<th class=n>ms, as it came<th class=n>ms, as it is</tr>\n";
  for (const auto& [most, kernel] : order | std::views::take(12)) {
    const auto cell = [](double ms) { return ms > 0 ? std::format("{:.3f}", ms) : std::string(); };
    html += std::format("<tr><td>{}<td class=n>{}<td class=n>{}</tr>\n", Escape(kernel), cell(of(before, kernel)),
                        cell(of(after, kernel)));
  }
  return html + "</table></div>\n";
}

}  // namespace

std::string SpeedSentence(const Measured& m) {
  const double times = m.before.ms / m.after.ms;
  std::string text = std::format(
      "Here it takes {:.3g} ms instead of {:.3g}, {}", m.after.ms, m.before.ms,
      times >= 1 ? std::format("{:.2f} times as fast", times) : std::format("{:.2f} times as long", 1 / times));
  text += std::format(
      " (medians of {} runs, nine tenths of them below {:.3g} and {:.3g}; {}{}, {} thread{}; octavo runs both).",
      m.after.runs, m.after.high, m.before.high, m.random ? "random " : "", m.shapes, m.threads,
      m.threads == 1 ? "" : "s");
  return text;
}

std::string MeasuredCards(const Measured& m) {
  std::string html = Card("as fast as before", std::format("{:.2f} times", m.before.ms / m.after.ms));
  html += Card("one run", std::format("{:.3g} ms", m.after.ms));
  html += Card("samples a second", std::format("{:.4g}", 1e3 * static_cast<double>(m.samples) / m.after.ms));
  if (m.before.peak_bytes > 0 && m.after.peak_bytes > 0)
    html += Card("peak memory, before and now", Bytes(m.before.peak_bytes) + ", " + Bytes(m.after.peak_bytes));
  return html;
}

// A step bears the names of all that went into it: what makes codes those of its reader, and a product that reads or gives codes of an attention core
// those of the core. So a step that has a product is that product's, others are the core's, and norms are nobody's.
std::vector<size_t> StepTimes::CellsOf(const ProfileEvent& step) const {
  std::set<size_t> products, others;
  if (step.kernel.contains("norm")) return {};
  for (const std::string& origin : step.origin) {
    const auto it = of_node_.find(std::string(passes::GivenName(origin)));
    if (it == of_node_.end()) continue;
    for (const size_t c : it->second) (candidates_[c].kind == "attention" ? others : products).insert(c);
  }
  const std::set<size_t>& chosen = products.empty() ? others : products;
  return {chosen.begin(), chosen.end()};
}

StepTimes::StepTimes(const Measured& measured, const std::vector<passes::Candidate>& candidates)
    : measured_(measured), candidates_(candidates), cells_(candidates.size()) {
  for (size_t c = 0; c < candidates.size(); ++c) {
    if (candidates[c].kind == "rewrite") continue;
    for (const std::string& node : candidates[c].nodes) of_node_[std::string(passes::GivenName(node))].push_back(c);
  }
  std::map<std::string_view, std::vector<size_t>>
      made_into;  // by nodes that are no candidate's, as biases and activations
  const std::vector<ProfileEvent>&now = measured.after.steps, &before = measured.before.steps;
  for (const bool cores : {true, false}) {  // a product bears names of the core's that it feeds
    for (size_t e = 0; e < now.size(); ++e) {
      const std::vector<size_t> cells = CellsOf(now[e]);
      if (cells.empty() || (candidates[cells[0]].kind == "attention") != cores) continue;
      for (const size_t c : cells) {
        cells_[c].now.insert(e);
        cells_[c].beside.insert(cells.begin(), cells.end());
        for (const size_t other : cells) {
          if (candidates[other].kind == "linear") cells_[c].products.insert(other);
        }
      }
      for (const std::string& origin : now[e].origin) made_into.try_emplace(passes::GivenName(origin), cells);
    }
  }
  for (size_t e = 0; e < before.size(); ++e) {
    std::vector<size_t> cells = CellsOf(before[e]);
    for (const std::string& origin : before[e].origin) {
      const auto it = made_into.find(passes::GivenName(origin));
      if (cells.empty() && it != made_into.end() && !before[e].kernel.contains("norm")) cells = it->second;
    }
    for (const size_t c : cells) cells_[c].before.insert(e);
  }
}

double StepTimes::Now(size_t candidate) const {
  double us = 0;
  for (const size_t e : cells_[candidate].now) us += measured_.after.steps[e].duration_us;
  return us / 1e3;
}

double StepTimes::Before(size_t candidate) const {
  std::set<size_t> all = cells_[candidate].before;
  for (const size_t c : cells_[candidate].beside) all.insert(cells_[c].before.begin(), cells_[c].before.end());
  double us = 0;
  for (const size_t e : all) us += measured_.before.steps[e].duration_us;
  return us / 1e3;
}

std::string TimelineHtml(const Measured& m) {
  const double whole = std::max(EndOf(m.before.steps), EndOf(m.after.steps));
  return "<p class=legend>Each step's median of five runs, to one scale; a run with a clock at each step takes a "
         "little "
         "longer. Point at a bar for its kernel and nodes. Green: products of codes; blue: other kernels; grey: plain "
         "loops.</p>\n"
         "<div class=wide><div class=lanes>" +
         Lane("as it came", m.before.steps, whole) + Lane("as it is", m.after.steps, whole) + "</div></div>\n" +
         Kernels(m);
}

}  // namespace octavo::api
