#include "octavo/api/report_html.h"

#include <algorithm>
#include <cmath>
#include <format>
#include <map>
#include <optional>
#include <tuple>

#include "octavo/api/drawing.h"
#include "octavo/api/lost.h"
#include "octavo/api/report_drawing.h"
#include "octavo/api/report_measured.h"
#include "octavo/api/report_page.h"
#include "octavo/api/report_text.h"
#include "octavo/ir/json.h"
#include "octavo/ir/names.h"
#include "octavo/passes/sources.h"
#include "octavo/version.h"

namespace octavo::api {

namespace {

std::string Percent(int64_t part, int64_t whole) {
  return std::format("{:.1f} %", 100.0 * static_cast<double>(part) / static_cast<double>(whole));
}

// What a person who reads one sentence should know.
std::string Verdict(const Optimized& r, const FileSizes& bytes, const Measured* measured) {
  std::string text;
  if (const Losses::value_type* worst = Worst(r.losses)) {
    const Losses::value_type& told = *r.losses.find(MostLost(r).output);
    const auto& [name, s] = told;
    const bool is_worst = name == worst->first;
    const std::string which = r.losses.size() == 1 ? "The output"
                              : is_worst           ? "The worst of " + std::to_string(r.losses.size()) + " outputs"
                                                   : "The output '" + Escape(name) + "'";
    text = worst->second.exact() ? "The outputs are those of the model as it was"
           : s.exact()           ? which + " is that of the model as it was"
                                 : std::format("{} keeps {:.1f} dB of the model as it was ({})", which, s.SqnrDb(),
                                               HowSure(r.loss_details, told));
    if (!is_worst)
      text += std::format("; of {} outputs '{}' keeps least, {:.1f} dB", r.losses.size(), Escape(worst->first),
                          Decibels(worst->second));
    text += ", on " + WhatWasSeen(r.loss_details) + ". ";
  } else {
    text = "Nobody has measured what the outputs lost: give --calib data. ";
  }
  if (bytes.before > 0)
    text += std::format("The file has {} of its size, {} instead of {}.", Percent(bytes.after, bytes.before),
                        Bytes(bytes.after), Bytes(bytes.before));
  if (measured != nullptr) text += " " + Escape(SpeedSentence(*measured));
  return text;
}

// As JSON that cannot end its element.
std::string InScript(std::string json) {
  for (size_t at = 0; (at = json.find('<', at)) != std::string::npos;) json.replace(at, 1, "\\u003c");
  return json;
}

// Which calibrated values the nodes of the file read, by place among the ranges.
std::map<std::string, std::vector<size_t>> RangesOfNodes(const Optimized& r) {
  std::map<std::string_view, size_t> place;
  for (size_t i = 0; i < r.ranges.size(); ++i) place[r.ranges[i].value] = i;
  std::map<std::string, std::vector<size_t>> read;
  for (const ir::NodeId id : r.before.NodesInOrder()) {
    const ir::Node& n = r.before.node(id);
    for (const ir::ValueId v : n.inputs) {
      const auto it = v.valid() ? place.find(r.before.value(v).name) : place.end();
      if (it == place.end()) continue;
      for (const std::string& origin : n.origin) {
        std::vector<size_t>& list = read[origin];
        if (!std::ranges::contains(list, it->second)) list.push_back(it->second);
      }
    }
  }
  return read;
}

// The largest part is 99.
nlohmann::ordered_json RangeJson(const ActivationRange& a) {
  const uint64_t most = a.histogram.empty() ? 1 : std::max<uint64_t>(std::ranges::max(a.histogram), 1);
  auto parts = nlohmann::ordered_json::array();
  for (const uint64_t n : a.histogram)
    parts.push_back(n == 0 ? 0
                           : std::max(1, static_cast<int>(99.0 * static_cast<double>(n) / static_cast<double>(most))));
  const auto finite = [](float x) { return std::isfinite(x) ? x : 0.0f; };
  return {{"value", a.value},
          {"text", std::format("seen {:.4g} to {:.4g}, codes reach {:.4g} to {:.4g}", a.seen.lo, a.seen.hi, a.chosen.lo,
                               a.chosen.hi)},
          {"seen", {finite(a.seen.lo), finite(a.seen.hi)}},
          {"chosen", {finite(a.chosen.lo), finite(a.chosen.hi)}},
          {"parts", parts}};
}

// Types that the nodes of the file read and give in the canonical graph, whose types are known.
std::map<std::string, std::pair<std::string, std::string>> ShapesOfNodes(const ir::Graph& graph) {
  std::map<std::string, std::pair<std::string, std::string>> shapes;
  for (const ir::NodeId id : graph.NodesInOrder()) {
    const ir::Node& n = graph.node(id);
    if (n.op == ir::Op::kConstant || n.outputs.empty() || !n.output().valid()) continue;
    std::string reads;
    for (const ir::ValueId v : n.inputs) {
      if (v.valid()) reads += (reads.empty() ? "" : ", ") + ir::ToString(graph.value(v).type);
    }
    for (const std::string& origin : n.origin)
      shapes.try_emplace(origin, ir::Clean(reads, 300), ir::Clean(ir::ToString(graph.value(n.output()).type), 100));
  }
  return shapes;
}

// Of the strip: what a click tells.
class CellMaker {
 public:
  CellMaker(const Optimized& r, const Measured* measured) : r_(r), read_(RangesOfNodes(r)) {
    for (const LayerLoss& layer : r.layers) losses_[layer.node] = &layer;
    shapes_ = ShapesOfNodes(r.before);
    if (measured != nullptr) times_.emplace(*measured, r.report.candidates);
    for (const LayerDifference& d : r.added) added_[d.node] += std::pow(10, -d.own_db / 10);
  }

  nlohmann::ordered_json Of(size_t at) const {
    const passes::Candidate& c = r_.report.candidates[at];
    nlohmann::ordered_json cell = {{"kind", c.kind}, {"nodes", c.nodes},   {"status", c.status},
                                   {"rule", c.rule}, {"reason", c.reason}, {"place", c.place}};
    if (c.nodes.empty()) return cell;
    if (const auto it = shapes_.find(c.nodes[0]); it != shapes_.end())
      std::tie(cell["takes"], cell["gives"]) = it->second;
    if (times_ && times_->Now(at) > 0) {
      cell["ms"] = std::format("{:.3f}", times_->Now(at));
      cell["ms_before"] = std::format("{:.3f}", times_->Before(at));
      if (times_->Products(at) > 1) cell["products"] = times_->Products(at);
    }
    double noise = 0;
    bool known = false;
    for (const std::string& node : c.nodes) {
      if (const auto it = added_.find(node); it != added_.end()) known = true, noise += it->second;
    }
    if (known) cell["adds"] = std::clamp(-10 * std::log10(noise), -99.0, 999.0);  // JSON has no infinity
    std::vector<size_t> ranges;
    for (const std::string& node : c.nodes) {
      const auto it = read_.find(node);
      if (it == read_.end()) continue;
      for (const size_t i : it->second) {
        if (!std::ranges::contains(ranges, i)) ranges.push_back(i);
      }
    }
    if (!ranges.empty()) cell["ranges"] = ranges;
    const auto it = c.kind == "qkv" ? losses_.end() : losses_.find(c.nodes[0]);
    if (it == losses_.end()) return cell;
    const LayerLoss& layer = *it->second;
    cell["share"] = std::isfinite(layer.share) ? layer.share : 0;
    cell["db"] = layer.stats.exact() ? "nothing" : std::format("{:.1f} dB", layer.stats.SqnrDb());
    if (!layer.type.empty() && layer.type != "quantized") cell["type"] = layer.type;
    return cell;
  }

 private:
  const Optimized& r_;
  std::map<std::string, const LayerLoss*> losses_;
  std::map<std::string, std::pair<std::string, std::string>> shapes_;
  std::map<std::string, std::vector<size_t>> read_;
  std::map<std::string, double> added_;  // power of its noise to that of its values
  std::optional<StepTimes> times_;
};

// What the strip is made of.
std::string Cells(const Optimized& r, const Measured* measured) {
  nlohmann::ordered_json cells = nlohmann::ordered_json::array(), ranges = nlohmann::ordered_json::array();
  const CellMaker maker(r, measured);
  for (size_t i = 0; i < r.report.candidates.size(); ++i) {
    const std::string& kind = r.report.candidates[i].kind;
    if (kind != "softmax" && kind != "product" && kind != "rewrite") cells.push_back(maker.Of(i));
  }
  for (const ActivationRange& a : r.ranges) ranges.push_back(RangeJson(a));
  const double most = r.layers.empty() ? 1 : std::max(r.layers[0].share, 1e-9);
  return InScript(ir::Dump(nlohmann::ordered_json{
      {"most", std::isfinite(most) ? most : 1}, {"shaded", !r.added.empty()}, {"cells", cells}, {"ranges", ranges}}));
}

std::string LayersHead(const Optimized& r) {
  std::string html =
      "<h2>Layer by layer</h2>\n<p class=legend>One line for each layer, one cell for each product and attention core. "
      "Choose a cell for what is known of it.";
  if (!r.layers.empty()) html += " The bar is the share of the loss (--layers).";
  html += "</p>\n<p class=legend>Colour is type: ";
  for (const auto& [look, what] : {std::pair("quantized", "8 bits or less"),
                                   {"fused", "fused"},
                                   {"dynamic", "quantized row by row at run time"},
                                   {"left", "left in float"}})
    html += std::format("<span class='key {}'></span> {} ", look, what);
  if (!r.added.empty()) {
    html += "<br>Depth is loss: ";
    for (const auto& [depth, what] : {std::pair(0, "adds less noise than -40 dB of its values, or none"),
                                      {1, "-40 to -30 dB"},
                                      {2, "-30 to -20 dB"},
                                      {3, "more;"}})
      html += std::format("<span class='key quantized s{}'></span> {} ", depth, what);
    html += "dashed: not known";
  }
  return html + "</p>\n<div id=strip class=strip></div>\n";
}

std::string Candidates(const passes::Report& report) {
  std::string html =
      "<div class=wide><table id=found><thead><tr><th>what<th>source "
      "nodes<th>status<th>rule"
      "<th>reason</tr></thead><tbody>\n";
  for (const passes::Candidate& c : report.candidates) {
    std::string nodes;
    for (const std::string& n : c.nodes)
      nodes += (nodes.empty() ? "" : "<br>") + std::string("<code>") + Escape(n) + "</code>";
    if (!c.place.empty()) nodes += "<br>in the " + Escape(c.place);
    html += std::format("<tr><td>{}<td>{}<td class={}>{}<td>{}<td>{}</tr>\n", Escape(c.kind), nodes, c.status, c.status,
                        Escape(c.rule), Escape(c.reason));
  }
  return html + "</tbody></table></div>\n";
}

// What was seen (thin) and what was chosen (thick) on one scale for all values. The box has its own units, so that no width crops it.
std::string RangeBar(const ActivationRange& a, float most) {
  const auto x = [most](float v) { return 150.0f + 145.0f * v / most; };
  return std::format(
      "<svg class=range viewBox='0 0 300 14' preserveAspectRatio='none' role=img aria-label='seen and chosen range'>"
      "<line x1={:.1f} x2={:.1f} y1=7 y2=7 stroke='var(--seen)' stroke-width=2 />"
      "<line x1={:.1f} x2={:.1f} y1=7 y2=7 stroke='var(--bar)' stroke-width=6 />"
      "<line x1=150 x2=150 y1=0 y2=14 stroke='var(--ink)' /></svg>",
      x(a.seen.lo), x(a.seen.hi), x(a.chosen.lo), x(a.chosen.hi));
}

std::string Ranges(const std::vector<ActivationRange>& ranges) {
  float most = 1e-30f;
  for (const ActivationRange& a : ranges) most = std::max({most, -a.seen.lo, a.seen.hi});
  std::string html =
      "<div class=wide><table id=ranges><tr><th>value<th class=n>seen<th class=n>chosen<th class=n>scale<th "
      "class=n>zero point"
      "<th>thin: seen, thick: chosen</tr>\n";
  for (const ActivationRange& a : ranges) {
    html += std::format(
        "<tr><td><code>{}</code><td class=n>{:.4g} .. {:.4g}<td class=n>{:.4g} .. {:.4g}<td class=n>{:.5g}"
        "<td class=n>{}<td>{}</tr>\n",
        Escape(a.value), a.seen.lo, a.seen.hi, a.chosen.lo, a.chosen.hi, a.params.scale, a.params.zero_point,
        RangeBar(a, most));
  }
  return html + "</table></div>\n";
}

// Nodes of the model as it came and of the one that is written, by op.
std::string Ops(const std::map<std::string, int>& a, const std::map<std::string, int>& b) {
  std::map<std::string, std::pair<int, int>> both;
  for (const auto& [op, n] : a) both[op].first = n;
  for (const auto& [op, n] : b) both[op].second = n;
  std::string html = "<div class=wide><table><tr><th>op<th class=n>before<th class=n>after</tr>\n";
  for (const auto& [op, n] : both) {
    html += std::format("<tr><td>{}<td class=n>{}<td class=n>{}</tr>\n", Escape(op), n.first, n.second);
  }
  return html + "</table></div>\n";
}

std::string Passes(const std::vector<passes::PassTiming>& timings) {
  std::string html = "<div class=wide><table><tr><th>pass<th>changed</tr>\n";
  for (const passes::PassTiming& t : timings) {
    html += std::format("<tr><td>{}<td>{}</tr>\n", Escape(t.pass), t.changed ? "yes" : "no");
  }
  return html + "</table></div>\n";
}

std::string LossTable(const Optimized& r) {
  std::string html =
      "<p class=legend>What stands behind +- is the standard error over rows (tokens, samples).</p>\n"
      "<div class=wide><table><tr><th>output<th class=n>dB<th class=n>sample by sample<th class=n>cosine of rows<th "
      "class=n>largest error<th class=n>same first choice<th class=n>KL</tr>\n";
  const auto sure = [](double x, int digits, double error) {
    return std::format("{:.{}f}", x, digits) + (error > 0 ? std::format(" +- {:.1g}", error) : "");
  };
  for (const auto& [name, s] : r.losses) {
    const auto [low, high] = Spread(r.loss_details, name);
    const auto it = r.loss_details.rows.find(name);
    const bool rows = it != r.loss_details.rows.end();
    html += std::format(
        "<tr><td>{}<td class=n>{}<td class=n>{}<td class=n>{}<td class=n>{:.3g}<td class=n>{}<td class=n>{}</tr>\n",
        Escape(name), s.exact() ? "equal" : sure(s.SqnrDb(), 1, s.SqnrError()),
        s.exact() || r.loss_details.samples < 2 ? "" : std::format("{:.1f} to {:.1f}", low, high),
        s.IsOneNumberARow() ? std::format("R^2 {:.6f}", s.RSquared()) : sure(s.MeanRowCosine(), 6, s.RowCosineError()),
        s.MaxAbs(), rows ? std::format("{:.2f} %", 100 * it->second.Top1()) : "",
        rows ? sure(it->second.MeanKl(), 4, it->second.KlError()) : "");
  }
  return html + "</table></div>\n";
}

std::string LayerTable(const std::vector<LayerLoss>& layers) {
  std::string html = "<div class=wide><table><tr><th>quantized alone<th class=n>dB<th class=n>" +
                     std::string(layers[0].kl ? "KL" : "1 - cosine") + "<th class=n>share of the loss<th><th></tr>\n";
  for (const LayerLoss& layer : layers) {
    html += std::format(
        "<tr><td>{}<td class=n>{}<td class=n>{:.2g}<td class=n>{:.1f} %<td style='min-width:8em'><span class=share "
        "style='width:{:.0f}%'></span><td>{}</tr>\n",
        Escape(layer.node), layer.stats.exact() ? "equal" : std::format("{:.1f}", layer.stats.SqnrDb()),
        layer.kl.value_or(std::max(1 - layer.stats.MeanRowCosine(), 0.0)), 100 * layer.share,
        100 * layer.share / std::max(layers[0].share, 1e-9), layer.type);
  }
  return html + "</table></div>\n";
}

// The script behind fills them in once the section is open.
std::string Drawings(const Drawing& before, const Drawing& after) {
  if (before.nodes.empty() || after.nodes.empty()) {
    return std::format("<p>Not drawn: {} nodes as it came and {} as it is are more than {} or none.</p>\n",
                       before.count, after.count, Drawing::kMost);
  }
  std::string html =
      "<p class=legend>Each layer of the model is one box: choose it and it opens. Choose a node for what is known of "
      "it; what it became, or was made of, is framed in the other drawing. Arrow keys go from box to box. Green: "
      "products of codes, blue: several nodes in one, dashed: to and from codes.</p>\n"
      "<div class=graphs>";
  for (const auto& [side, title, count] :
       {std::tuple("before", "as it came", before.count), std::tuple("after", "as it is", after.count)}) {
    html += std::format(
        "<section id=graph-{0} data-side={0}><h3>The model {1}: {2} nodes</h3><div class=tools></div><div class=canvas "
        "role=group aria-label='Drawing of the model {1}'><svg viewBox='0 0 1 1'></svg></div><div class=detail "
        "aria-live=polite hidden></div></section>\n",
        side, title, count);
  }
  return html + std::format("</div><script id=graphs type=application/json>{}</script>\n",
                            InScript(DrawingsJson(before, after)));
}

std::string Section(std::string_view title, bool open, const std::string& body) {
  return std::format("<details{}><summary>{}</summary>\n{}</details>\n", open ? " open" : "", title, body);
}

std::string Top(const Optimized& r, const FileSizes& bytes, std::string_view model, const Measured* measured) {
  std::string html = std::format("<h1>octavo: {}</h1>\n<p class=verdict>{}</p>\n<div class=cards>\n", Escape(model),
                                 Verdict(r, bytes, measured));
  html += Card("attention cores fused", std::format("{} of {}", r.report.attention.done, r.report.attention.found));
  html += Card("QKV groups fused", std::format("{} of {}", r.report.qkv.done, r.report.qkv.found));
  html += Card("Linears quantized", std::format("{} of {}", r.report.linear.done, r.report.linear.found));
  if (bytes.before > 0) html += Card("of the size", Percent(bytes.after, bytes.before));
  if (measured != nullptr) html += MeasuredCards(*measured);
  html += "</div>\n";
  for (const std::string& note : r.notes) html += std::format("<p class=warn>Note: {}.</p>\n", Escape(note));
  return html;
}

std::string Again(const Optimized& r, const Provenance& from) {
  std::string html = "<h2>How to get it again</h2>\n";
  if (!from.command.empty()) html += std::format("<pre id=command>{}</pre>\n", Escape(from.command));
  html += std::format("<dl><dt>octavo<dd>{}<dt>CPU<dd>{}", from.version.empty() ? OCTAVO_VERSION : Escape(from.version),
                      Escape(kernels::CpuDescription()));
  if (!r.data.empty()) html += std::format("<dt>calibrated on<dd>{}", Escape(r.data));
  for (const auto& [what, hash] : from.sha256)
    html += std::format("<dt>SHA-256<dd>{}<br><code>{}</code>", Escape(what), Escape(hash));
  return html + "</dl>\n";
}

}  // namespace

std::string ReportHtml(const Optimized& r, const FileSizes& bytes, std::string_view model, const Provenance& from,
                       const ir::Result<Measured>* tried) {
  const Measured* measured = tried != nullptr && *tried ? &**tried : nullptr;
  std::string html = std::format(
      "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport "
      "content='width=device-width,initial-scale=1'>"
      "<title>octavo: {}</title><style>{}{}{}</style>\n",
      Escape(model), kReportStyle, kDrawingStyle, kMeasuredStyle);
  html += Top(r, bytes, model, measured);
  if (tried != nullptr && measured == nullptr)
    html += std::format("<p class=warn>Speed was not measured: {}.</p>\n", Escape(tried->error().message));
  html += Again(r, from);
  html +=
      "<div class=filter><input id=q type=search aria-label=\"Find in layers, graph, findings and ranges\" "
      "placeholder=\"find: words of node, rule or reason\"><select id=s aria-label=\"Status\"><option value=\"\">any "
      "status<option>fused<option>quantized<option>left</select><span id=count aria-live=polite></span></div>\n";
  html += LayersHead(r);
  html += std::format("<script id=cells type=application/json>{}</script>\n", Cells(r, measured));
  if (!r.losses.empty())
    html += Section("Outputs against the model as it was, on " + WhatWasSeen(r.loss_details), true, LossTable(r));
  if (measured != nullptr) html += Section("Where the milliseconds are", true, TimelineHtml(*measured));
  html += Section("The graph as it came and as it is", true, Drawings(r.source, Draw(r.graph)));
  if (!r.layers.empty()) {
    html += Section("Which layers lose it", true,
                    "<p>The output where one of them alone is quantized. <code>--keep-float NODE</code> leaves it in "
                    "float.</p>\n" +
                        LayerTable(r.layers));
  }
  html += Section("What was found, and what became of it", true, Candidates(r.report));
  if (!r.ranges.empty()) html += Section("Ranges of the activations", true, Ranges(r.ranges));
  html += Section("Nodes before and after", false, Ops(r.source_ops, OpCounts(r.graph)));
  html += Section("Passes", false, Passes(r.timings));
  return html + std::format("<script>{}{}</script></html>\n", kReportScript, kDrawingScript);
}

}  // namespace octavo::api
