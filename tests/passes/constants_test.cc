// Rules that look for a constant take what exporters write for it and nothing else, and keep the bound that their file states with every constant that
// they take.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "octavo/ir/interpret.h"
#include "octavo/passes/fusions/fusions.h"
#include "octavo/passes/pipelines.h"
#include "octavo/tests/passes/maker.h"

namespace octavo::passes {
namespace {

using ir::DType;
using ir::Tensor;

// The float so many steps from that nearest to x.
float Beside(double x, int steps) {
  float f = static_cast<float>(x);
  for (; steps != 0; steps += steps < 0 ? 1 : -1) f = std::nextafter(f, steps < 0 ? -INFINITY : INFINITY);
  return f;
}

struct Constants {
  float root = Beside(std::numbers::sqrt2, 0), half = 0.5f, one = 1.0f, three = 3.0f, cubic = 0.044715f,
        factor = 0.79788456f;
};
enum class Form { kDivided, kScaled, kPower, kProduct };

Graph Gelu(Form form, const Constants& c, int association, int64_t count) {
  Maker m(1);
  const ValueId x = m.g.AddInput("x", {DType::kF32, ir::SymShape{count}});
  ValueId t;
  if (form == Form::kDivided || form == Form::kScaled) {
    t = m.Node(Op::kErf, {m.Node(form == Form::kDivided ? Op::kDiv : Op::kMul, {x, m.Real(c.root)})});
  } else {
    const ValueId cube =
        form == Form::kPower ? m.Node(Op::kPow, {x, m.Real(c.three)}) : m.Node(Op::kMul, {m.Node(Op::kMul, {x, x}), x});
    t = m.Node(
        Op::kTanh,
        {m.Node(Op::kMul, {m.Node(Op::kAdd, {x, m.Node(Op::kMul, {cube, m.Real(c.cubic)})}), m.Real(c.factor)})});
  }
  const ValueId plus = m.Node(Op::kAdd, {t, m.Real(c.one)}), half = m.Real(c.half);
  const auto times = [&](ValueId a, ValueId b) { return m.Node(Op::kMul, {a, b}); };
  m.g.AddOutput("y", association == 0   ? times(times(x, plus), half)
                     : association == 1 ? times(times(x, half), plus)
                                        : times(x, times(plus, half)));
  return std::move(m.g);
}

bool Fuses(Graph& g, Op op) {
  EXPECT_TRUE(ir::Inference::Run(g));
  PassRun context;
  EXPECT_TRUE(fusions::FuseFloat(g, context));
  const auto nodes = g.NodesInOrder();
  return std::ranges::any_of(nodes, [&](NodeId id) { return g.node(id).op == op; });
}

double Root(Form form) { return form == Form::kScaled ? std::numbers::sqrt2 / 2 : std::numbers::sqrt2; }

TEST(Constants, OfGeluAtTheEdge) {
  const auto fuses = [](Form form, const Constants& c) {
    Graph g = Gelu(form, c, 0, 4);
    const bool found = Fuses(g, Op::kGelu);
    const auto nodes = g.NodesInOrder();  // a product that is left: twice a GELU, times another number than 0.5
    return found && std::ranges::none_of(nodes, [&](NodeId id) { return g.node(id).op == Op::kMul; });
  };
  for (const Form form : {Form::kDivided, Form::kScaled, Form::kPower}) {
    Constants right;
    right.root = Beside(Root(form), 0);
    EXPECT_TRUE(fuses(form, right));
    for (float Constants::* exact : {&Constants::half, &Constants::one, &Constants::three}) {
      if (exact == &Constants::three && form != Form::kPower) continue;
      for (const int steps : {-1, 1}) {
        Constants c = right;
        c.*exact = Beside(c.*exact, steps);
        EXPECT_FALSE(fuses(form, c)) << c.*exact;
      }
    }
    for (const auto& [rounded, value] : {std::pair{&Constants::root, Root(form)},
                                         {&Constants::cubic, 0.044715},
                                         {&Constants::factor, std::sqrt(2 / std::numbers::pi)}}) {
      if ((rounded == &Constants::root) == (form == Form::kPower)) continue;
      for (int steps = -3; steps <= 3; ++steps) {
        Constants c = right;
        c.*rounded = Beside(value, steps);
        EXPECT_EQ(fuses(form, c), std::abs(steps) <= 1) << steps << " steps from " << value;
      }
    }
  }
}

TEST(Constants, GeluKeepsItsBound) {
  constexpr int64_t kCount = 40001;
  std::vector<float> values;
  for (int64_t i = 0; i < kCount; ++i) values.push_back(static_cast<float>(i - kCount / 2) * 4.1e-4f);
  const ir::TensorMap inputs{{"x", Tensor::F32({kCount}, values)}};
  for (const Form form : {Form::kDivided, Form::kScaled, Form::kPower, Form::kProduct}) {
    const bool tanh = form == Form::kPower || form == Form::kProduct;
    double worst = 0;
    for (int steps = -1; steps <= 1; ++steps) {
      for (int association = 0; association < 3; ++association) {
        Constants c;
        c.root = Beside(Root(form), steps), c.cubic = Beside(0.044715, steps),
        c.factor = Beside(std::sqrt(2 / std::numbers::pi), steps);
        const Graph before = Gelu(form, c, association, kCount);
        Graph after = before;
        ASSERT_TRUE(Fuses(after, Op::kGelu));
        const auto want = ir::Interpret(before, inputs), got = ir::Interpret(after, inputs);
        ASSERT_TRUE(want && got);
        for (size_t i = 0; i < values.size(); ++i) {
          const float size = std::fabs(values[i]);
          const double ulp = std::nextafter(size, INFINITY) - size;
          worst = std::max(worst,
                           std::fabs(static_cast<double>((*want)[0].as<float>()[i]) - (*got)[0].as<float>()[i]) / ulp);
        }
      }
    }
    std::printf("form %d: %.2f ulp of |x|\n", static_cast<int>(form), worst);
    EXPECT_LE(worst, tanh ? 4 : 3);
    EXPECT_GT(worst, 0.1);
  }
}

// Where(keep, s, c) + bias is written as an additive mask where c swallows every score (canonical/scores.cc).
TEST(Constants, LowestScoresAtTheEdge) {
  const float lowest = std::numeric_limits<float>::lowest();
  for (const auto& [low, fuses] :
       {std::pair{lowest, true}, {-INFINITY, true}, {Beside(lowest, 1), false}, {-1e4f, false}}) {
    Maker m(2);
    const auto in = [&](const char* name, ir::SymShape s, DType t = DType::kF32) {
      return m.g.AddInput(name, {t, std::move(s)});
    };
    const ValueId s = m.Node(Op::kMatMul, {in("q", {1, 2, 5, 4}), in("kt", {1, 2, 4, 5})});
    const ValueId kept = m.Node(Op::kWhere, {in("keep", {5, 5}, DType::kBool), s, m.Real(low)});
    const ValueId biased = m.Node(Op::kAdd, {kept, in("bias", {5, 5})});
    m.g.AddOutput("y", m.Node(Op::kMatMul, {m.Node(Op::kSoftmax, {biased}), in("v", {1, 2, 5, 4})}));
    PassRun context;
    ASSERT_TRUE(RunPasses({"scores"}, m.g, context));
    const auto nodes = m.g.NodesInOrder();
    const bool additive = std::ranges::any_of(
        nodes, [&](NodeId id) { return m.g.node(id).op == Op::kAdd && m.g.node(id).input(0) == s; });
    EXPECT_EQ(additive, fuses) << low;
  }
}

// Codes of probabilities are changed only where they are the quantizer's own, 1/255 to the bit (fusions/probability_codes.cc).
TEST(Constants, CodesOfProbabilitiesAtTheEdge) {
  for (int steps = -1; steps <= 1; ++steps) {
    Maker m(3);
    const auto in = [&](const char* name, ir::SymShape s) { return m.g.AddInput(name, {DType::kF32, std::move(s)}); };
    const ValueId p = m.Node(Op::kSoftmax, {in("s", {1, 2, 5, 5})});
    m.g.AddOutput("y", m.Node(Op::kMatMul, {m.Coded(p, Beside(1 / 255.0f, steps), 0), in("v", {1, 2, 5, 4})}));
    ASSERT_TRUE(ir::Inference::Run(m.g));
    PassRun context;
    const Result<bool> changed = fusions::RelativeProbs(m.g, context);
    ASSERT_TRUE(changed);
    EXPECT_EQ(*changed, steps == 0);
    if (steps == 0) continue;
    ASSERT_EQ(context.log.size(), 1u);
    EXPECT_NE(context.log[0].find("keeps codes of probabilities: they are not those of 1/255"), std::string::npos)
        << context.log[0];
  }
}

// Softcap's two constants are one number, to the bit (fusions/sdpa_checks.cc).
TEST(Constants, SoftcapAtTheEdge) {
  for (int steps = -1; steps <= 1; ++steps) {
    Maker m(4);
    const auto in = [&](const char* name, ir::SymShape s) { return m.g.AddInput(name, {DType::kF32, std::move(s)}); };
    const ValueId s = m.Node(Op::kMatMul, {in("q", {1, 2, 5, 4}), in("kt", {1, 2, 4, 5})});
    const ValueId capped =
        m.Node(Op::kMul, {m.Node(Op::kTanh, {m.Node(Op::kDiv, {s, m.Real(5)})}), m.Real(Beside(5, steps))});
    m.g.AddOutput("y", m.Node(Op::kMatMul, {m.Node(Op::kSoftmax, {capped}), in("v", {1, 2, 5, 4})}));
    EXPECT_EQ(Fuses(m.g, Op::kSdpa), steps == 0);
  }
}

}  // namespace
}  // namespace octavo::passes
