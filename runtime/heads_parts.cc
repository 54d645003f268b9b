#include "octavo/runtime/heads_parts.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "octavo/runtime/by_heads.h"

namespace octavo::runtime {

namespace {

bool IsFloats(const CompileContext& c, ValueId v) { return v.valid() && c.graph.value(v).type.dtype == DType::kF32; }

// A norm of each head: its vector is a constant with a value for each column.
bool TakeNorm(const CompileContext& c, ValueId v, HeadsPart& part) {
  ir::NodeId id;
  const Node* norm = OnlyReader(c.graph, v, Op::kRMSNormalization, &id);
  if (norm == nullptr) return false;
  const Tensor* gamma = c.Constant(norm->input(1));
  const int64_t axis = norm->attrs.Int("axis", -1);
  if (gamma == nullptr || gamma->dtype() != DType::kF32 || gamma->size() != part.size || (axis != -1 && axis != 3))
    return false;
  part.norm = norm;
  part.nodes.push_back(id);
  part.out = norm->output();
  return true;
}

// A table of a row for each row, of each batch entry or of all, for all heads.
bool IsTable(const CompileContext& c, ValueId v, const HeadsPart& part, ir::NodeId product) {
  const ir::SymShape& x = *c.graph.value(part.out).type.shape;
  const auto& shape = c.graph.value(v).type.shape;
  if (!IsFloats(c, v) || !shape || shape->empty() || shape->size() > 4 || !IsThereBefore(c.graph, v, product))
    return false;
  const size_t of_heads = part.rows_first ? 1 : 2;
  for (size_t back = 0; back < shape->size(); ++back) {
    const ir::Dim& dim = (*shape)[shape->size() - 1 - back];
    const bool one = dim.is_number() && dim.number() == 1;
    const bool same = ProvablyEqual(dim, x[x.size() - 1 - back]);
    if (back == of_heads ? !one : back > 0 && !one && !same) return false;  // the last one is as long as what is turned
  }
  return true;
}

// The chain that is a rotary embedding of part.out, all of whose readers it has.
bool TakeChain(const CompileContext& c, ir::NodeId product, const ChainsByNode& chains, HeadsPart& part) {
  const auto& value = c.graph.value(part.out);
  if (value.uses.empty() || c.graph.IsGraphOutput(part.out)) return false;
  const auto it = chains.find(value.uses[0].node);
  if (it == chains.end() || it->second->rotation.columns == 0 || it->second->inputs[0] != part.out) return false;
  const Chain& chain = *it->second;
  const bool alone =
      std::ranges::all_of(value.uses, [&](const ir::Use& use) { return std::ranges::contains(chain.nodes, use.node); });
  if (!alone || !IsTable(c, chain.inputs[1], part, product) || !IsTable(c, chain.inputs[2], part, product))
    return false;
  part.rotation = chain.rotation;
  part.cos = chain.inputs[1], part.sin = chain.inputs[2];
  part.nodes.insert(part.nodes.end(), chain.nodes.begin(), chain.nodes.end());
  part.out = c.graph.node(chain.nodes.back()).output();
  return true;
}

// The RotaryEmbedding that reads v alone; none: another reader, or what is not there yet.
std::optional<RotaryOp> RotaryBehind(const CompileContext& c, ir::NodeId product, ValueId v, ir::NodeId* id) {
  const Node* rotary = OnlyReader(c.graph, v, Op::kRotaryEmbedding, id);
  if (rotary == nullptr) return {};
  for (size_t i = 1; i < rotary->inputs.size(); ++i) {
    if (rotary->input(i).valid() && !IsThereBefore(c.graph, rotary->input(i), product)) return {};
  }
  return RotaryOpOf(*rotary, c);
}

void TakeOp(const CompileContext& c, const RotaryOp& op, ir::NodeId id, HeadsPart& part) {
  const Node& rotary = c.graph.node(id);
  part.rotation = op.rotation;
  part.cos = rotary.input(1), part.sin = rotary.input(2), part.positions = rotary.input(3);
  part.nodes.push_back(id);
  part.out = rotary.output();
}

void TakeRotation(const CompileContext& c, ir::NodeId product, const ChainsByNode& chains, HeadsPart& part) {
  if (part.rotation.columns > 0 || TakeChain(c, product, chains, part) || part.rows_first) return;
  ir::NodeId id;
  if (const auto op = RotaryBehind(c, product, part.out, &id)) TakeOp(c, *op, id, part);
}

// Codes of all that part.out is, by one scale.
void TakeCodes(const CompileContext& c, const ChainsByNode& chains, HeadsPart& part) {
  ir::NodeId id;
  const Node* codes = OnlyReader(c.graph, part.out, Op::kQuantizeLinear, &id);
  if (codes == nullptr || chains.contains(id) || !ChainOf(c, id)) return;
  part.codes = codes;
  part.nodes.push_back(id);
  part.out = codes->output();
}

// Whether the rows that part.out is go behind, or into, rows of `past` by dim 2.
bool IsAppend(const Node& n) {
  if (n.op == Op::kCacheAppend) return true;
  const bool concat = n.op == Op::kConcat && n.inputs.size() == 2;
  const int64_t axis = n.attrs.Int("axis", concat ? 0 : -2);
  return (concat || n.op == Op::kTensorScatter) && (axis == 2 || axis == -2);
}

// The rows go into a cache, which is no dequantized tensor (it would carry its codes along).
void TakeAppend(const CompileContext& c, ir::NodeId product, HeadsPart& part) {
  const Graph& g = c.graph;
  if (g.IsGraphOutput(part.out) || g.value(part.out).uses.size() != 1) return;
  const ir::Use use = g.value(part.out).uses[0];
  const Node& append = g.node(use.node);
  if (use.slot != 1 || !IsAppend(append)) return;
  const ValueId past = append.input(0);
  const auto &of_past = g.value(past).type.shape, &of_rows = g.value(part.out).type.shape;
  const DType dtype = g.value(part.out).type.dtype;
  if (!past.valid() || g.value(past).type.dtype != dtype || c.Constant(past) != nullptr || !of_past || !of_rows ||
      of_past->size() != 4)
    return;
  for (const ValueId v : append.inputs) {
    if (v.valid() && v != part.out && !IsThereBefore(g, v, product)) return;
  }
  for (size_t i = 2; i < append.inputs.size(); ++i) {
    if (!c.Is(append.input(i), DType::kS64)) return;
  }
  const ir::NodeId maker = g.value(past).producer;
  if (maker.valid() && g.node(maker).op == Op::kDequantizeLinear) return;
  for (const size_t d : {size_t{0}, size_t{1}, size_t{3}}) {
    if (!ProvablyEqual((*of_past)[d], (*of_rows)[d])) return;
  }
  part.append = &append, part.past = past;
  part.nodes.push_back(use.node);
  part.out = append.output();
}

// The rows go to places of a cache of fixed length, by ScatterND between Transposes that have the axis of the rows in front (write_rows.h).
void TakeScatter(const CompileContext& c, ir::NodeId product, const ChainsByNode& chains, bool by_heads,
                 HeadsPart& part) {
  const Graph& g = c.graph;
  const std::vector<int64_t> front{2, 0, 1, 3}, of_rows_first{1, 0, 2, 3};  // of [B,H,S,size] and [B,S,H,size]
  ir::NodeId id;
  const Node* turn = OnlyReader(g, part.out, Op::kTranspose, &id);
  if (turn == nullptr || turn->attrs.Ints("perm") != (by_heads ? front : of_rows_first)) return;
  if (g.IsGraphOutput(turn->output()) || g.value(turn->output()).uses.size() != 1) return;
  const ir::Use use = g.value(turn->output()).uses[0];
  const auto it = chains.find(use.node);
  if (it == chains.end() || !it->second->writes || g.node(use.node).op != Op::kScatterND || use.slot != 2) return;
  const Node& scatter = g.node(use.node);
  const ValueId past = it->second->inputs[0], indices = scatter.input(1);
  const Node* first = g.Producer(scatter.input(0));
  if (first == nullptr || first->op != Op::kTranspose || first->attrs.Ints("perm") != front) return;
  const auto &of_past = g.value(past).type.shape, &of_rows = g.value(part.out).type.shape;
  const auto& of_indices = g.value(indices).type.shape;
  if (!of_past || !of_rows || !of_indices || of_past->size() != 4 || of_indices->size() != 2) return;
  if (g.value(past).type.dtype != g.value(part.out).type.dtype || !c.Is(indices, DType::kS64)) return;
  if (!IsThereBefore(g, indices, product) || !ProvablyEqual((*of_indices)[1], ir::Dim(1))) return;
  for (const size_t d : {size_t{0}, size_t{1}, size_t{3}}) {
    if (!ProvablyEqual((*of_past)[d], (*of_rows)[d == 1 && !by_heads ? 2 : d])) return;
  }
  part.append = &scatter, part.past = past;
  part.nodes.push_back(id);
  part.nodes.insert(part.nodes.end(), it->second->nodes.begin(), it->second->nodes.end());
  part.out = g.node(it->second->nodes.back()).output();
}

std::optional<HeadsPart> PartOf(const CompileContext& c, ir::NodeId product, ValueId v, const ChainsByNode& chains) {
  const Graph& g = c.graph;
  if (!IsFloats(c, v)) return {};
  HeadsPart part{.out = v};
  ir::NodeId id;
  if (const auto op = RotaryBehind(c, product, v, &id); op && op->heads > 0) {  // of [B,S,n]
    part.heads = op->heads, part.size = op->size;
    TakeOp(c, *op, id, part);
  }
  const Node* reshape = OnlyReader(g, part.out, Op::kReshape, &id);
  const std::optional<ByHeads> heads = reshape == nullptr ? std::nullopt : HeadsOf(g, part.out, reshape->output());
  const bool fits = heads && (part.heads == 0 || (heads->heads == part.heads && heads->size == part.size));
  part.rows = part.heads > 0 && !fits;
  if (!fits) return part.rows ? std::optional(part) : std::nullopt;
  const HeadsPart in_rows = part;
  part.heads = heads->heads, part.size = heads->size;
  part.nodes.push_back(id), part.out = reshape->output();
  if (part.rotation.columns == 0) TakeNorm(c, part.out, part);
  part.rows_first = true;
  TakeRotation(c, product, chains, part);
  TakeCodes(c, chains, part);
  part.rows_first = part.rotation.columns > 0 && !part.rotation.by_pair;
  TakeScatter(c, product, chains, false, part);
  if (part.append != nullptr) return part;
  const Node* transpose = OnlyReader(g, part.out, Op::kTranspose, &id);
  if (transpose == nullptr || transpose->attrs.Ints("perm") != std::vector<int64_t>{0, 2, 1, 3}) {
    if (in_rows.heads == 0) return {};
    part = in_rows, part.rows = true;
    return part;
  }
  part.nodes.push_back(id);
  part.out = transpose->output();
  if (!g.value(part.out).type.shape || g.value(part.out).type.shape->size() != 4) return {};
  if (part.codes == nullptr) {
    if (part.norm == nullptr && part.rotation.columns == 0) TakeNorm(c, part.out, part);
    TakeRotation(c, product, chains, part);
    TakeCodes(c, chains, part);
  }
  TakeAppend(c, product, part);
  if (part.append == nullptr) TakeScatter(c, product, chains, true, part);
  return part;
}

bool TakeRows(const CompileContext& c, ValueId v, int64_t size, HeadsPart& part) {
  const auto& type = c.graph.value(v).type;
  if (type.dtype != DType::kF32 || !type.shape || type.shape->size() != 3 || !type.shape->back().is_number())
    return false;
  part.size = size, part.heads = type.shape->back().number() / size;
  return part.columns() == type.shape->back().number();
}

}  // namespace

std::vector<HeadsPart> FindHeadsParts(const CompileContext& c, ir::NodeId product, ValueId y,
                                      const ChainsByNode& chains) {
  const Graph& g = c.graph;
  ir::NodeId split_id;
  const Node* split = y.valid() ? OnlyReader(g, y, Op::kSplit, &split_id) : nullptr;
  const auto& shape = g.value(y).type.shape;
  if (!shape || shape->size() != 3) return {};
  std::vector<ValueId> values{y};
  if (split != nullptr) {
    const int64_t axis = split->attrs.Int("axis", 0);
    if (axis != 2 && axis != -1) return {};
    values = split->outputs;
  }
  std::vector<HeadsPart> parts;
  int64_t size = 0, columns = 0;
  for (const ValueId v : values) {
    if (!v.valid()) return {};
    parts.push_back(PartOf(c, product, v, chains).value_or(HeadsPart{.rows = true, .out = v}));
    size = std::max(size, parts.back().size);
  }
  if (size == 0) return {};
  for (size_t i = 0; i < parts.size(); ++i) {
    if (parts[i].size == 0 && !TakeRows(c, values[i], size, parts[i])) return {};
    if (parts[i].size != size) return {};
    columns += parts[i].columns();
  }
  const bool all = shape->back().is_number() && shape->back().number() == columns;
  if (!all || (split == nullptr && !parts[0].is_more())) return {};
  if (split != nullptr) parts[0].nodes.push_back(split_id);
  return parts;
}

}  // namespace octavo::runtime
