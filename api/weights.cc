#include "octavo/api/weights.h"

#include <algorithm>
#include <cmath>
#include <format>
#include <map>
#include <optional>
#include <ranges>
#include <set>
#include <utility>

#include "octavo/api/weights_experts.h"
#include "octavo/ir/closed.h"
#include "octavo/ir/infer.h"
#include "octavo/ir/interpret/call.h"
#include "octavo/ir/names.h"
#include "octavo/passes/expert_columns.h"

namespace octavo::api {

using ir::DType;
using ir::Graph;
using ir::NodeId;
using ir::Op;
using ir::Result;
using ir::Shape;
using ir::Status;
using ir::Tensor;
using ir::ValueId;
using ir::gguf::TensorInfo;

namespace {

enum class Use { kTable, kProduct, kExperts, kPlain };

// One node that reads a float constant, behind Casts and Transposes.
struct Site {
  ValueId constant, at;  // `at`: what the node reads
  NodeId user;
  uint32_t slot = 0;
  Use use = Use::kPlain;
  bool turned = false;  // the node reads the constant transposed
  bool rows = false;    // the constant is [N, K], as the file has it; of experts [E, N, K]
  int64_t rank = -1;    // of the indices of a table, or of what is multiplied; -1: not known
  const TensorInfo* tensor = nullptr;
};

// Relative distance of what a site has now from what it gets, over some thousand elements.
double Distance(const Tensor& now, const Tensor& then, bool same_layout) {
  const Shape& shape = then.shape();
  const int64_t n = now.size(), step = (n / 4093) | 1, k = shape.back(), rows = shape.size() == 3 ? shape[1] : n / k;
  double apart = 0, all = 0;
  for (int64_t i = 0; i < n; i += step) {
    const int64_t matrix = i / (rows * k) * (rows * k), own = i - matrix;
    const double a = now.GetDouble(same_layout ? i : matrix + own % k * rows + own / k),
                 b = then.as<float>()[static_cast<size_t>(i)];
    apart += (a - b) * (a - b);
    all += std::max(a * a, b * b);
  }
  return all > 0 ? std::sqrt(apart / all) : 0;
}
constexpr double kNear = 0.35;  // 2-bit codes are a quarter away
constexpr double kEqual = 1e-3;

class Taker {
 public:
  Taker(Graph& graph, const ir::gguf::File& file)
      : graph_(graph), typed_(graph), b_(graph, "weights"), file_(file), tensors_(file, {}) {}

  Result<Taken> Run() {
    OCTAVO_TRY_STATUS(ir::Inference::Run(typed_).transform([](const auto&) {}));
    FindSites();
    tensors_ = GgufTensors(file_, Stacked());
    for (Site& site : sites_) OCTAVO_TRY_STATUS(PlaceByName(site));
    for (const TensorInfo& t : tensors_.all()) OCTAVO_TRY_STATUS(PlaceByValues(t));
    OCTAVO_TRY_STATUS(Judge());
    for (const Site& site : sites_) {
      if (site.tensor != nullptr) OCTAVO_TRY_STATUS(Fill(site));
    }
    for (const Site& site : sites_) EraseDead(site.at);
    if (!graph_.SortTopologically()) return ir::Fail("weights: the new constants made a cycle");
    taken_.tensors = static_cast<int64_t>(placed_.size());
    return std::move(taken_);
  }

 private:
  // --- places ------------------------------------------------------------------------------------------------------
  void FindSites() {
    for (const NodeId id : graph_.NodesInOrder()) {
      const ir::Node& n = graph_.node(id);
      if (n.op != Op::kConstant) continue;
      const Tensor* t = graph_.ConstantOf(n.output());
      const bool is_float = t->dtype() == DType::kF32 || t->dtype() == DType::kF16 || t->dtype() == DType::kBF16;
      if (is_float && t->size() > 1 && (t->rank() == 1 || t->rank() == 2)) Follow(n.output(), n.output(), false);
      if (is_float && t->rank() == 3) FindExperts(n.output());
    }
  }

  void FindExperts(ValueId constant) {
    for (const ir::Use& use : graph_.value(constant).uses) {
      const auto columns = passes::ExpertColumnsAt(typed_, use.node);
      if (!columns) continue;
      Site site{constant, constant, use.node, use.slot};
      site.use = Use::kExperts, site.rows = columns->experts.summed == 2;
      sites_.push_back(site);
    }
  }

  // Shapes of all experts in one tensor, as the file has them.
  std::set<Shape> Stacked() const {
    std::set<Shape> all;
    for (const Site& site : sites_) {
      if (site.use == Use::kExperts) all.insert(AsInFile(site));
    }
    return all;
  }

  void Follow(ValueId constant, ValueId at, bool turned) {
    const int64_t rank = graph_.ConstantOf(constant)->rank();
    for (const ir::Use& use : graph_.value(at).uses) {
      const ir::Node& n = graph_.node(use.node);
      if (n.op == Op::kCast || n.op == Op::kIdentity) {
        Follow(constant, n.output(), turned);
        continue;
      }
      if (n.op == Op::kTranspose && rank == 2 && n.attrs.Ints("perm", {1, 0}) == std::vector<int64_t>{1, 0}) {
        Follow(constant, n.output(), !turned);
        continue;
      }
      Site site{constant, at, use.node, use.slot};
      site.turned = turned;
      if (n.op == Op::kGather && use.slot == 0 && rank == 2 && !turned && n.attrs.Int("axis", 0) == 0) {
        site.use = Use::kTable, site.rows = true, site.rank = RankOf(n.inputs[1]);
      } else if ((n.op == Op::kMatMul || n.op == Op::kGemm) && use.slot == 1 && rank == 2) {
        site.use = Use::kProduct, site.rank = RankOf(n.inputs[0]);
        site.rows = turned != (n.op == Op::kGemm && n.attrs.Int("transB", 0) != 0);
      }
      sites_.push_back(site);
    }
  }

  const Tensor& Now(const Site& site) const { return *graph_.ConstantOf(site.constant); }

  Shape AsInFile(const Site& site) const {
    Shape shape = Now(site).shape();
    if (HasTurned(site)) std::swap(shape[shape.size() - 2], shape.back());
    return shape;
  }
  static bool HasTurned(const Site& site) {
    return (site.use == Use::kProduct || site.use == Use::kExperts) && !site.rows;
  }

  bool Fits(const Site& site, const TensorInfo& t) const {
    const Shape shape = AsInFile(site);
    if (t.shape.size() > shape.size()) return false;
    return shape == t.shape;
  }

  bool IsBias(const Site& site) const {
    const std::string& name = graph_.value(site.constant).name;
    if (name.ends_with("bias") || name.ends_with("weight")) return name.ends_with("bias");
    const Op op = graph_.node(site.user).op;
    return Now(site).rank() == 1 && (op == Op::kAdd || site.slot == 2);
  }

  // The tensor that a path's module has in the file.
  const TensorInfo* ByPath(const Site& site, const std::string& path) const {
    for (const std::string& name : TensorsOfModule(path, site.use == Use::kProduct)) {
      if (const TensorInfo* t = tensors_.Find(name + (IsBias(site) ? ".bias" : ".weight"))) return t;
    }
    return nullptr;
  }

  Status PlaceByName(Site& site) {
    const TensorInfo* t = ByPath(site, graph_.node(site.user).name);
    if (t == nullptr) t = ByPath(site, graph_.value(site.constant).name);
    if (t == nullptr) return {};
    if (Fits(site, *t)) return Place(site, *t);
    // Other constants of a module (a table of angles, say) are no weights; what is named as the weight is.
    if (site.use != Use::kProduct && !graph_.value(site.constant).name.ends_with("weight")) return {};
    return ir::Fail(
        "weights: the tensor {} is {}, and its place in the model, {}, is {}: is it the file of this model?",
        ir::Quoted(t->name), ir::ToString(t->shape), ir::Quoted(graph_.value(site.constant).name),
        ir::ToString(Now(site).shape()));
  }

  Status Place(Site& site, const TensorInfo& t) {
    if (ir::gguf::FormOf(t.type) == nullptr)
      return ir::Fail(
          "weights: the tensor {} has the type {} of GGUF; octavo reads F32, F16, BF16, Q4_0 to Q8_0 and "
          "Q2_K to Q6_K, IQ4_NL, IQ4_XS, MXFP4: quantize the file to one of them",
          ir::Quoted(t.name), t.type);
    site.tensor = &t;
    placed_.insert(&t);
    if (site.use == Use::kTable) tables_.insert(&t);
    return {};
  }

  // Exporters fold transposed weights and leave them without a name. They are the weights of this model, rounded.
  Status PlaceByValues(const TensorInfo& t) {
    if (placed_.contains(&t) || t.name.starts_with("rope_")) return {};  // the model has its own angles
    double nearest = kNear;
    ValueId found;
    if (ir::gguf::FormOf(t.type) != nullptr) {
      std::optional<Tensor> floats;
      for (const Site& site : sites_) {
        if (!Fits(site, t) || site.constant == found) continue;
        if (!floats) {
          OCTAVO_TRY(floats, ir::gguf::FloatsOf(t, OrderOf(t)));
        }
        const double distance = DistanceOf(site, *floats);
        // A weight that has a tensor already may stand for equal ones, which exporters store once.
        if (distance >= (site.tensor == nullptr ? nearest : std::min(nearest, kEqual))) continue;
        nearest = distance, found = site.constant;
      }
    }
    if (!found.valid())
      return ir::Fail(
          "weights: the tensor {} ({}) finds no place in the model: no weight of that shape is of its module, and none "
          "has nearly its values; is it the file of this model?",
          ir::Quoted(t.name), ir::ToString(t.shape));
    placed_.insert(&t);
    for (Site& site : sites_) {
      if (site.constant == found && site.tensor == nullptr && Fits(site, t)) OCTAVO_TRY_STATUS(Place(site, t));
    }
    return {};
  }

  // A norm of Gemma is stored as what it multiplies with, and the model may add the 1.
  bool AddsOne(const Site& site) const {
    const ir::Node& n = graph_.node(site.user);
    if (n.op != Op::kAdd || Now(site).rank() != 1) return false;
    const Tensor* other = graph_.ConstantOf(n.inputs[1 - site.slot]);
    return other != nullptr && other->size() == 1 && other->GetDouble(0) == 1;
  }

  double DistanceOf(const Site& site, const Tensor& floats) const {
    return Distance(Now(site), AddsOne(site) ? LessOne(floats) : floats, !HasTurned(site));
  }

  static Tensor LessOne(const Tensor& t) {
    std::vector<float> values = t.ToFloats();
    for (float& v : values) v -= 1;
    return Tensor::F32(t.shape(), std::move(values));
  }

  // llama.cpp pairs neighbouring rows for its rotary embedding where transformers pairs halves of a head, and its converter orders the rows of q and k of this
  // architecture so: row (head, i, half) of the file is row (head, half, i) of the model.
  std::span<const int64_t> OrderOf(const TensorInfo& t) {
    const bool q = t.name.ends_with(".attn_q.weight") || t.name.ends_with(".attn_q.bias");
    const bool k = t.name.ends_with(".attn_k.weight") || t.name.ends_with(".attn_k.bias");
    if (file_.architecture() != "llama" || (!q && !k)) return {};
    const auto all = file_.Number("llama.attention.head_count");
    const int64_t heads = (k ? file_.Number("llama.attention.head_count_kv") : all).value_or(all.value_or(0));
    const int64_t rows = t.shape.front();
    if (heads < 1 || rows % (2 * heads) != 0) return {};
    std::vector<int64_t>& order = orders_[{rows, heads}];
    const int64_t half = rows / heads / 2;
    for (int64_t i = static_cast<int64_t>(order.size()); i < rows; ++i)
      order.push_back(i / (2 * half) * 2 * half + i % half * 2 + i / half % 2);
    return order;
  }

  // What a person should know: tensors that are not what they replace, and matrices that keep their floats.
  Status Judge() {
    std::map<const TensorInfo*, std::vector<const Site*>> by_tensor;
    int64_t far = 0, left = 0;
    std::string first_far, first_left;
    for (const Site& site : sites_) {
      if (site.tensor != nullptr) by_tensor[site.tensor].push_back(&site);
      if (site.tensor == nullptr && site.use != Use::kPlain && left++ == 0)
        first_left = graph_.value(site.constant).name;
    }
    for (const TensorInfo& t : tensors_.all()) {
      if (!by_tensor.contains(&t)) continue;
      OCTAVO_TRY(const Tensor floats, ir::gguf::FloatsOf(t, OrderOf(t)));
      const auto distance = [&](const Site* site) { return DistanceOf(*site, floats); };
      if (std::ranges::min(by_tensor[&t] | std::views::transform(distance)) > kNear && far++ == 0) first_far = t.name;
    }
    if (far > 0)
      taken_.notes.push_back(
          std::format("weights: {} of {} tensors have little in common with the floats whose place they take, "
                      "the first of them {}: is it the file of this model?",
                      far, by_tensor.size(), ir::Quoted(first_far)));
    if (left > 0)
      taken_.notes.push_back(
          std::format("weights: {} matrices have no tensor in the file and keep their floats, the first of "
                      "them {}",
                      left, ir::Quoted(first_left)));
    return {};
  }

  // --- what stands there ---------------------------------------------------------------------------------------------
  ValueId Make(Op op, std::vector<ValueId> in, ir::Attrs attrs, NodeId before) {
    const NodeId id = graph_.AddNode(op, std::move(in), 1, std::move(attrs), graph_.node(before).name, before);
    graph_.SetOrigin(id, {graph_.node(before).name});
    return graph_.node(id).output();
  }
  ValueId Ints(std::vector<int64_t> v) {
    const auto n = static_cast<int64_t>(v.size());
    return graph_.AddConstant(Tensor::S64({n}, std::move(v)), {}, graph_.first());
  }
  ValueId Cast(ValueId v, DType to, NodeId before) {
    return to == DType::kF32 ? v : Make(Op::kCast, {v}, {{"to", static_cast<int64_t>(to)}}, before);
  }

  // The codes of a tensor as constants, once.
  struct Parts {
    ValueId codes, scale, min_codes, min_scales;
    int64_t group = 0;
    ValueId wide[2];  // dequantized, and transposed
    ValueId mins;     // [K / 16, N]
  };
  Result<Parts*> PartsOf(const TensorInfo& t) {
    auto [it, fresh] = parts_.try_emplace(&t);
    if (!fresh) return &it->second;
    TensorInfo rows = t;  // of experts those of all
    if (rows.shape.size() == 3) rows.shape = {t.shape[0] * t.shape[1], t.shape[2]};
    OCTAVO_TRY(const ir::gguf::Blocks blocks, ir::gguf::BlocksOf(rows, OrderOf(t), tables_.contains(&t)));
    const auto constant = [&](const Tensor& tensor, const char* what) {
      return tensor.defined() ? graph_.AddConstant(tensor, t.name + what, graph_.first()) : ValueId();
    };
    it->second = {constant(blocks.codes, "_quantized"),
                  constant(blocks.scale, "_scale"),
                  constant(blocks.min_codes, "_mins"),
                  constant(blocks.min_scales, "_min_scale"),
                  blocks.group,
                  {},
                  {}};
    return &it->second;
  }

  Result<Tensor> Floats(const TensorInfo& t, DType dtype, bool less_one) {
    OCTAVO_TRY(Tensor floats, ir::gguf::FloatsOf(t, OrderOf(t)));
    if (less_one) floats = LessOne(floats);
    return ir::interpret::CastTo(floats, dtype);
  }

  // -1: not known
  int64_t RankOf(ValueId v) const {
    const auto& shape = typed_.value(v).type.shape;
    return shape ? static_cast<int64_t>(shape->size()) : -1;
  }

  Status Fill(const Site& site) {
    const TensorInfo& t = *site.tensor;
    const ir::gguf::Form& form = *ir::gguf::FormOf(t.type);
    const ir::Node& n = graph_.node(site.user);
    const bool scaled = n.op == Op::kGemm && (n.attrs.Float("alpha", 1) != 1 || n.attrs.Int("transA", 0) != 0);
    if (site.use == Use::kExperts) return form.group != 0 ? FillExperts(site) : FillFloats(site);
    const bool in_codes = form.group != 0 && site.use != Use::kPlain && t.shape.size() == 2 &&
                          site.rank >= (site.use == Use::kTable ? 0 : 1) && !(form.mins && scaled);
    if (!in_codes) return FillFloats(site);
    OCTAVO_TRY(Parts * parts, PartsOf(t));
    return site.use == Use::kTable ? FillTable(site, *parts) : FillProduct(site, *parts);
  }

  Status FillFloats(const Site& site) {
    const DType dtype = typed_.value(site.at).type.dtype;
    OCTAVO_TRY(Tensor floats, Floats(*site.tensor, dtype, AddsOne(site)));
    ValueId v = graph_.AddConstant(std::move(floats), site.tensor->name, graph_.first());
    const bool as_it_is = site.use == Use::kExperts ? site.rows : site.use != Use::kProduct || site.rows != site.turned;
    const std::vector<int64_t> perm =
        site.use == Use::kExperts ? std::vector<int64_t>{0, 2, 1} : std::vector<int64_t>{1, 0};
    if (!as_it_is) v = Make(Op::kTranspose, {v}, {{"perm", perm}}, site.user);
    graph_.SetInput(site.user, site.slot, v);
    return {};
  }

  Status FillTable(const Site& site, const Parts& p) {
    const int64_t rank = site.rank;
    const NodeId gather = site.user;
    const ValueId ids = graph_.node(gather).inputs[1];
    const int64_t k = site.tensor->shape[1];
    const auto rows = [&](ValueId v) { return Make(Op::kGather, {v, ids}, {{"axis", int64_t{0}}}, gather); };
    ValueId y =
        Make(Op::kDequantizeLinear, {rows(p.codes), rows(p.scale)}, {{"axis", rank}, {"block_size", p.group}}, gather);
    if (p.min_codes.valid()) {
      const ValueId mins = Make(Op::kDequantizeLinear, {rows(p.min_codes), rows(p.min_scales)},
                                {{"axis", rank}, {"block_size", int64_t{16}}}, gather);
      std::vector<int64_t> split(static_cast<size_t>(rank), 0), whole(static_cast<size_t>(rank), 0);
      split.insert(split.end(), {k / 16, 16}), whole.push_back(k);
      const ValueId apart = Make(Op::kReshape, {y, Ints(split)}, {}, gather);
      const ValueId sum = Make(Op::kAdd, {apart, Make(Op::kUnsqueeze, {mins, Ints({-1})}, {}, gather)}, {}, gather);
      y = Make(Op::kReshape, {sum, Ints(whole)}, {}, gather);
    }
    y = Cast(y, typed_.value(site.at).type.dtype, gather);
    graph_.ReplaceAllUses(graph_.node(gather).output(), y);
    graph_.Erase(gather);
    return {};
  }

  // codes [N, K] in blocks of `group` along K, as the product reads them.
  ValueId Wide(ValueId codes, ValueId scale, int64_t group, NodeId before) {
    return Make(Op::kDequantizeLinear, {codes, scale}, {{"axis", int64_t{1}}, {"block_size", group}}, before);
  }

  Status FillProduct(const Site& site, Parts& p) {
    const NodeId product = site.user;
    const DType dtype = typed_.value(site.at).type.dtype;
    const bool turn = site.rows == site.turned;  // the node wants [K, N]
    if (!p.wide[0].valid()) p.wide[0] = Cast(Wide(p.codes, p.scale, p.group, product), dtype, product);
    if (turn && !p.wide[1].valid())
      p.wide[1] = Make(Op::kTranspose, {p.wide[0]}, {{"perm", std::vector<int64_t>{1, 0}}}, product);
    graph_.SetInput(product, 1, p.wide[turn ? 1 : 0]);
    if (!p.min_codes.valid()) return {};
    const ValueId x = graph_.node(product).inputs[0], y = graph_.node(product).output();
    const ValueId offset = Offset(p, x, site.rank, site.tensor->shape.back(), dtype, product);
    const NodeId sum = graph_.AddNode(Op::kAdd, {offset, offset}, 1, {}, graph_.node(product).name);
    graph_.SetOrigin(sum, {graph_.node(product).name});
    graph_.ReplaceAllUses(y, graph_.node(sum).output());
    graph_.SetInput(sum, 0, y);
    return {};
  }

  // What the mins of a tensor with blocks along k add to the product of x with it. Those of 16 elements are one number, so they multiply the sum of 16 activations.
  ValueId Offset(Parts& p, ValueId x, int64_t rank, int64_t k, DType dtype, NodeId before) {
    if (!p.mins.valid()) {
      const ValueId mins = Cast(Wide(p.min_codes, p.min_scales, 16, before), dtype, before);
      p.mins = Make(Op::kTranspose, {mins}, {{"perm", std::vector<int64_t>{1, 0}}}, before);
    }
    ValueId& sums = sums_[x];
    if (!sums.valid()) {
      std::vector<int64_t> split(static_cast<size_t>(rank - 1), 0);
      split.insert(split.end(), {k / 16, 16});
      const ValueId apart = Make(Op::kReshape, {x, Ints(split)}, {}, before);
      sums = Make(Op::kReduceSum, {apart, Ints({-1})}, {{"keepdims", int64_t{0}}}, before);
    }
    return Make(Op::kMatMul, {sums, p.mins}, {}, before);
  }

  Status FillExperts(const Site& site) {
    passes::ExpertColumns columns = *passes::ExpertColumnsAt(typed_, site.user);
    const NodeId product = columns.experts.product;
    // Other tensors may have changed what stands before it.
    columns.x = graph_.node(product).input(columns.left ? 1 : 0), columns.index = graph_.node(site.user).input(1);
    const DType dtype = typed_.value(site.at).type.dtype;
    OCTAVO_TRY(Parts * parts, PartsOf(*site.tensor));
    const int64_t rank = columns.dims == 0 ? columns.x_rank : columns.dims + 1, k = site.tensor->shape.back();
    const ValueId wide = Cast(Wide(parts->codes, parts->scale, parts->group, product), dtype, product);
    const ValueId all = Make(Op::kTranspose, {wide}, {{"perm", std::vector<int64_t>{1, 0}}}, product);
    b_.At(product, {site.user, product});
    passes::TakeExpertColumns(b_, columns, [&](ValueId rows) {
      const ValueId y = Make(Op::kMatMul, {rows, all}, {}, product);
      return parts->min_codes.valid() ? Make(Op::kAdd, {y, Offset(*parts, rows, rank, k, dtype, product)}, {}, product)
                                      : y;
    });
    return {};
  }

  void EraseDead(ValueId v) {
    while (graph_.IsAlive(v) && graph_.value(v).uses.empty() && !graph_.IsGraphOutput(v)) {
      const NodeId id = graph_.value(v).producer;
      if (!id.valid()) return;
      const ValueId before = graph_.node(id).input(0);
      graph_.Erase(id);
      if (!before.valid()) return;
      v = before;
    }
  }

  Graph& graph_;
  Graph typed_;
  passes::Rewriter b_;
  const ir::gguf::File& file_;
  GgufTensors tensors_;
  std::vector<Site> sites_;
  std::set<const TensorInfo*> placed_, tables_;
  std::map<const TensorInfo*, Parts> parts_;
  std::map<ValueId, ValueId> sums_;
  std::map<std::pair<int64_t, int64_t>, std::vector<int64_t>> orders_;
  Taken taken_;
};

}  // namespace

Result<Taken> TakeWeights(Graph& graph, const ir::gguf::File& file) {
  return ir::Closed("taking weights", [&]() -> Result<Taken> {
    Graph changed = graph;
    OCTAVO_TRY(Taken taken, Taker(changed, file).Run());
    graph = std::move(changed);
    return taken;
  });
}

Result<Taken> TakeWeights(Graph& graph, const std::filesystem::path& gguf) {
  OCTAVO_TRY(const ir::gguf::File file, ir::gguf::File::Read(gguf));
  return TakeWeights(graph, file);
}

}  // namespace octavo::api
