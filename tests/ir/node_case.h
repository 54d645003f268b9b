// One case of ONNX's node tests: a folder with a model, inputs and expected outputs, through the reader, inference and the interpreter.
#ifndef OCTAVO_TESTS_IR_NODE_CASE_H_
#define OCTAVO_TESTS_IR_NODE_CASE_H_

#include <cstdint>
#include <filesystem>
#include <string>

#include "octavo/ir/onnx/onnx.h"

namespace octavo::ir {

enum class Outcome : uint8_t {
  kPassed,
  kFailed,   // another result than expected
  kRefused,  // a sentence instead of a result
};
struct Verdict {
  Outcome outcome;
  std::string reason;
};

// Data files that `folder` lacks are looked for in `more`, which has a folder of the same name.
Verdict RunNodeCase(const std::filesystem::path& folder, const std::filesystem::path& more = {},
                    onnx::AttentionOrder order = onnx::AttentionOrder::kByProducer);

}  // namespace octavo::ir

#endif  // OCTAVO_TESTS_IR_NODE_CASE_H_
