#include "octavo/api/compare_layers.h"

#include <algorithm>
#include <cmath>
#include <format>
#include <limits>
#include <map>
#include <set>

#include "octavo/api/loss.h"
#include "octavo/ir/functions.h"
#include "octavo/passes/sources.h"

namespace octavo::api {

using ir::DType;
using ir::Graph;
using ir::Node;
using ir::NodeId;
using ir::Op;
using ir::Tensor;
using ir::ValueId;

namespace {

constexpr size_t kMostCandidates = 64;

constexpr size_t kPostScale = 8;  // operand of QuantizedLinear

bool IsLayer(const Node& n) {
  if (ir::HasBody(n.op)) return n.op != Op::kQuantizeTokens && n.op != Op::kLookup && n.op != Op::kCacheAppend;
  return n.op == Op::kMatMul || n.op == Op::kGemm || n.op == Op::kConv || n.op == Op::kLayerNormalization ||
         n.op == Op::kRMSNormalization;
}

bool IsNumeric(DType t) { return t == DType::kUndefined || t == DType::kF32 || t == DType::kF16 || t == DType::kBF16; }

bool IsCore(Op op, bool attends) {
  if (attends) return op == Op::kSoftmax || op == Op::kAttention;
  return op == Op::kMatMul || op == Op::kGemm || op == Op::kConv || op == Op::kEinsum;
}

// How the report calls what makes this value: by the Softmax of an attention, the product of a Linear, else by its own node.
std::string NameOf(const Graph& a, ValueId made, const std::set<NodeId>& sources, bool attends) {
  std::vector<ValueId> work{made};
  std::set<ValueId> seen;
  for (size_t i = 0; i < work.size(); ++i) {
    const NodeId id = a.value(work[i]).producer;
    if (!id.valid() || !sources.contains(id) || !seen.insert(work[i]).second) continue;
    if (IsCore(a.node(id).op, attends)) return OriginName(a.node(id));
    for (const ValueId v : a.node(id).inputs) {
      if (v.valid()) work.push_back(v);
    }
  }
  if (attends) {  // a view between them may have no name left
    for (const NodeId id : sources) {
      if (IsCore(a.node(id).op, true)) return OriginName(a.node(id));
    }
  }
  return OriginName(a.node(a.value(made).producer));
}

double Power(double db) { return std::pow(10, -db / 10); }

// Columns of t: `run` from `first` on, and so many again every run * parts.
Tensor ColumnsOf(const Tensor& t, int64_t run, int64_t first, int64_t parts, int64_t rows) {
  const int64_t wide = t.shape().back(), width = wide / parts;
  const std::vector<float> all = t.ToFloats();
  std::vector<float> some;
  some.reserve(static_cast<size_t>(rows * width));
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < width; ++c)
      some.push_back(all[static_cast<size_t>(r * wide + c / run * run * parts + first + c % run)]);
  }
  return Tensor::F32({rows, width}, std::move(some));
}

// Without what a channel's mean adds, which keys may have lost.
double Likeness(const Tensor& want, const Tensor& got, int64_t rows) {
  const int64_t width = want.shape().back();
  double dot = 0, ww = 0, yy = 0;
  for (int64_t c = 0; c < width; ++c) {
    double w_mean = 0, y_mean = 0;
    for (int64_t r = 0; r < rows; ++r) w_mean += want.GetDouble(r * width + c), y_mean += got.GetDouble(r * width + c);
    w_mean /= static_cast<double>(rows), y_mean /= static_cast<double>(rows);
    for (int64_t r = 0; r < rows; ++r) {
      const double w = want.GetDouble(r * width + c) - w_mean, y = got.GetDouble(r * width + c) - y_mean;
      dot += w * y, ww += w * w, yy += y * y;
    }
  }
  return ww > 0 && yy > 0 ? dot / std::sqrt(ww * yy) : 0;
}

}  // namespace

std::optional<Codes> CodesOf(const Graph& b, const Node& node, size_t output) {
  const auto body = ir::BodyOf(b, node);
  if (!body) return {};
  for (const ir::GraphOutput& o : body->outputs()) {
    const Node* q = o.name == "o" + std::to_string(output) ? body->Producer(o.value) : nullptr;
    while (q != nullptr && (q->op == Op::kReshape || q->op == Op::kTranspose || q->op == Op::kGather))
      q = body->Producer(q->input(0));
    if (q == nullptr || q->op != Op::kQuantizeLinear) continue;
    const auto operand = [&](size_t slot) {  // inputs of a body are called i0, i1, ...
      const std::string& name = body->value(q->input(slot)).name;
      return b.ConstantOf(node.input(static_cast<size_t>(std::stoul(name.substr(1)))));
    };
    const Tensor *scale = operand(1), *zero = operand(2);
    if (scale == nullptr || zero == nullptr || scale->size() != 1 || zero->size() != 1) return {};
    const double s = scale->GetDouble(0), z = zero->GetDouble(0);
    const auto ends = [&](double lo, double hi) { return Codes{s, z, (lo - z) * s, (hi - z) * s}; };
    if (zero->dtype() == DType::kU8) return ends(0, 255);
    if (zero->dtype() == DType::kS8) return ends(-128, 127);
    return zero->dtype() == DType::kE4M3FN ? ends(-448, 448) : ends(-57344, 57344);
  }
  return {};
}

LayerPairs::LayerPairs(Graph& a, Graph& b) {
  passes::TellSourcesApart(a);
  std::map<std::string, std::set<NodeId>> of_source;
  for (const NodeId id : a.NodesInOrder()) {
    if (a.node(id).op != Op::kConstant) of_source[OriginName(a.node(id))].insert(id);
  }
  std::set<ValueId> tapped;
  std::map<ValueId, std::vector<size_t>> made_by;  // values of b that come of pairs, by views and the like too
  for (const NodeId id : b.NodesInOrder()) {
    const Node& n = b.node(id);
    std::vector<size_t> before;
    for (const ValueId v : n.inputs) {
      if (const auto it = made_by.find(v); it != made_by.end())
        before.insert(before.end(), it->second.begin(), it->second.end());
    }
    std::ranges::sort(before);
    before.erase(std::ranges::unique(before).begin(), before.end());
    for (const ValueId v : n.outputs) made_by[v] = before;
    if (!IsLayer(n)) continue;
    std::set<NodeId> sources;
    for (const std::string& name : n.origin) {
      if (const auto it = of_source.find(name); it != of_source.end())
        sources.insert(it->second.begin(), it->second.end());
    }
    // What quantizes a value bears the name of its reader, so sources reach beyond it: any value of theirs may be the one.
    std::vector<ValueId> given;
    for (const NodeId source : sources) {
      for (const ValueId v : a.node(source).outputs) {
        if (v.valid() && IsNumeric(a.value(v).type.dtype)) given.push_back(v);
      }
    }
    if (given.empty() || given.size() > kMostCandidates) continue;
    const bool attends = n.op == Op::kSdpa || n.op == Op::kQuantizedSdpa;
    for (size_t i = 0; i < n.outputs.size(); ++i) {
      const ValueId v = n.outputs[i];
      if (!v.valid() || (b.value(v).uses.empty() && !b.IsGraphOutput(v))) continue;
      const bool coded = !IsNumeric(b.value(v).type.dtype);
      Pair p{.op = std::string(ir::InfoOf(n.op).name), .before = before};
      const bool scales = ir::IsSkipNorm(n.op) || (n.op == Op::kQuantizedLinear && n.input(kPostScale).valid());
      p.fit = scales ? Fit::kMultiples : n.op == Op::kQuantizedQkv ? Fit::kShift : Fit::kNone;
      if (coded && !(p.codes = CodesOf(b, n, i))) continue;
      p.got = std::format("layer {}", pairs_.size());
      b.AddOutput(p.got, v);
      for (const ValueId w : given) {
        p.want.push_back(std::format("value {}", w.index));
        p.names.push_back(NameOf(a, w, sources, attends));
        if (tapped.insert(w).second) a.AddOutput(p.want.back(), w);
      }
      p.sums.resize(given.size());
      made_by[v] = {pairs_.size()};
      pairs_.push_back(std::move(p));
    }
  }
}

void LayerPairs::Sums::Add(const Tensor& want, const Tensor& got, const std::optional<Codes>& codes) {
  const auto wide = static_cast<size_t>(got.shape().back()), width = static_cast<size_t>(want.shape().back());
  const auto rows = static_cast<size_t>(want.size()) / std::max<size_t>(width, 1);
  const std::vector<float> w = want.ToFloats(), y = got.ToFloats();
  channels.resize(width);
  for (size_t r = 0; r < rows; ++r) {
    for (size_t c = 0; c < width; ++c) {
      const double a = w[r * width + c], b = y[r * wide + c];
      if (!std::isfinite(a) || !std::isfinite(b)) {
        finite = finite && (std::isnan(a) ? std::isnan(b) : a == b);
        continue;
      }
      Channel& sums = channels[c];
      sums.n += 1, sums.w += a, sums.y += b, sums.ww += a * a, sums.wy += a * b, sums.yy += b * b;
      if (!codes) continue;
      clipped += a < codes->lo - codes->scale / 2 || a > codes->hi + codes->scale / 2;
      flushed += a != 0 && b == 0;
    }
  }
  count += want.size();
}

void LayerPairs::Sums::AddPart(const Tensor& want, const Tensor& got, const std::optional<Codes>& codes) {
  constexpr int64_t kFewRows = 32, kLeastHead = 8;
  const int64_t width = got.shape().back(), parts = want.shape().back() / width, rows = got.size() / width;
  const int64_t few = std::min(rows, kFewRows);
  double best = -2;
  Part chosen{width, 0};
  for (int64_t heads = 1; part.run == 0 && width / heads >= kLeastHead; ++heads) {  // each part of a head, or of all
    if (width % heads != 0) continue;
    const int64_t run = width / heads;
    for (int64_t k = 0; k < parts; ++k) {
      const double like = Likeness(ColumnsOf(want, run, k * run, parts, few), got, few);
      if (like > best) best = like, chosen = {run, k * run};
    }
  }
  if (part.run == 0) part = chosen;
  Add(ColumnsOf(want, part.run, part.first, parts, rows), got, codes);
}

double LayerPairs::Sums::Db(Fit fit) const {
  double signal = 0, error = 0;
  for (const Channel& c : channels) {
    double left = c.ww - 2 * c.wy + c.yy;
    if (fit == Fit::kMultiples && c.ww > 0) left = c.yy - c.wy * c.wy / c.ww;
    if (fit == Fit::kShift && c.n > 0) left -= (c.y - c.w) * (c.y - c.w) / c.n;
    signal += fit == Fit::kMultiples ? c.yy : c.ww, error += std::max(left, 0.0);
  }
  if (!finite || (signal == 0 && error > 0)) return -std::numeric_limits<double>::infinity();
  return error == 0 ? std::numeric_limits<double>::infinity() : 10 * std::log10(signal / error);
}

double LayerPairs::Sums::Cosine(Fit fit) const {
  double ww = 0, wy = 0, yy = 0;
  for (const Channel& c : channels) {
    const double by = fit == Fit::kMultiples && c.ww > 0 ? c.wy / c.ww : 1;
    const double shift = fit == Fit::kShift && c.n > 0 ? (c.y - c.w) / c.n : 0;
    ww += by * by * c.ww + 2 * shift * c.w + shift * shift * c.n, wy += by * c.wy + shift * c.y, yy += c.yy;
  }
  return ww > 0 && yy > 0 ? wy / std::sqrt(ww * yy) : ww == yy ? 1 : 0;
}

ir::Status LayerPairs::Add(const ir::TensorMap& inputs, ir::TensorMap& want, ir::TensorMap& got) {
  for (Pair& p : pairs_) {
    ir::TensorMap mine{{"y", std::move(got.extract(p.got).mapped())}};
    LeaveOutPadding(inputs, mine);
    Tensor y = mine["y"];
    if (p.codes) {
      std::vector<float> floats = y.ToFloats();
      for (float& v : floats) v = static_cast<float>((v - p.codes->zero) * p.codes->scale);
      y = Tensor::F32(y.shape(), std::move(floats));
    }
    for (size_t i = 0; i < p.want.size(); ++i) {
      ir::TensorMap theirs{{"y", want.at(p.want[i])}};
      LeaveOutPadding(inputs, theirs);
      const Tensor& w = theirs["y"];
      if (w.rank() == 0 || w.rank() != y.rank() || w.size() == 0) continue;
      // A channel that smoothing has split stands behind all of them once more.
      const bool same_rows = std::equal(w.shape().begin(), w.shape().end() - 1, y.shape().begin());
      if (!same_rows) continue;
      if (w.shape().back() <= y.shape().back()) {
        p.sums[i].Add(w, y, p.codes);
      } else if (p.op == "QuantizedQkv" && w.shape().back() % y.shape().back() == 0) {
        p.sums[i].AddPart(w, y, p.codes);
      }
    }
  }
  std::erase_if(want, [](const auto& entry) { return entry.first.starts_with("value "); });
  return {};
}

std::vector<LayerDifference> LayerPairs::Differences() const {
  std::vector<double> db(pairs_.size(), std::numeric_limits<double>::infinity());
  std::vector<LayerDifference> all;
  for (size_t k = 0; k < pairs_.size(); ++k) {
    const Pair& p = pairs_[k];
    const Sums* best = nullptr;
    double best_db = 0;
    Fit fit = Fit::kNone;
    for (const Sums& sums : p.sums) {
      constexpr double kMuch = 3;  // noise does not go away so
      const double plain = sums.Db(Fit::kNone), fitted = sums.Db(p.fit);
      const double of = fitted > plain + kMuch ? fitted : plain;
      if (sums.count > 0 && (best == nullptr || of > best_db)) {
        best = &sums, best_db = of;
        fit = of > plain ? p.fit : Fit::kNone;
      }
    }
    double enters = std::numeric_limits<double>::infinity();
    for (const size_t before : p.before) enters = std::min(enters, db[before]);
    db[k] = best != nullptr ? best_db : enters;
    if (best == nullptr) continue;
    const auto share = [&](int64_t n) {  // what is beyond a range cannot be told of multiples
      return fit != Fit::kNone ? 0.0 : static_cast<double>(n) / static_cast<double>(best->count);
    };
    // Noise of layers adds up where it is not correlated: what is here beyond what came in.
    const double own = Power(best_db) - Power(enters);
    all.push_back({.node = p.names[static_cast<size_t>(best - p.sums.data())],
                   .op = p.op,
                   .elements = best->count,
                   .sqnr_db = best_db,
                   .cosine = best->Cosine(fit),
                   .fitted = fit != Fit::kNone,
                   .enters_db = enters,
                   .own_db = own > 0 ? -10 * std::log10(own) : std::numeric_limits<double>::infinity(),
                   .clipped = share(best->clipped),
                   .flushed = share(best->flushed)});
  }
  std::ranges::stable_sort(all, {}, &LayerDifference::own_db);
  return all;
}

std::string AdviceFor(const LayerDifference& d) {
  constexpr double kMuch = 0.01, kMost = 0.5, kHarm = 28;
  if (d.clipped > kMuch) return "values beyond the calibrated range: calibrate on data like this";
  if (d.flushed > kMost)
    return "most values become 0: few large ones make the range; leave it float, or its Linear dynamic";
  if (d.own_db < kHarm) return "loses most here: try keep_float=, or dynamic= for a Linear";
  return {};
}

}  // namespace octavo::api
