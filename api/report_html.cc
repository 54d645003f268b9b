#include "octavo/api/report_html.h"

#include <algorithm>
#include <format>
#include <map>

#include "octavo/ir/names.h"

namespace octavo::api {

namespace {

std::string Escape(std::string_view text) {
  const std::string s = ir::Clean(text, text.size());
  std::string out;
  for (char c : s) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

constexpr const char* kStyle =
    R"(body{font:15px/1.45 system-ui,sans-serif;margin:2em auto;max-width:75em;padding:0 1em;color:#1b1f24}
h1{font-size:1.5em}h2{font-size:1.15em;margin-top:2em}table{border-collapse:collapse;width:100%}
td,th{padding:.25em .6em;border-bottom:1px solid #e3e6ea;text-align:left;vertical-align:top}
td.n{text-align:right;font-variant-numeric:tabular-nums}code{font-size:.9em}
.fused,.quantized{color:#116329}.left{color:#a40e26}.card{display:inline-block;padding:.6em 1.2em;margin:0 .8em .8em 0;border:1px solid #d5d9de;border-radius:6px}
.card b{display:block;font-size:1.5em}.warn{background:#fff5d6;padding:.6em 1em;border-radius:6px}svg{max-width:100%})";

std::string Card(std::string_view what, const std::string& figure) {
  return std::format("<div class=card><b>{}</b>{}</div>\n", figure, what);
}

std::string Candidates(const passes::Report& report) {
  std::string html = "<table><tr><th>what<th>source nodes<th>status<th>rule<th>reason</tr>\n";
  for (const passes::Candidate& c : report.candidates) {
    std::string nodes;
    for (const std::string& n : c.nodes)
      nodes += (nodes.empty() ? "" : "<br>") + std::string("<code>") + Escape(n) + "</code>";
    if (!c.place.empty()) nodes += "<br>in the " + Escape(c.place);
    html += std::format("<tr><td>{}<td>{}<td class={}>{}<td>{}<td>{}</tr>\n", Escape(c.kind), nodes, c.status, c.status,
                        Escape(c.rule), Escape(c.reason));
  }
  return html + "</table>\n";
}

// What was seen (thin) and what was chosen (thick) on one scale for all values.
std::string RangeBar(const ActivationRange& a, float most) {
  const auto x = [most](float v) { return 150.0f + 145.0f * v / most; };
  return std::format(
      "<svg width=300 height=14><line x1={:.1f} x2={:.1f} y1=7 y2=7 stroke='#9aa4af' stroke-width=2 />"
      "<line x1={:.1f} x2={:.1f} y1=7 y2=7 stroke='#2463a8' stroke-width=6 />"
      "<line x1=150 x2=150 y1=0 y2=14 stroke='#1b1f24' /></svg>",
      x(a.seen.lo), x(a.seen.hi), x(a.chosen.lo), x(a.chosen.hi));
}

std::string Ranges(const std::vector<ActivationRange>& ranges) {
  float most = 1e-30f;
  for (const ActivationRange& a : ranges) most = std::max({most, -a.seen.lo, a.seen.hi});
  std::string html =
      "<table><tr><th>value<th>seen<th>chosen<th>scale<th>zero point<th>thin: seen, thick: chosen</tr>\n";
  for (const ActivationRange& a : ranges) {
    html += std::format(
        "<tr><td><code>{}</code><td class=n>{:.4g} .. {:.4g}<td class=n>{:.4g} .. {:.4g}<td class=n>{:.5g}"
        "<td class=n>{}<td>{}</tr>\n",
        Escape(a.value), a.seen.lo, a.seen.hi, a.chosen.lo, a.chosen.hi, a.params.scale, a.params.zero_point,
        RangeBar(a, most));
  }
  return html + "</table>\n";
}

std::map<std::string, int> OpCounts(const ir::Graph& g) {
  std::map<std::string, int> counts;
  for (ir::NodeId id : g.NodesInOrder()) {
    const ir::Node& n = g.node(id);
    if (n.op != ir::Op::kConstant) ++counts[n.op == ir::Op::kOpaque ? n.op_type : std::string(ir::InfoOf(n.op).name)];
  }
  return counts;
}

// The graph before and after, as op counts side by side.
std::string Ops(const ir::Graph& before, const ir::Graph& after) {
  const auto a = OpCounts(before);
  const auto b = OpCounts(after);
  std::map<std::string, std::pair<int, int>> both;
  for (const auto& [op, n] : a) both[op].first = n;
  for (const auto& [op, n] : b) both[op].second = n;
  std::string html = "<table><tr><th>op<th>before (canonical)<th>after</tr>\n";
  for (const auto& [op, n] : both) {
    html += std::format("<tr><td>{}<td class=n>{}<td class=n>{}</tr>\n", Escape(op), n.first, n.second);
  }
  return html + "</table>\n";
}

std::string Passes(const std::vector<passes::PassTiming>& timings) {
  std::string html = "<table><tr><th>pass<th>changed<th>ms</tr>\n";
  for (const passes::PassTiming& t : timings) {
    html += std::format("<tr><td>{}<td>{}<td class=n>{:.1f}</tr>\n", Escape(t.pass), t.changed ? "yes" : "no",
                        t.milliseconds);
  }
  return html + "</table>\n";
}

std::string LossTable(const Losses& losses) {
  std::string html = "<table><tr><th>output<th>dB<th>cosine<th>largest error</tr>\n";
  for (const auto& [name, s] : losses) {
    html += std::format("<tr><td>{}<td class=n>{}<td class=n>{:.6f}<td class=n>{:.3g}</tr>\n", Escape(name),
                        s.exact() ? "equal" : std::format("{:.1f}", s.SqnrDb()), s.Cosine(), s.MaxAbs());
  }
  return html + "</table>\n";
}

std::string LayerTable(const std::vector<LayerLoss>& layers) {
  std::string html = "<table><tr><th>quantized alone<th>dB<th>share of the loss<th><th></tr>\n";
  for (const LayerLoss& layer : layers) {
    html += std::format(
        "<tr><td>{}<td class=n>{}<td class=n>{:.1f} %<td><div "
        "style='background:#68c;height:.7em;width:{:.0f}px'></div><td>{}</tr>\n",
        Escape(layer.node), layer.stats.exact() ? "equal" : std::format("{:.1f}", layer.stats.SqnrDb()),
        100 * layer.share, 300 * layer.share / std::max(layers[0].share, 1e-9), layer.type);
  }
  return html + "</table>\n";
}

}  // namespace

std::string ReportHtml(const Optimized& r, const FileSizes& bytes, std::string_view model) {
  std::string html =
      std::format("<!doctype html><html lang=en><meta charset=utf-8><title>octavo: {}</title><style>{}</style>\n",
                  Escape(model), kStyle);
  html += std::format("<h1>octavo: {}</h1>\n", Escape(model));
  html += Card("attention cores fused", std::format("{} / {}", r.report.attention.done, r.report.attention.found));
  html += Card("QKV groups fused", std::format("{} / {}", r.report.qkv.done, r.report.qkv.found));
  html += Card("Linears quantized", std::format("{} / {}", r.report.linear.done, r.report.linear.found));
  if (bytes.before > 0) {
    html += Card("of the size",
                 std::format("{:.1f} %", 100.0 * static_cast<double>(bytes.after) / static_cast<double>(bytes.before)));
  }
  for (const std::string& note : r.notes) html += std::format("<p class=warn>Note: {}.</p>\n", Escape(note));
  if (!r.data.empty()) html += std::format("<p>Calibrated on {}.</p>\n", Escape(r.data));
  if (!r.losses.empty())
    html += "<h2>Outputs against the model as it was, on the first batch</h2>\n" + LossTable(r.losses);
  if (!r.layers.empty()) {
    html +=
        "<h2>Which layers lose it</h2>\n<p>The output where one of them alone is quantized. <code>--keep-float "
        "NODE</code> leaves it in float.</p>\n" +
        LayerTable(r.layers);
  }
  html += "<h2>What was found, and what became of it</h2>\n" + Candidates(r.report);
  if (!r.ranges.empty()) html += "<h2>Ranges of the activations</h2>\n" + Ranges(r.ranges);
  html += "<h2>The graph before and after</h2>\n" + Ops(r.before, r.graph);
  html += "<h2>Passes</h2>\n" + Passes(r.timings);
  return html + "</html>\n";
}

}  // namespace octavo::api
