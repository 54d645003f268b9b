// The host stays as it was, and what it is changes no result: float mode, OpenMP's number of threads, fork.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>
#include <xmmintrin.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "octavo/runtime/host_outputs.h"
#include "octavo/runtime/model.h"
#include "octavo/runtime/threads.h"

namespace octavo::runtime {
namespace {

using ir::Tensor;

constexpr unsigned kRounding[] = {0x0000, 0x2000, 0x4000, 0x6000};  // nearest, down, up, to zero
constexpr unsigned kFlush[] = {0x0000, 0x8000, 0x0040, 0x8040};     // none, flush to zero, subnormals are zero, both
constexpr unsigned kMasked = 0x1f80, kUnmasked = 0x1900;            // invalid operations and divisions by zero trap

// x W, then an attention, tanh, and a quantization of it: oneDNN's kernels, ours, and chains.
ir::Graph Layer() {
  ir::Graph g;
  g.info.opsets[""] = 18;
  const auto constant = [&](float value) {
    Tensor t = Tensor::Zeros(ir::DType::kF32, {});
    t.mutable_as<float>()[0] = value;
    return g.AddConstant(t);
  };
  Tensor w = Tensor::Zeros(ir::DType::kF32, {64, 64});
  for (int64_t i = 0; i < 64 * 64; ++i)
    w.mutable_as<float>()[static_cast<size_t>(i)] = static_cast<float>(i * 37 % 101 - 50) / 300;
  const ir::ValueId x = g.AddInput("x", {ir::DType::kF32, ir::SymShape{1, ir::Dim::Symbol("s"), 64}});
  const auto op = [&](ir::Op kind, std::vector<ir::ValueId> in, ir::Attrs attrs = {}) {
    return g.node(g.AddNode(kind, std::move(in), 1, std::move(attrs))).output();
  };
  const ir::ValueId q = op(ir::Op::kMatMul, {x, g.AddConstant(w)});
  const ir::ValueId o = op(ir::Op::kSdpa, {q, x, q},
                           {{"num_heads", int64_t{4}},
                            {"kv_num_heads", int64_t{4}},
                            {"head_dim", int64_t{16}},
                            {"v_head_dim", int64_t{16}},
                            {"q_rank", int64_t{3}},
                            {"k_rank", int64_t{3}},
                            {"v_rank", int64_t{3}},
                            {"out_rank", int64_t{3}},
                            {"scale", 0.25f}});
  // Products of 1e-30 and 1e-10 are subnormal; the factor afterwards shows whether they still are something.
  const ir::ValueId tiny = op(ir::Op::kMul, {op(ir::Op::kMul, {o, constant(1e-30f)}), constant(1e-10f)});
  const ir::ValueId back = op(ir::Op::kMul, {op(ir::Op::kMul, {tiny, constant(1e30f)}), constant(1e10f)});
  g.AddOutput("y", op(ir::Op::kTanh, {op(ir::Op::kAdd, {back, op(ir::Op::kSoftmax, {o}, {{"axis", int64_t{-1}}})})}));
  return g;
}

ir::TensorMap Input(int64_t rows) {
  Tensor x = Tensor::Zeros(ir::DType::kF32, {1, rows, 64});
  for (int64_t i = 0; i < rows * 64; ++i)
    x.mutable_as<float>()[static_cast<size_t>(i)] = static_cast<float>(i * 53 % 97 - 48) / 31;
  return {{"x", x}};
}

Tensor Output(const Model& model, int64_t rows) {
  auto out = model.Run(Input(rows));
  EXPECT_TRUE(out.has_value()) << out.error().message;
  return out ? (*out)[0] : Tensor();
}

TEST(Host, ItsFloatModeChangesNoBitAndComesBack) {
  const unsigned before = _mm_getcsr();
  for (const int threads : {1, 2}) {
    const auto usual = Model::Compile(Layer(), {.threads = threads});
    ASSERT_TRUE(usual.has_value()) << usual.error().message;
    const Tensor want = Output(*usual, 300);
    for (const unsigned rounding : kRounding) {
      for (const unsigned flush : kFlush) {
        for (const unsigned traps : {kMasked, kUnmasked}) {
          const unsigned mode = rounding | flush | traps | 0x10;  // a flag of an exception as well
          const Tensor calm = Input(300).at("x");
          ir::Graph graph = Layer();
          _mm_setcsr(mode);
          auto compiled = Model::Compile(std::move(graph), {.threads = threads});
          const unsigned after_compile = _mm_getcsr();
          auto fresh = compiled ? compiled->Run({{"x", calm}}) : ir::Fail("not compiled");
          auto warm = usual->Run({{"x", calm}});
          const unsigned after = _mm_getcsr();
          _mm_setcsr(before);
          EXPECT_EQ(after_compile, mode);
          EXPECT_EQ(after, mode);
          ASSERT_TRUE(fresh.has_value() && warm.has_value());
          EXPECT_TRUE((*fresh)[0].SameBits(want)) << std::hex << mode;
          EXPECT_TRUE((*warm)[0].SameBits(want)) << std::hex << mode;
        }
      }
    }
  }
}

// Workers that began under a mode keep it as their own; tasks do not see it.
TEST(Host, TasksHaveTheUsualFloatMode) {
  const unsigned before = _mm_getcsr(), odd = kMasked | 0xa040;
  _mm_setcsr(odd);
  std::vector<unsigned> seen(64), on_host(64);
  {
    const Threads threads(3);
    threads.For(64, [&](int64_t i) {
      std::this_thread::sleep_for(std::chrono::microseconds(200));
      seen[static_cast<size_t>(i)] = _mm_getcsr();
    });
    const Threads hosted(2, [&](int64_t n, const std::function<void(int64_t)>& task) {
      for (int64_t i = 0; i < n; ++i) task(i);
    });
    hosted.For(64, [&](int64_t i) { on_host[static_cast<size_t>(i)] = _mm_getcsr(); });
  }
  const unsigned after = _mm_getcsr();
  _mm_setcsr(before);
  EXPECT_EQ(after, odd);
  for (const unsigned mode : seen) EXPECT_EQ(mode, kMasked);
  for (const unsigned mode : on_host) EXPECT_EQ(mode, kMasked);
}

// What `body` returns in a child, and 3 where the child does not end by itself.
int InChild(const std::function<bool()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    _exit(body() ? 0 : 1);
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 3;
}

TEST(Host, AForkAfterASessionComputes) {
  auto model = Model::Compile(Layer(), {.threads = 2});
  ASSERT_TRUE(model.has_value());
  const Tensor want = Output(*model, 300);
  for (int round = 0; round < 20; ++round) {
    Output(*model, 300);  // workers are awake, or just about to sleep
    EXPECT_EQ(InChild([&] { return Output(*model, 300).SameBits(want); }), 0) << "made before the fork";
    EXPECT_EQ(InChild([&] {
                const auto own = Model::Compile(Layer(), {.threads = 2});
                return own && own->threads() == 1 && Output(*own, 300).SameBits(want) &&
                       Output(*model, 300).SameBits(want);
              }),
              0)
        << "made in the child";
    EXPECT_EQ(InChild([&] {
                {
                  const Model gone = std::move(*model);
                }
                return true;
              }),
              0)
        << "destroyed in the child";
    EXPECT_EQ(InChild([&] { return InChild([&] { return Output(*model, 300).SameBits(want); }) == 0; }), 0)
        << "used in the child's child";
  }
  EXPECT_TRUE(Output(*model, 300).SameBits(want));
  EXPECT_EQ(model->threads(), 2);
}

class Lent : public ir::Buffer {
 public:
  Lent(void* data, size_t size) { data_ = static_cast<std::byte*>(data), size_ = size; }
};

// Of two outputs, one of which the other is made of; runs without a plan of memory and with one.
TEST(Host, LendsMemoryToOutputs) {
  ir::Graph g = Layer();
  for (const ir::NodeId id : g.NodesInOrder()) {
    if (g.node(id).op == ir::Op::kMatMul) g.AddOutput("product", g.node(id).output());
  }
  const auto model = Model::Compile(std::move(g), {.threads = 1});
  ASSERT_TRUE(model.has_value()) << model.error().message;
  const auto want = model->Run(Input(5));
  ASSERT_TRUE(want.has_value());
  alignas(64) float room[2][5 * 64];
  for (int run = 0; run < 2; ++run) {
    for (auto& one : room) std::ranges::fill(one, -7.0f);
    std::vector<size_t> asked;
    const RunIntoHost into([&](size_t output, ir::DType dtype, const ir::Shape& shape) {
      asked.push_back(output);
      return Tensor::View(dtype, shape, std::make_shared<Lent>(room[output], sizeof(room[output])), 0);
    });
    const auto got = model->Run(Input(5));
    ASSERT_TRUE(got.has_value());
    EXPECT_EQ(asked, (std::vector<size_t>{1, 0}));
    for (size_t o = 0; o < 2; ++o) {
      EXPECT_EQ(static_cast<const void*>((*got)[o].data()), room[o]);
      EXPECT_EQ((*got)[o].ToFloats(), (*want)[o].ToFloats());
    }
    const auto other = model->Run(Input(5));  // the loan is of one run
    ASSERT_TRUE(other.has_value());
    EXPECT_NE(static_cast<const void*>((*other)[0].data()), room[0]);
  }
}

}  // namespace
}  // namespace octavo::runtime
