#include "octavo/runtime/chain.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <optional>
#include <ranges>
#include <set>

#include "octavo/ir/functions.h"
#include "octavo/ir/infer.h"
#include "octavo/kernels/elementwise/elementwise.h"
#include "octavo/kernels/quantize/quantize.h"
#include "octavo/quant/numeric/code8.h"
#include "octavo/runtime/expert_columns.h"
#include "octavo/runtime/expert_products.h"
#include "octavo/runtime/rotary_chain.h"
#include "octavo/runtime/write_rows.h"

namespace octavo::runtime {

namespace {

constexpr size_t kMostNodes = 64;  // of a chain, whose tiles in between shall stay in L1
constexpr int64_t kTile = 2048;    // elements: 8 KB of floats

// Constants of a chain: one number, or one for each column.
enum class Spread : uint8_t { kNone, kNumber, kColumns };

Spread SpreadOf(const CompileContext& c, ValueId constant, ValueId full) {
  const Tensor& t = *c.Constant(constant);
  if (t.dtype() != DType::kF32 || t.size() == 0) return Spread::kNone;
  if (t.size() == 1) return Spread::kNumber;
  const auto& shape = c.graph.value(full).type.shape;
  const bool last_alone = t.shape().back() == t.size();
  if (!shape || shape->empty() || !shape->back().is_number() || !last_alone) return Spread::kNone;
  return shape->back().number() == t.size() && shape->size() >= t.shape().size() ? Spread::kColumns : Spread::kNone;
}

// Inputs of a node that are data, not parameters.
size_t DataInputs(const Node& n) { return BinaryOf(n.op) ? n.inputs.size() : 1; }

bool IsLink(const CompileContext& c, const Node& n) {
  if (n.outputs.size() != 1 || !n.output().valid() || c.Constant(n.output()) != nullptr) return false;
  if (n.op == Op::kQuantizeLinear || n.op == Op::kDequantizeLinear) return MakeQuantize(n, c) != nullptr;
  if (n.op == Op::kLookup) return MakeLookup(n, c) != nullptr;
  if (UnaryOf(n, c)) return c.Is(n.input(0), DType::kF32);
  if (!BinaryOf(n.op) || n.inputs.size() != 2) return false;
  return std::all_of(n.inputs.begin(), n.inputs.end(), [&](ValueId v) {
    if (!v.valid() || !c.Is(v, DType::kF32)) return false;
    if (c.Constant(v) != nullptr) return SpreadOf(c, v, n.output()) != Spread::kNone;
    return ir::SameShape(c.graph, v, n.output());
  });
}

// A dequantized tensor carries its codes to the products behind it, which a chain would lose. Norms have no use for them.
bool MayEnd(const CompileContext& c, const Node& n) {
  if (n.op != Op::kDequantizeLinear) return true;
  const auto& uses = c.graph.value(n.output()).uses;
  return !c.graph.IsGraphOutput(n.output()) && std::all_of(uses.begin(), uses.end(), [&](const ir::Use& use) {
    const Op op = c.graph.node(use.node).op;
    return ir::IsSkipNorm(op) || op == Op::kLayerNormalization;
  });
}

// One node of a chain: what its kernel is called with.
struct Link {
  enum class From : uint8_t { kInput, kTile, kConstant } from_a = From::kInput, from_b = From::kInput;
  size_t a = 0, b = 0;  // which input, tile or constant
  Spread spread_a = Spread::kNone, spread_b = Spread::kNone;
  std::optional<size_t> to;  // tile; none: the output
  Op op = Op::kAdd;
  std::optional<UnaryCall> unary;
  std::optional<kernels::BinaryOp> binary;
  DType codes = DType::kUndefined;  // of Quantize- and DequantizeLinear
  float scale = 1;
  int32_t zero_point = 0;
  std::array<uint8_t, 256> table{};  // of Lookup
};

// Elements [at, at + rows * cols) of every tensor; columns begin at `column`.
struct Tile {
  int64_t at, rows, cols, column;
};

// What runs a tile through the nodes of a chain.
class Links final : public Tail {
 public:
  Links(const Chain& chain, const CompileContext& c) : arch_(c.arch) {
    const Graph& g = c.graph;
    for (const ir::NodeId id : chain.nodes) {
      const Node& n = g.node(id);
      for (size_t i = 0; i < DataInputs(n); ++i) last_use_[n.input(i)] = id;
    }
    std::vector<size_t> free;
    for (const ir::NodeId id : chain.nodes) {
      const Node& n = g.node(id);
      Link link = LinkOf(n, c, chain);
      if (id != chain.nodes.back()) {
        if (free.empty()) free.push_back(tiles_++);
        link.to = tile_of_[n.output()] = free.back();
        free.pop_back();
      }
      for (size_t i = 0; i < DataInputs(n); ++i) {  // only now, since a link does not write where it reads
        const auto it = tile_of_.find(n.input(i));
        if (it == tile_of_.end() || last_use_[n.input(i)] != id) continue;
        free.push_back(it->second);
        tile_of_.erase(it);
      }
      links_.push_back(link);
    }
    name_ = Names(chain, g);
    output_ = g.value(g.node(chain.nodes.back()).output()).type.dtype;
    for (const ValueId v : chain.inputs) inputs_.push_back(g.value(v).type.dtype);
    tile_of_.clear(), last_use_.clear();
  }
  const std::string& name() const override { return name_; }
  DType output() const override { return output_; }
  int64_t columns() const { return columns_; }  // of the constants by column; 0: there are none
  size_t scratch_bytes() const { return tiles_ * kTile * sizeof(float); }

  void Run(std::span<const std::byte* const> in, const Tile& tile, std::byte* tiles, std::byte* out) const {
    for (const Link& link : links_) RunLink(link, in, tile, tiles, out);
  }

  void RunPiece(std::span<const std::byte* const> in, int64_t n, kernels::Range rows, kernels::Range columns,
                std::byte* out) const override {
    const TaskScratch scratch(scratch_bytes());
    if (columns.begin == 0 && columns.end == n && n < kTile) {  // rows lie one behind the other
      const int64_t at_once = kTile / n;
      for (int64_t r = rows.begin; r < rows.end; r += at_once) {
        const int64_t some = std::min(at_once, rows.end - r);
        Run(in, columns_ == 0 ? Tile{r * n, 1, some * n, 0} : Tile{r * n, some, n, 0}, scratch.data(), out);
      }
      return;
    }
    for (int64_t r = rows.begin; r < rows.end; ++r) {
      for (int64_t column = columns.begin; column < columns.end; column += kTile) {
        const int64_t width = std::min(kTile, columns.end - column);
        Run(in, Tile{r * n + column, 1, width, column}, scratch.data(), out);
      }
    }
  }

 private:
  // "Add+Gelu", of many "Add+7+Gelu".
  static std::string Names(const Chain& chain, const Graph& g) {
    constexpr size_t kAll = 4;
    const size_t n = chain.nodes.size();
    std::string names;
    for (size_t i = 0; i < n; ++i) {
      if (n > kAll && i == 1) names += "+" + std::to_string(n - 2);
      if (n > kAll && i > 0 && i + 1 < n) continue;
      names += (i == 0 ? "" : "+") + std::string(ir::InfoOf(g.node(chain.nodes[i]).op).name);
    }
    return names;
  }

  Link LinkOf(const Node& n, const CompileContext& c, const Chain& chain) {
    Link link;
    link.op = n.op, link.unary = UnaryOf(n, c), link.binary = BinaryOf(n.op);
    const auto operand = [&](ValueId v, Link::From& from, size_t& index, Spread& spread) {
      if (c.Constant(v) != nullptr) {
        from = Link::From::kConstant, index = constants_.size(), spread = SpreadOf(c, v, n.output());
        constants_.push_back(*c.Constant(v));
        if (spread == Spread::kColumns) columns_ = constants_.back().size();
      } else if (const auto it = tile_of_.find(v); it != tile_of_.end()) {
        from = Link::From::kTile, index = it->second;
      } else {
        index = static_cast<size_t>(std::ranges::find(chain.inputs, v) - chain.inputs.begin());
      }
    };
    operand(n.input(0), link.from_a, link.a, link.spread_a);
    if (link.binary) operand(n.input(1), link.from_b, link.b, link.spread_b);
    if (n.op == Op::kLookup) {
      std::ranges::copy_n(reinterpret_cast<const uint8_t*>(c.Constant(n.input(1))->data()), 256, link.table.begin());
    } else if (n.op == Op::kQuantizeLinear || n.op == Op::kDequantizeLinear) {
      const Tensor& zero = *c.Constant(n.input(2));
      link.codes = zero.dtype(), link.scale = ScalarF32(*c.Constant(n.input(1)));
      link.zero_point = quant::IsFp8(zero.dtype()) ? 0 : ScalarInt(zero);
    }
    return link;
  }

  // Element 0 of the tile in an operand; a tile between two links begins with it.
  const std::byte* Read(Link::From from, size_t index, Spread spread, std::span<const std::byte* const> in,
                        const Tile& tile, const std::byte* tiles) const {
    if (from == Link::From::kTile) return tiles + index * kTile * sizeof(float);
    if (from == Link::From::kInput) return in[index] + tile.at * quant::BitsOf(inputs_[index]) / 8;
    const Tensor& t = constants_[index];
    return t.data() + (spread == Spread::kColumns ? tile.column : 0) * quant::BitsOf(t.dtype()) / 8;
  }

  void RunLink(const Link& l, std::span<const std::byte* const> in, const Tile& tile, std::byte* tiles,
               std::byte* out) const {
    const int64_t n = tile.rows * tile.cols;
    const std::byte* a = Read(l.from_a, l.a, l.spread_a, in, tile, tiles);
    std::byte* y = l.to ? tiles + *l.to * kTile * sizeof(float) : out + tile.at * quant::BitsOf(output_) / 8;
    const auto floats = [](const std::byte* p) { return reinterpret_cast<const float*>(p); };
    if (l.op == Op::kQuantizeLinear) {
      kernels::QuantizeLinear(arch_, floats(a), n, l.scale, l.zero_point, l.codes, y);
    } else if (l.op == Op::kDequantizeLinear) {
      kernels::DequantizeLinear(arch_, a, l.codes, n, l.scale, l.zero_point, reinterpret_cast<float*>(y));
    } else if (l.op == Op::kLookup) {
      kernels::Lookup(arch_, reinterpret_cast<const uint8_t*>(a), reinterpret_cast<const uint8_t(&)[256]>(l.table[0]),
                      reinterpret_cast<uint8_t*>(y), n);
    } else if (l.unary) {
      kernels::Unary(arch_, l.unary->op, floats(a), reinterpret_cast<float*>(y), n, l.unary->params);
    } else {
      const auto operand = [&](const std::byte* p, Spread spread) {
        return kernels::Operand{floats(p), spread == Spread::kNone ? tile.cols : 0, spread == Spread::kNumber ? 0 : 1};
      };
      const std::byte* b = Read(l.from_b, l.b, l.spread_b, in, tile, tiles);
      kernels::Binary(arch_, *l.binary, operand(a, l.spread_a), operand(b, l.spread_b), reinterpret_cast<float*>(y),
                      tile.cols, 0, tile.rows, tile.cols);
    }
  }

  kernels::Arch arch_;
  std::string name_;
  std::vector<Link> links_;
  std::vector<Tensor> constants_;
  std::vector<DType> inputs_;
  int64_t columns_ = 0;
  size_t tiles_ = 0;  // at once between links
  DType output_ = DType::kUndefined;
  std::map<ValueId, size_t> tile_of_;  // while the chain is made
  std::map<ValueId, ir::NodeId> last_use_;
};

class ChainKernel : public Kernel {
 public:
  ChainKernel(const Chain& chain, const CompileContext& c) : links_(chain, c), arch_(c.arch) {
    by_rows = true;
    for (size_t i = 0; i < chain.inputs.size(); ++i) {
      const DType dtype = c.graph.value(chain.inputs[i]).type.dtype;
      links_.columns() == 0 ? needs.EndsIn(i, dtype, {}) : needs.EndsIn(i, dtype, {links_.columns()});
    }
  }
  std::string name() const override { return "chain " + links_.name() + " " + std::string(Name(arch_)); }

  Status Execute(StepCall& call) const override {
    const Shape shape = call.T(0).shape();
    std::vector<const std::byte*> in;
    for (const RtValue& v : call.in) in.push_back(v.tensor.data());
    std::byte* out = call.Allocate(0, links_.output(), shape).mutable_data();
    const bool one_row = links_.columns() == 0;  // without constants by column everything is
    const int64_t cols = one_row ? 1 : links_.columns(), rows = ir::ElementCount(shape) / cols;
    const int64_t rows_at_once = std::max<int64_t>(1, kTile / cols), cols_at_once = std::min(cols, kTile);
    const int64_t parts = PartsOf(rows, std::max<int64_t>(1, kElementGrain / cols), call.threads->count());
    call.threads->For(parts, [&](int64_t i) {
      const Part p = PartOf(rows, parts, i, one_row ? 64 : 1);
      const TaskScratch scratch(links_.scratch_bytes());
      for (int64_t r = p.begin; r < p.end; r += rows_at_once) {
        const int64_t n = std::min(rows_at_once, p.end - r);
        for (int64_t column = 0; column < cols; column += cols_at_once) {
          const int64_t width = std::min(cols_at_once, cols - column);
          const Tile tile = one_row ? Tile{r, 1, n, 0} : Tile{r * cols + column, n, width, column};
          links_.Run(in, tile, scratch.data(), out);
        }
      }
    });
    return {};
  }

 private:
  Links links_;
  kernels::Arch arch_;
};

// The nodes one after the other.
class NodesKernel : public Kernel {
 public:
  NodesKernel(const Chain& chain, const CompileContext& c, std::string name)
      : graph_(c.graph), nodes_(chain.nodes), inputs_(chain.inputs), name_(std::move(name)) {
    for (const ir::NodeId id : nodes_) {
      for (const ValueId v : graph_.node(id).inputs) {
        if (v.valid() && c.Constant(v) != nullptr) constants_[v] = c.constants[v.index];
      }
    }
  }
  std::string name() const override { return name_; }
  Status Execute(StepCall& call) const override {
    std::map<ValueId, RtValue> values = constants_;
    for (size_t i = 0; i < inputs_.size(); ++i) values[inputs_[i]] = call.in[i];
    call.interpreted = true;
    for (const ir::NodeId id : nodes_) {
      const Node& n = graph_.node(id);
      std::vector<RtValue> in;
      for (const ValueId v : n.inputs) in.push_back(v.valid() ? values[v] : RtValue{});
      OCTAVO_TRY(call.out, ir::EvalNode(graph_, n, in, call.interrupted));
      values[n.output()] = call.out[0];
    }
    return {};
  }

 private:
  const Graph& graph_;
  std::vector<ir::NodeId> nodes_;
  std::vector<ValueId> inputs_;
  std::map<ValueId, RtValue> constants_;
  std::string name_;
};

}  // namespace

const Node* OnlyMaker(const CompileContext& c, ValueId v, Op op, std::vector<ir::NodeId>& nodes) {
  if (!v.valid() || c.graph.IsGraphOutput(v) || c.graph.value(v).uses.size() != 1) return nullptr;
  const ir::NodeId id = c.graph.value(v).producer;
  if (!id.valid() || c.graph.node(id).op != op) return nullptr;
  nodes.push_back(id);
  return &c.graph.node(id);
}

KernelPtr MakeNodes(const Chain& chain, const CompileContext& c, std::string name) {
  return std::make_unique<NodesKernel>(chain, c, std::move(name));
}

std::vector<Chain> FindChains(const CompileContext& c) {
  const Graph& g = c.graph;
  const std::vector<ir::NodeId> order = g.NodesInOrder();
  std::map<ir::NodeId, size_t> links;  // and where they stand
  for (size_t i = 0; i < order.size(); ++i) {
    if (IsLink(c, g.node(order[i]))) links[order[i]] = i;
  }
  std::vector<Chain> chains = FindRotaryChains(c);
  std::ranges::move(FindExpertProducts(c), std::back_inserter(chains));
  std::ranges::move(FindExpertColumns(c), std::back_inserter(chains));
  std::ranges::move(FindWrittenRows(c), std::back_inserter(chains));
  for (const Chain& chain : chains) {
    for (const ir::NodeId id : chain.nodes) links.erase(id);
  }
  for (const ir::NodeId end : std::views::reverse(order)) {
    if (!links.contains(end) || !MayEnd(c, g.node(end))) continue;
    std::set<ir::NodeId> inside{end};
    std::vector<ir::NodeId> work{end};
    while (!work.empty()) {
      const Node& n = g.node(work.back());
      work.pop_back();
      for (size_t i = 0; i < DataInputs(n) && inside.size() < kMostNodes; ++i) {
        const ValueId v = n.input(i);
        const ir::NodeId maker = g.value(v).producer;
        if (!maker.valid() || !links.contains(maker) || inside.contains(maker) || g.IsGraphOutput(v)) continue;
        const auto& uses = g.value(v).uses;
        if (!std::ranges::all_of(uses, [&](const ir::Use& use) { return inside.contains(use.node); })) continue;
        inside.insert(maker);
        work.push_back(maker);
      }
    }
    if (inside.size() < 2) continue;
    Chain chain;
    chain.nodes.assign(inside.begin(), inside.end());
    std::ranges::sort(chain.nodes, {}, [&](ir::NodeId id) { return links.at(id); });
    for (const ir::NodeId id : chain.nodes) {
      const Node& n = g.node(id);
      for (size_t i = 0; i < DataInputs(n); ++i) {
        const ValueId v = n.input(i);
        const bool from_outside = c.Constant(v) == nullptr && !inside.contains(g.value(v).producer);
        if (from_outside && !std::ranges::contains(chain.inputs, v)) chain.inputs.push_back(v);
      }
      links.erase(id);
    }
    chains.push_back(std::move(chain));
  }
  return chains;
}

std::optional<Chain> ChainOf(const CompileContext& c, ir::NodeId id) {
  const Node& n = c.graph.node(id);
  if (!IsLink(c, n) || !MayEnd(c, n)) return {};
  Chain chain;
  chain.nodes = {id};
  for (size_t i = 0; i < DataInputs(n); ++i) {
    if (c.Constant(n.input(i)) == nullptr && !std::ranges::contains(chain.inputs, n.input(i)))
      chain.inputs.push_back(n.input(i));
  }
  return chain;
}

std::unique_ptr<Tail> MakeTail(const Chain& chain, const CompileContext& c) {
  return std::make_unique<Links>(chain, c);
}

KernelPtr MakeChain(const Chain& chain, const CompileContext& c) {
  if (chain.rotation.columns > 0) return MakeRotaryChain(chain, c);
  if (chain.experts_slot) return MakeExpertProducts(chain, c);
  if (chain.takes_columns) return MakeExpertColumns(chain, c);
  if (chain.writes) return MakeWrittenRows(chain, c);
  return std::make_unique<ChainKernel>(chain, c);
}

}  // namespace octavo::runtime
