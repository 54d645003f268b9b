// Before: DequantizeLinear(w, scale, z), w u8 or s8                                     After: DequantizeLinear(w - z as s8, scale, 0)
// Before: MatMul(DequantizeLinear(x, ..), DequantizeLinear(w, scale, z))                After: MatMul(DequantizeLinear(Gather(x, columns), ..), DequantizeLinear(c, scale, 0))
//         where w - z does not fit into s8                                                      columns: all of x in order, then some again; c: a row for each
// Exact: a column of x that is there twice meets two rows of c whose sum is the row of w - z, and both products mean the sum of integers. Only columns
// with a weight beyond s8 are written again: of weights whose range is a little lopsided a few.
#include "octavo/passes/vendor/centered.h"

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <span>

#include "octavo/quant/numeric/code8.h"

namespace octavo::passes::vendor {

using ir::DType;
using ir::Tensor;

namespace {

constexpr int64_t kMostRows = 65536;  // so that sums of products of codes fit into 32 bits

// w - z of a DequantizeLinear of a constant matrix.
struct Centered {
  int64_t rows = 0, columns = 0;
  std::span<const uint8_t> codes;  // of w
  bool is_signed = false;
  std::vector<int64_t> zeros;  // one, or one for each column or row
  bool by_column = true, in_blocks = false;
  bool scales_rows = false;  // a scale for each row of w, which is a column of x: no product of integers reads that

  int At(int64_t row, int64_t column) const {
    const uint8_t code = codes[static_cast<size_t>(row * columns + column)];
    const size_t i = zeros.size() == 1 ? 0 : static_cast<size_t>(by_column ? column : row);
    return (is_signed ? static_cast<int8_t>(code) : code) - static_cast<int>(zeros[i]);
  }
  bool IsCentered() const {
    return is_signed && std::ranges::all_of(zeros, [](int64_t z) { return z == 0; });
  }
};

std::optional<Centered> CenteredOf(const Graph& g, const Node* n) {
  if (n == nullptr || n->op != Op::kDequantizeLinear) return {};
  const Tensor *codes = g.ConstantOf(n->input(0)), *zero = n->input(2) ? g.ConstantOf(n->input(2)) : nullptr;
  if (codes == nullptr || codes->rank() != 2 || !quant::IsInt8(codes->dtype())) return {};
  if (n->input(2) && (zero == nullptr || zero->dtype() != codes->dtype())) return {};
  Centered c;
  c.rows = codes->shape()[0], c.columns = codes->shape()[1];
  c.codes = {reinterpret_cast<const uint8_t*>(codes->data()), static_cast<size_t>(codes->size())};
  c.is_signed = codes->dtype() == DType::kS8;
  c.zeros = zero != nullptr ? zero->ToInts() : std::vector<int64_t>{0};
  if (std::ranges::adjacent_find(c.zeros, std::not_equal_to()) == c.zeros.end())
    c.zeros.resize(1);  // the same everywhere
  c.in_blocks = n->attrs.Int("block_size", 0) != 0;
  const int64_t axis = n->attrs.Int("axis", 1);
  c.by_column = axis == 1 || axis == -1;
  const auto& scale = g.value(n->input(1)).type.shape;
  c.scales_rows =
      !c.by_column && (!scale || std::ranges::any_of(*scale, [](const ir::Dim& d) { return !ProvablyEqual(d, 1); }));
  const auto count = static_cast<int64_t>(c.zeros.size());
  return count == 1 || (!c.in_blocks && count == (c.by_column ? c.columns : c.rows)) ? std::optional(c) : std::nullopt;
}

// How many codes of s8 add up to it.
int CodesFor(int v) { return std::max(1, v > 0 ? (v + 126) / 127 : (127 - v) / 128); }

// The most codes that a weight of the row takes.
int CodesForRow(const Centered& c, int64_t row) {
  int most = 1;
  for (int64_t j = 0; j < c.columns; ++j) most = std::max(most, CodesFor(c.At(row, j)));
  return most;
}

bool Fits(const Centered& c) {
  for (int64_t row = 0; row < c.rows; ++row) {
    if (CodesForRow(c, row) > 1) return false;
  }
  return true;
}

// Row i of the result is row index[i] of c, less what rows of it before have got.
Tensor CodesOf(const Centered& c, const std::vector<int64_t>& index) {
  std::vector<int> before(static_cast<size_t>(c.rows));
  std::vector<uint8_t> codes;
  codes.reserve(index.size() * static_cast<size_t>(c.columns));
  for (const int64_t row : index) {
    for (int64_t j = 0; j < c.columns; ++j) {
      int left = c.At(row, j);
      for (int i = 0; i < before[static_cast<size_t>(row)]; ++i) left -= std::clamp(left, -128, 127);
      codes.push_back(static_cast<uint8_t>(std::clamp(left, -128, 127)));
    }
    ++before[static_cast<size_t>(row)];
  }
  return Tensor::Of<uint8_t>(DType::kS8, {static_cast<int64_t>(index.size()), c.columns}, codes);
}

std::vector<int64_t> AllRows(int64_t rows) {
  std::vector<int64_t> all(static_cast<size_t>(rows));
  for (int64_t i = 0; i < rows; ++i) all[static_cast<size_t>(i)] = i;
  return all;
}

// A new DequantizeLinear of the weight, in the place of `n`.
ValueId Dequantized(Rewriter& rw, const Node& n, const Centered& c, const std::vector<int64_t>& index) {
  const Tensor* zero = n.input(2) ? rw.graph().ConstantOf(n.input(2)) : nullptr;
  const ir::Shape shape = zero != nullptr ? zero->shape() : ir::Shape{};
  const ValueId codes = rw.Constant(CodesOf(c, index)), middle = rw.Constant(Tensor::Zeros(DType::kS8, shape));
  return rw.Create(Op::kDequantizeLinear, {codes, n.input(1), middle}, n.attrs);
}

void CenterInPlace(Rewriter& rw, NodeId id) {
  const Node n = rw.graph().node(id);
  const auto c = CenteredOf(rw.graph(), &n);
  if (!c || c->IsCentered() || !Fits(*c)) return;
  rw.At(id, {id});
  rw.Replace(n.output(), Dequantized(rw, n, *c, AllRows(c->rows)));
  rw.EraseDead(id);
}

// The DequantizeLinear of codes of 8 bits with one scale that a product reads as its x.
const Node* CodedInput(const Graph& g, const Node& product) {
  const Node* x = g.Producer(product.input(0));
  if (x == nullptr || x->op != Op::kDequantizeLinear || !quant::IsInt8(g.value(x->input(0)).type.dtype)) return nullptr;
  const auto& scale = g.value(x->input(1)).type.shape;
  return scale && scale->empty() ? x : nullptr;
}

// The products that read one x: they stay products of one activation.
void WriteColumnsAgain(Rewriter& rw, ValueId x, const std::vector<NodeId>& products) {
  const Graph& g = rw.graph();
  std::vector<Centered> weights;
  for (NodeId id : products) weights.push_back(*CenteredOf(g, g.Producer(g.node(id).input(1))));
  const int64_t rows = weights[0].rows;
  const auto as_long = [rows](const Centered& c) { return c.rows == rows; };
  if (std::ranges::all_of(weights, Fits) || !std::ranges::all_of(weights, as_long)) return;
  std::vector<int64_t> index = AllRows(rows);
  for (int64_t row = 0; row < rows; ++row) {
    int most = 1;
    for (const Centered& c : weights) most = std::max(most, CodesForRow(c, row));
    index.insert(index.end(), static_cast<size_t>(most - 1), row);
  }
  if (static_cast<int64_t>(index.size()) > kMostRows) return;
  rw.At(products[0], products);
  const ValueId columns = rw.Create(
      Op::kGather, {x, rw.Constant(Tensor::S64({static_cast<int64_t>(index.size())}, index))}, {{"axis", int64_t{-1}}});
  for (size_t i = 0; i < products.size(); ++i) {
    const Node n = g.node(products[i]);
    const Node of_x = *g.Producer(n.input(0)), of_w = *g.Producer(n.input(1));
    rw.At(products[i], {products[i]});
    std::vector<ValueId> in = of_x.inputs;
    in[0] = columns;
    const ValueId a = rw.Create(Op::kDequantizeLinear, std::move(in), of_x.attrs);
    rw.Replace(n.output(), rw.Create(Op::kMatMul, {a, Dequantized(rw, of_w, weights[i], index)}));
    rw.EraseDead(products[i]);
  }
}

}  // namespace

void CenterWeights(Rewriter& rw) {
  const Graph& g = rw.graph();
  for (NodeId id : g.NodesInOrder()) {
    if (g.IsAlive(id)) CenterInPlace(rw, id);
  }
  std::map<ValueId, std::vector<NodeId>> readers;  // of codes
  for (NodeId id : g.NodesInOrder()) {
    const Node& n = g.node(id);
    const Node* x = n.op == Op::kMatMul ? CodedInput(g, n) : nullptr;
    const auto w = x != nullptr ? CenteredOf(g, g.Producer(n.input(1))) : std::nullopt;
    if (w && !w->in_blocks && !w->scales_rows) readers[x->input(0)].push_back(id);
  }
  for (const auto& [x, products] : readers) WriteColumnsAgain(rw, x, products);
}

}  // namespace octavo::passes::vendor
