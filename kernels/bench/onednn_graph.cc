#include "octavo/kernels/bench/onednn_graph.h"

#include <format>
#include <oneapi/dnnl/dnnl_graph.hpp>
#include <utility>
#include <vector>

#include "octavo/kernels/bench/attention_truth.h"
#include "octavo/kernels/conv/onednn.h"

namespace octavo::kernels::bench {
namespace {

namespace graph = dnnl::graph;
using graph::logical_tensor;
using dt = logical_tensor::data_type;
using Dims = logical_tensor::dims;
using Kind = graph::op::kind;
using Attr = graph::op::attr;

// What the inputs of the graph are called.
enum Input : size_t { kQ, kK, kV, kScale, kMask, kInputs };

// Ops in the order in which they are applied; ids of tensors count up from those of the inputs.
class Chain {
 public:
  // The op is not in the graph before Add, so that attributes can be set.
  graph::op Op(Kind kind, std::vector<logical_tensor> inputs, dt type, const Dims& dims) {
    last_ = logical_tensor(next_tensor_++, type, dims, logical_tensor::layout_type::strided);
    const size_t id = ops_++;
    return {id, kind, std::move(inputs), {last_}, std::format("op{}", id)};
  }
  logical_tensor Add(const graph::op& op) {
    graph_.add_op(op);
    return last_;
  }
  logical_tensor Apply(Kind kind, std::vector<logical_tensor> inputs, dt type, const Dims& dims) {
    return Add(Op(kind, std::move(inputs), type, dims));
  }
  // Between u8 and float, per tensor.
  logical_tensor Convert(Kind kind, const logical_tensor& x, float scale, int64_t zero_point) {
    graph::op op = Op(kind, {x}, kind == Kind::Quantize ? dt::u8 : dt::f32, x.get_dims());
    op.set_attr<std::vector<float>>(Attr::scales, {scale});
    op.set_attr<std::vector<int64_t>>(Attr::zps, {zero_point});
    op.set_attr<std::string>(Attr::qtype, "per_tensor");
    return Add(op);
  }
  size_t ops() const { return ops_; }
  std::vector<graph::partition> Partitions() {
    graph_.finalize();
    return graph_.get_partitions();
  }

 private:
  graph::graph graph_{dnnl::engine::kind::cpu};
  size_t ops_ = 0, next_tensor_ = kInputs;
  logical_tensor last_;
};

// Elements from the first to the last of the batch.
int64_t Extent(Input id, const SdpaShape& s, const SdpaStrides& strides) {
  const int64_t rows = id == kQ ? s.q_len : s.k_len, width = id == kV ? s.v_head_size : s.head_size;
  return (s.heads - 1) * strides.head + (rows - 1) * strides.row + width;
}

// K is read as its transpose.
logical_tensor Operand(Input id, dt type, const SdpaShape& s, const SdpaStrides& strides) {
  const int64_t all = Extent(id, s, strides);
  if (id == kQ) return {id, type, Dims{1, s.heads, s.q_len, s.head_size}, Dims{all, strides.head, strides.row, 1}};
  if (id == kK) return {id, type, Dims{1, s.heads, s.head_size, s.k_len}, Dims{all, strides.head, 1, strides.row}};
  return {id, type, Dims{1, s.heads, s.k_len, s.v_head_size}, Dims{all, strides.head, strides.row, 1}};
}

// The pattern that the backend knows as quantized SDPA; without transposition and reshape at its end it makes three partitions.
void BuildAttention(const SdpaInt8Args& a, bool int8, Chain& chain) {
  const SdpaShape& s = a.shape;
  const dt type = int8 ? dt::u8 : dt::f32;
  const auto operand = [&](Input id, const SdpaStrides& strides, float scale, int32_t zero_point) {
    const logical_tensor x = Operand(id, type, s, strides);
    return int8 ? chain.Convert(Kind::Dequantize, x, scale, zero_point) : x;
  };
  const Dims scores{1, s.heads, s.q_len, s.k_len}, out{1, s.heads, s.q_len, s.v_head_size},
      rows{1, s.q_len, s.heads, s.v_head_size}, flat{1, s.q_len, s.heads * s.v_head_size};
  const logical_tensor q = operand(kQ, a.q_strides, a.q_scale, a.q_zero_point);
  const logical_tensor k = operand(kK, a.k_strides, a.k_scale, a.k_zero_point);
  logical_tensor x = chain.Apply(Kind::MatMul, {q, k}, dt::f32, scores);
  x = chain.Apply(Kind::Multiply, {x, logical_tensor(kScale, dt::f32, Dims{1}, Dims{1})}, dt::f32, scores);
  if (a.mask.data != nullptr) {
    const logical_tensor mask(kMask, dt::f32, Dims{1, 1, 1, s.k_len}, Dims{s.k_len, s.k_len, s.k_len, 1});
    x = chain.Apply(Kind::Add, {x, mask}, dt::f32, scores);
  }
  graph::op softmax = chain.Op(Kind::SoftMax, {x}, dt::f32, scores);
  softmax.set_attr<int64_t>(Attr::axis, 3);
  x = chain.Add(softmax);
  if (int8) {
    x = chain.Convert(Kind::Quantize, x, a.p_scale, a.p_zero_point);
    x = chain.Convert(Kind::Dequantize, x, a.p_scale, a.p_zero_point);
  }
  const logical_tensor v = operand(kV, a.v_strides, a.v_scale, a.v_zero_point);
  x = chain.Apply(Kind::MatMul, {x, v}, dt::f32, out);
  graph::op transpose = chain.Op(Kind::StaticTranspose, {x}, dt::f32, rows);
  transpose.set_attr<std::vector<int64_t>>(Attr::order, {0, 2, 1, 3});
  x = chain.Add(transpose);
  graph::op reshape = chain.Op(Kind::StaticReshape, {x}, dt::f32, flat);
  reshape.set_attr<std::vector<int64_t>>(Attr::shape, flat);
  reshape.set_attr<bool>(Attr::special_zero, false);
  x = chain.Add(reshape);
  if (int8) chain.Convert(Kind::Quantize, x, a.o_scale, a.o_zero_point);
}

std::vector<float> Dequantized(const void* data, int64_t elements, int32_t zero_point, float scale) {
  std::vector<float> y(static_cast<size_t>(elements));
  const auto* x = static_cast<const uint8_t*>(data);
  for (size_t i = 0; i < y.size(); ++i) y[i] = static_cast<float>(x[i] - zero_point) * scale;
  return y;
}

}  // namespace

struct OneDnnGraphAttention::State {
  std::string problem;
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};  // of the same engine object, or execution is refused
  float scale = 1;
  std::vector<float> q, k, v;  // float only
  std::vector<float> o;        // large enough for both
  void* data[kInputs] = {};
  graph::compiled_partition compiled;
  std::vector<graph::tensor> inputs, outputs;

  void Place(const SdpaInt8Args& a, bool int8);
  std::string Compile(const SdpaInt8Args& a, bool int8);
  std::string Check(SdpaInt8Args a, bool int8);
};

void OneDnnGraphAttention::State::Place(const SdpaInt8Args& a, bool int8) {
  const SdpaShape& s = a.shape;
  scale = a.scale;
  o.resize(static_cast<size_t>(s.q_len * s.heads * s.v_head_size));
  if (!int8) {
    q = Dequantized(a.q, Extent(kQ, s, a.q_strides), a.q_zero_point, a.q_scale);
    k = Dequantized(a.k, Extent(kK, s, a.k_strides), a.k_zero_point, a.k_scale);
    v = Dequantized(a.v, Extent(kV, s, a.v_strides), a.v_zero_point, a.v_scale);
  }
  // The inputs of a partition are only read, but its interface takes them as those it writes.
  data[kQ] = int8 ? const_cast<void*>(a.q) : q.data();
  data[kK] = int8 ? const_cast<void*>(a.k) : k.data();
  data[kV] = int8 ? const_cast<void*>(a.v) : v.data();
  data[kScale] = &scale;
  data[kMask] = const_cast<float*>(a.mask.data);
}

std::string OneDnnGraphAttention::State::Compile(const SdpaInt8Args& a, bool int8) {
  Chain chain;
  BuildAttention(a, int8, chain);
  const std::vector<graph::partition> partitions = chain.Partitions();
  if (partitions.size() != 1 || partitions[0].get_ops_num() != chain.ops()) {
    return std::format("oneDNN Graph makes {} partitions of the attention, not one", partitions.size());
  }
  if (!partitions[0].is_supported()) return "oneDNN Graph has no kernel for the attention as one partition";
  const std::vector<logical_tensor> in = partitions[0].get_input_ports(), out = partitions[0].get_output_ports();
  compiled = partitions[0].compile(in, out, engine);
  for (const logical_tensor& t : in) inputs.emplace_back(t, engine, data[t.get_id()]);
  outputs.emplace_back(compiled.query_logical_tensor(out[0].get_id()), engine, o.data());
  return "";
}

std::string OneDnnGraphAttention::State::Check(SdpaInt8Args a, bool int8) {
  {
    const onednn::OneThread alone;
    const onednn::SignalsHeld held;
    compiled.execute(stream, inputs, outputs);
    stream.wait();
  }
  a.o_strides = {0, a.shape.v_head_size, a.shape.heads * a.shape.v_head_size};
  const double error = int8 ? AttentionErrorU8(a, o.data()) : AttentionErrorF32(a, o.data());
  if (error <= (int8 ? kMostErrorU8 : kMostErrorF32)) return "";
  return std::format("oneDNN Graph's result is {:.3g} {}away from attention in double", error, int8 ? "codes " : "");
}

OneDnnGraphAttention::OneDnnGraphAttention(const SdpaInt8Args& args, bool int8) : state_(std::make_unique<State>()) {
  const onednn::OneThread alone;
  State& st = *state_;
  st.Place(args, int8);
  try {
    st.problem = st.Compile(args, int8);
    if (st.problem.empty()) st.problem = st.Check(args, int8);
  } catch (const dnnl::error& e) {
    st.problem = std::format("oneDNN Graph: {} (status {})", e.what(), static_cast<int>(e.status));
  }
}

OneDnnGraphAttention::~OneDnnGraphAttention() = default;

const std::string& OneDnnGraphAttention::problem() const { return state_->problem; }

void OneDnnGraphAttention::Run() {
  if (!state_->problem.empty()) return;
  const onednn::OneThread alone;
  const onednn::SignalsHeld held;
  state_->compiled.execute(state_->stream, state_->inputs, state_->outputs);
  state_->stream.wait();
}

}  // namespace octavo::kernels::bench
