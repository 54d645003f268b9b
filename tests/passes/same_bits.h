// Two graphs on the same inputs in the interpreter.
#ifndef OCTAVO_TESTS_PASSES_SAME_BITS_H_
#define OCTAVO_TESTS_PASSES_SAME_BITS_H_

#include <gtest/gtest.h>

#include <set>

#include "octavo/ir/interpret.h"

namespace octavo::passes {

// Every output bit for bit; the first one has more than 20 values, since one value everywhere would agree with anything.
inline void ExpectSameBits(const ir::Graph& before, const ir::Graph& after, const ir::TensorMap& inputs) {
  const auto want = ir::Interpret(before, inputs), got = ir::Interpret(after, inputs);
  ASSERT_TRUE(want) << want.error().message;
  ASSERT_TRUE(got) << got.error().message;
  ASSERT_EQ(want->size(), got->size());
  for (size_t i = 0; i < want->size(); ++i) EXPECT_TRUE((*want)[i].SameBits((*got)[i])) << "output " << i;
  std::set<double> values;
  for (int64_t i = 0; i < (*want)[0].size(); ++i) values.insert((*want)[0].GetDouble(i));
  EXPECT_GT(values.size(), 20u);
}

}  // namespace octavo::passes

#endif  // OCTAVO_TESTS_PASSES_SAME_BITS_H_
