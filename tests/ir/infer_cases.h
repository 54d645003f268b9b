// Tables of ops and the types that inference gives their outputs.
#ifndef OCTAVO_TESTS_IR_INFER_CASES_H_
#define OCTAVO_TESTS_IR_INFER_CASES_H_

#include <gtest/gtest.h>

#include <span>
#include <string>

#include "octavo/ir/infer.h"
#include "octavo/ir/text.h"

namespace octavo::ir {

// One op at a time: the body of a graph in text form, and the types of its outputs "y", "z" after inference.
struct Case {
  const char* body;
  const char* y;
  const char* z = nullptr;
};

inline void Check(std::span<const Case> cases) {
  for (const Case& c : cases) {
    SCOPED_TRACE(c.body);
    auto g = ParseText(std::string("graph \"\" {") + c.body + "}");
    ASSERT_TRUE(g.has_value()) << g.error().message;
    const auto r = Inference::Run(*g);
    ASSERT_TRUE(r.has_value()) << r.error().message;
    EXPECT_EQ(ToString(g->value(g->FindValue("y")).type), c.y);
    if (c.z != nullptr) {
      EXPECT_EQ(ToString(g->value(g->FindValue("z")).type), c.z);
    }
    // A second run finds nothing new and nothing wrong.
    const std::string once = ToText(*g);
    ASSERT_TRUE(Inference::Run(*g).has_value());
    EXPECT_EQ(ToText(*g), once);
  }
}

}  // namespace octavo::ir

#endif  // OCTAVO_TESTS_IR_INFER_CASES_H_
