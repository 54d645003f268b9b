// The law (runtime/needs.h): a kernel that is given operands of another dtype, rank or size either refuses them or does what the op
// means, and reads and writes nothing beside them. Operands and results end at pages that nobody may touch.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <map>
#include <optional>

#include "families.h"
#include "octavo/ir/infer.h"
#include "octavo/runtime/chain.h"
#include "octavo/runtime/compile.h"
#include "octavo/runtime/model.h"

namespace octavo::runtime {
namespace {

using testing::Families;
using testing::Family;
using testing::Knowledge;
using testing::Maker;

class Guarded : public ir::Buffer {
 public:
  explicit Guarded(size_t bytes) {
    const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    size_ = bytes, all_ = (bytes + page - 1) / page * page + page;
    memory_ = static_cast<std::byte*>(mmap(nullptr, all_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    EXPECT_NE(memory_, MAP_FAILED);
    EXPECT_EQ(mprotect(memory_ + all_ - page, page, PROT_NONE), 0);
    data_ = memory_ + all_ - page - bytes;
  }
  ~Guarded() override { munmap(memory_, all_); }
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;

 private:
  std::byte* memory_;
  size_t all_;
};

Tensor Guard(DType dtype, Shape shape) {
  if (dtype == DType::kString) return Tensor::Empty(dtype, std::move(shape));
  const size_t bytes = quant::BytesOf(dtype, static_cast<size_t>(ir::ElementCount(shape)));
  return Tensor::View(dtype, std::move(shape), std::make_shared<Guarded>(bytes), 0);
}

// The bytes of t over and over.
Tensor Like(const Tensor& t, DType dtype, Shape shape) {
  Tensor made = Guard(dtype, std::move(shape));
  if (dtype == DType::kString || t.byte_size() == 0) return made;
  for (size_t i = 0; i < made.byte_size(); ++i) made.mutable_data()[i] = t.data()[i % t.byte_size()];
  return made;
}

class Call : public StepCall {
 public:
  Tensor& Allocate(size_t i, DType dtype, Shape shape) override {
    return out[i].tensor = Guard(dtype, std::move(shape));
  }
  std::byte* Scratch(size_t bytes) override {
    scratch_ = Guard(DType::kU8, {static_cast<int64_t>((bytes + 63) / 64 * 64)});
    return scratch_.mutable_data();
  }

 private:
  Tensor scratch_;
};

// A kernel, and the nodes whose meaning it has.
struct Site {
  KernelPtr kernel;
  std::vector<ir::NodeId> nodes;
  std::vector<ValueId> in, out;
};

using Values = std::map<uint32_t, RtValue>;

class Law {
 public:
  explicit Law(Graph graph) : graph_(std::move(graph)), threads_(2) {
    const auto inferred = ir::Inference::Run(graph_);
    EXPECT_TRUE(inferred) << inferred.error().message;
    constants_.resize(graph_.value_capacity());
    for (const ir::NodeId id : graph_.NodesInOrder()) {
      const Node& n = graph_.node(id);
      if (const Tensor* t = graph_.ConstantOf(n.output())) constants_[n.output().index].tensor = *t;
    }
  }

  std::vector<Site> Sites() const {
    const CompileContext context{graph_, constants_, kernels::BestArch()};
    std::vector<Site> sites;
    const std::vector<Chain> chains = FindChains(context);
    ChainsByNode chain_of;
    for (const Chain& chain : chains) {
      for (const ir::NodeId id : chain.nodes) chain_of[id] = &chain;
    }
    std::set<ir::NodeId> served;
    for (const ir::NodeId id : graph_.NodesInOrder()) {
      if (graph_.node(id).op == Op::kConstant || chain_of.contains(id) || served.contains(id)) continue;
      Made made = MakeKernel(id, context, chain_of);
      served.insert(made.nodes.begin(), made.nodes.end());
      std::ranges::sort(made.nodes, [&](ir::NodeId a, ir::NodeId b) { return graph_.Before(a, b); });
      if (made.kernel != nullptr) sites.push_back({std::move(made.kernel), made.nodes, made.inputs, made.outputs});
    }
    for (const Chain& chain : chains) {
      if (served.contains(chain.nodes[0])) continue;
      sites.push_back({MakeChain(chain, context), chain.nodes, chain.inputs, graph_.node(chain.nodes.back()).outputs});
    }
    for (Site& s : sites) Expect(*s.kernel, context, s.in, s.out);
    return sites;
  }

  // What flows where on these inputs.
  Values Run(const ir::TensorMap& inputs) const {
    Values values;
    for (uint32_t v = 0; v < constants_.size(); ++v) {
      if (constants_[v].tensor.defined()) values[v] = constants_[v];
    }
    for (const ValueId v : graph_.inputs()) values[v.index].tensor = inputs.at(graph_.value(v).name);
    for (const ir::NodeId id : graph_.NodesInOrder()) {
      const std::string problem = Mean(id, values);
      EXPECT_EQ(problem, "");
    }
    return values;
  }

  // The site's outputs by the interpreter; an error: empty.
  std::vector<RtValue> Meaning(const Site& s, std::span<const RtValue> in, Values values) const {
    for (size_t i = 0; i < in.size(); ++i) {
      if (s.in[i].valid()) values[s.in[i].index] = in[i];
    }
    for (const ir::NodeId id : s.nodes) {
      if (!Mean(id, values).empty()) return {};
    }
    std::vector<RtValue> out;
    for (const ValueId v : s.out) out.push_back(v.valid() ? values[v.index] : RtValue{});
    return out;
  }

  ir::Result<std::vector<RtValue>> Kernel(const Site& s, std::vector<RtValue> in) const {
    Call call;
    call.in = in, call.out.resize(s.out.size()), call.threads = &threads_;
    OCTAVO_TRY_STATUS(s.kernel->Run(call));
    return std::move(call.out);
  }

  bool IsConstant(ValueId v) const { return constants_[v.index].tensor.defined(); }
  const Graph& graph() const { return graph_; }

 private:
  std::string Mean(ir::NodeId id, Values& values) const {
    const Node& n = graph_.node(id);
    if (n.op == Op::kConstant) return {};
    std::vector<RtValue> in;
    for (const ValueId v : n.inputs) in.push_back(v.valid() ? values[v.index] : RtValue{});
    auto out = ir::EvalNode(graph_, n, in);
    if (!out) return out.error().message;
    for (size_t i = 0; i < n.outputs.size(); ++i) {
      if (n.outputs[i].valid()) values[n.outputs[i].index] = (*out)[i];
    }
    return {};
  }

  Graph graph_;
  std::vector<RtValue> constants_;
  Threads threads_;
};

// Empty: the same but for roundings.
std::string Difference(std::span<const RtValue> got, std::span<const RtValue> want) {
  for (size_t i = 0; i < want.size(); ++i) {
    const Tensor &a = got[i].tensor, &b = want[i].tensor;
    if (!a.defined() && !b.defined()) continue;
    if (a.dtype() != b.dtype() || a.shape() != b.shape()) {
      return std::string(quant::Name(a.dtype())) + ir::ToString(a.shape()) + " for " +
             std::string(quant::Name(b.dtype())) + ir::ToString(b.shape());
    }
    if (a.dtype() == DType::kString || a.SameBits(b)) continue;
    double error = 0, signal = 0;
    for (int64_t e = 0; e < b.size(); ++e) {
      const double w = b.GetDouble(e), d = a.GetDouble(e) - w;
      if (std::isnan(d)) continue;  // bytes of another type make what they make
      error += d * d, signal += w * w;
    }
    if (error > 1e-3 * signal + 1e-6) return "other values";  // 30 dB: garbage has none
  }
  return {};
}

std::vector<Tensor> Mutants(const Tensor& t) {
  std::vector<Tensor> mutants = {Tensor()};
  using enum DType;
  for (const DType d :
       {kF32, kF16, kBF16, kF64, kS8, kU8, kS16, kS32, kS64, kBool, kE4M3FN, kE5M2, kU4, kS4, kString}) {
    if (d != t.dtype()) mutants.push_back(Like(t, d, t.shape()));
  }
  std::vector<Shape> shapes = {{}, {0}, {1}};
  for (const int64_t first : {1, 2}) {
    shapes.push_back(t.shape());
    shapes.back().insert(shapes.back().begin(), first);
    shapes.push_back(t.shape());
    shapes.back().push_back(first);
  }
  for (size_t d = 0; d < t.shape().size(); ++d) {
    shapes.push_back(t.shape());
    shapes.back().erase(shapes.back().begin() + static_cast<int64_t>(d));
    for (const int64_t size : {int64_t{0}, int64_t{1}, t.shape()[d] - 1, t.shape()[d] + 1, 2 * t.shape()[d]}) {
      if (size < 0 || size == t.shape()[d]) continue;
      shapes.push_back(t.shape());
      shapes.back()[d] = size;
    }
  }
  for (Shape& s : shapes) {
    if (s != t.shape()) mutants.push_back(Like(t, t.dtype(), std::move(s)));
  }
  return mutants;
}

class EveryFamily : public ::testing::TestWithParam<size_t> {
 protected:
  const Family& family() const { return Families()[GetParam()]; }
};

TEST_P(EveryFamily, ServesWhatItIsForAndNothingElse) {
  int refused = 0, served = 0, made = 0;
  for (const Knowledge knowledge : {Knowledge::kDims, Knowledge::kRank, Knowledge::kDtype}) {
    SCOPED_TRACE(static_cast<int>(knowledge));
    Maker maker(1, knowledge);
    maker.family = family().name;
    family().add(maker);
    std::mt19937 gen(2);
    const ir::TensorMap inputs = maker.Inputs({.batch = 2, .rows = 5, .keys = 9}, gen);
    const Law law(std::move(maker.graph));
    const Values values = law.Run(inputs);
    bool found = false;
    for (const Site& s : law.Sites()) {
      SCOPED_TRACE(s.kernel->name());
      found |= s.kernel->name().starts_with(family().kernel);
      std::vector<RtValue> in;
      for (const ValueId v : s.in) {
        in.push_back(v.valid() ? values.at(v.index) : RtValue{});
        Tensor& t = in.back().tensor;
        if (v.valid() && !law.IsConstant(v)) t = Like(t, t.dtype(), t.shape());
      }
      const auto right = law.Kernel(s, in);
      ASSERT_TRUE(right) << right.error().message;
      ASSERT_EQ(Difference(*right, law.Meaning(s, in, values)), "");
      ++made;
      for (size_t i = 0; i < in.size(); ++i) {
        if (!s.in[i].valid() || law.IsConstant(s.in[i])) continue;
        for (const Tensor& mutant : Mutants(in[i].tensor)) {
          std::vector<RtValue> other = in;
          other[i] = {mutant, nullptr};
          const std::string what = "operand " + std::to_string(i) + " is " + std::string(quant::Name(mutant.dtype())) +
                                   ir::ToString(mutant.shape());
          const auto got = law.Kernel(s, other);
          if (!got) {
            ++refused;
            EXPECT_NE(got.error().message, "");
            continue;
          }
          ++served;
          const std::vector<RtValue> want = law.Meaning(s, other, values);
          ASSERT_FALSE(want.empty()) << what << " has no meaning";
          EXPECT_EQ(Difference(*got, want), "") << what;
        }
      }
    }
    EXPECT_TRUE(found || knowledge != Knowledge::kDims) << "no " << family().kernel;
  }
  std::printf("%s: %d kernels refused %d and served %d\n", family().name.c_str(), made, refused, served);
  EXPECT_GT(refused, 20);
}

INSTANTIATE_TEST_SUITE_P(Law, EveryFamily, ::testing::Range(size_t{0}, Families().size()),
                         [](const auto& test) { return Families()[test.param].name; });

}  // namespace
}  // namespace octavo::runtime
