// sdpa_repeat.cc: repeated heads of K and V become groups; V has to be repeated as K is.
#include <gtest/gtest.h>

#include "octavo/tests/passes/rule_graphs.h"

namespace octavo::passes::fusions {
namespace {

TEST(SdpaRepeatRule, VIsRepeatedAsK) {
  const auto grouped = [](int64_t groups_of_v) {
    return [groups_of_v](Graphs& m) {
      const auto repeated = [&](const char* name, int64_t groups) {
        const ValueId five = m.Node(Op::kUnsqueeze, {m.Input(name, {2, groups, 5, 6}), m.Ints({2})});
        const ValueId wide = m.Node(Op::kExpand, {five, m.Ints({2, groups, 4 / groups, 5, 6})});
        return m.Node(Op::kReshape, {wide, m.Ints({2, 4, 5, 6})});
      };
      const ValueId q = m.Input("q", {2, 4, 5, 6}), k = repeated("k", 2), v = repeated("v", groups_of_v);
      const ValueId s = m.Node(Op::kMatMul, {q, m.Perm(k, {0, 1, 3, 2})});
      m.g.AddOutput("y", m.Node(Op::kMatMul, {m.Node(Op::kSoftmax, {s}, {{"axis", int64_t{-1}}}), v}));
    };
  };
  EXPECT_EQ(CountAfter(FuseFloat, Op::kExpand, grouped(2)), 0);
  EXPECT_EQ(CountAfter(FuseFloat, Op::kExpand, grouped(1)), 2);
}

// Codes of a cache, which are repeated before they are dequantized: of one scale that is known, not of one for each head.
TEST(SdpaRepeatRule, CodesAreRepeatedAsFloatsAre) {
  const auto attend = [](bool one_scale) {
    return [one_scale](Graphs& m) {
      const auto repeated = [&](const char* name) {
        const ir::Shape scales = one_scale ? ir::Shape{} : ir::Shape{4};
        const ValueId scale = m.Filled(scales, 0.1f), zero = m.g.AddConstant(ir::Tensor::Zeros(ir::DType::kU8, scales));
        const ValueId codes = m.Node(Op::kQuantizeLinear, {m.Input(name, {2, 2, 5, 4}), m.Filled({}, 0.1f)});
        const ValueId wide =
            m.Node(Op::kExpand, {m.Node(Op::kUnsqueeze, {codes, m.Ints({2})}), m.Ints({2, 2, 2, 5, 4})});
        return m.Node(Op::kDequantizeLinear, {m.Node(Op::kReshape, {wide, m.Ints({2, 4, 5, 4})}), scale, zero},
                      {{"axis", int64_t{1}}});
      };
      m.g.AddOutput("y", m.Node(Op::kSdpa, {m.Input("q", {2, 4, 5, 4}), repeated("k"), repeated("v")}, m.Heads(4, 4)));
    };
  };
  EXPECT_EQ(CountAfter(FuseFloat, Op::kExpand, attend(true)), 0);
  EXPECT_EQ(CountAfter(FuseFloat, Op::kExpand, attend(false)), 2);
}

TEST(SdpaRepeatRule, RefusesWithASentence) {
  const auto repeated = [](Graphs& m, ValueId k, int64_t groups, int64_t times) {
    const ValueId five = m.Node(Op::kUnsqueeze, {k, m.Ints({2})});
    return m.Reshape(m.Node(Op::kExpand, {five, m.Ints({1, groups, times, 5, 4})}), {1, groups * times, 5, 4});
  };
  Refuses("K and V are not repeated alike, head by head", SdpaRepeat(Op::kSdpa), [&](Graphs& m) {
    const ValueId k = repeated(m, m.In({1, 2, 5, 4}), 2, 2), v = repeated(m, m.In({1, 1, 5, 4}), 1, 4);
    m.g.AddOutput("y", m.Node(Op::kSdpa, {m.In({1, 4, 5, 4}), k, v}, m.Heads(4, 4)));
  });
  Refuses("the heads are grouped already", SdpaRepeat(Op::kSdpa), [&](Graphs& m) {
    const ValueId k = repeated(m, m.In({1, 1, 5, 4}), 1, 2), v = repeated(m, m.In({1, 1, 5, 4}), 1, 2);
    m.g.AddOutput("y", m.Node(Op::kSdpa, {m.In({1, 4, 5, 4}), k, v}, m.Heads(4, 2)));
  });
}

}  // namespace
}  // namespace octavo::passes::fusions
