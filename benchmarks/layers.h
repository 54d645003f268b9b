// A transformer encoder of any depth, written as TorchScript writes it: norms and GELU in pieces, head splits with shape chains
// anew for Q, K and V, weights [K,N], biases first. About 130 nodes a layer, constants included.
#ifndef OCTAVO_BENCHMARKS_LAYERS_H_
#define OCTAVO_BENCHMARKS_LAYERS_H_

#include <random>
#include <string>
#include <utility>
#include <vector>

#include "octavo/ir/graph.h"

namespace octavo::passes {

class LayerStack {
 public:
  explicit LayerStack(int layers) {
    g_.info.opsets[""] = 14;
    x_ = g_.AddInput("x",
                     {ir::DType::kF32, ir::SymShape{ir::Dim::Symbol("batch"), ir::Dim::Symbol("sequence"), kWidth}});
    mask_ = g_.AddInput("mask",
                        {ir::DType::kF32, ir::SymShape{ir::Dim::Symbol("batch"), 1, 1, ir::Dim::Symbol("sequence")}});
    for (int i = 0; i < layers; ++i) Layer("layer" + std::to_string(i));
    g_.AddOutput("y", x_);
  }
  ir::Graph Take() { return std::move(g_); }

 private:
  using V = ir::ValueId;
  static constexpr int64_t kWidth = 16, kHeads = 2;

  V Make(ir::Op op, std::vector<V> in, ir::Attrs a = {}) {
    const ir::NodeId id = g_.AddNode(op, std::move(in), 1, std::move(a), scope_ + "/" + std::to_string(++count_));
    g_.SetOrigin(id, {g_.node(id).name});
    return g_.node(id).output();
  }
  V Scalar(float v) { return g_.AddConstant(ir::Tensor::ScalarF32(v)); }
  V Ints(std::vector<int64_t> v) {
    const auto n = static_cast<int64_t>(v.size());
    return g_.AddConstant(ir::Tensor::S64({n}, std::move(v)));
  }
  V Weight(ir::Shape shape) {
    ir::Tensor t = ir::Tensor::Empty(ir::DType::kF32, std::move(shape));
    std::normal_distribution<float> normal(0, 0.2f);
    for (float& f : t.mutable_as<float>()) f = normal(rng_);
    return g_.AddConstant(std::move(t));
  }
  V Linear(V in, int64_t from, int64_t to) {
    const V y = Make(ir::Op::kMatMul, {in, Weight({from, to})});
    return Make(ir::Op::kAdd, {Weight({to}), y});
  }
  V DimOf(V v, int64_t axis) {
    const V dim = Make(ir::Op::kGather, {Make(ir::Op::kShape, {v}), g_.AddConstant(ir::Tensor::S64({}, {axis}))},
                       {{"axis", int64_t{0}}});
    return Make(ir::Op::kUnsqueeze, {dim, Ints({0})});
  }
  V Viewed(V v, V like, std::vector<int64_t> tail) {
    std::vector<V> parts{DimOf(like, 0), DimOf(like, 1)};
    for (int64_t n : tail) parts.push_back(Ints({n}));
    return Make(ir::Op::kReshape, {v, Make(ir::Op::kConcat, std::move(parts), {{"axis", int64_t{0}}})});
  }
  V Transposed(V v, std::vector<int64_t> perm) { return Make(ir::Op::kTranspose, {v}, {{"perm", std::move(perm)}}); }
  V Norm(V x) {
    const ir::Attrs keep{{"keepdims", int64_t{1}}};
    const V d = Make(ir::Op::kSub, {x, Make(ir::Op::kReduceMean, {x, Ints({-1})}, keep)});
    const V var = Make(ir::Op::kReduceMean, {Make(ir::Op::kPow, {d, Scalar(2)}), Ints({-1})}, keep);
    const V n = Make(ir::Op::kDiv, {d, Make(ir::Op::kSqrt, {Make(ir::Op::kAdd, {var, Scalar(1e-5f)})})});
    return Make(ir::Op::kAdd, {Make(ir::Op::kMul, {n, Weight({kWidth})}), Weight({kWidth})});
  }
  void Layer(std::string scope) {
    scope_ = std::move(scope);
    const V h = Norm(x_);
    const V q = Linear(h, kWidth, kWidth), k = Linear(h, kWidth, kWidth), v = Linear(h, kWidth, kWidth);
    const V qh = Transposed(Viewed(q, q, {kHeads, -1}), {0, 2, 1, 3});
    const V kh = Transposed(Viewed(k, k, {kHeads, -1}), {0, 2, 3, 1});
    const V vh = Transposed(Viewed(v, v, {kHeads, -1}), {0, 2, 1, 3});
    const V s = Make(ir::Op::kAdd, {Make(ir::Op::kDiv, {Make(ir::Op::kMatMul, {qh, kh}), Scalar(2.8f)}), mask_});
    const V p = Make(ir::Op::kSoftmax, {s}, {{"axis", int64_t{-1}}});
    const V o = Transposed(Make(ir::Op::kMatMul, {p, vh}), {0, 2, 1, 3});
    x_ = Make(ir::Op::kAdd, {x_, Linear(Viewed(o, o, {kWidth}), kWidth, kWidth)});
    const V f = Linear(Norm(x_), kWidth, 2 * kWidth);
    const V erf = Make(ir::Op::kErf, {Make(ir::Op::kDiv, {f, Scalar(1.41421356f)})});
    const V gelu = Make(ir::Op::kMul, {Make(ir::Op::kMul, {f, Make(ir::Op::kAdd, {erf, Scalar(1)})}), Scalar(0.5f)});
    x_ = Make(ir::Op::kAdd, {x_, Linear(gelu, 2 * kWidth, kWidth)});
  }

  ir::Graph g_;
  V x_, mask_;
  std::string scope_;
  int count_ = 0;
  std::mt19937 rng_{1};
};

}  // namespace octavo::passes

#endif  // OCTAVO_BENCHMARKS_LAYERS_H_
