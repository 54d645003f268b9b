// One node on given tensors.
#ifndef OCTAVO_TESTS_IR_INTERPRET_TESTING_H_
#define OCTAVO_TESTS_IR_INTERPRET_TESTING_H_

#include <initializer_list>
#include <vector>

#include "octavo/ir/interpret.h"

namespace octavo::ir::testing {

inline Result<std::vector<RtValue>> EvalValues(Op op, const std::vector<RtValue>& inputs, Attrs attrs = {},
                                               size_t outputs = 1) {
  Graph g;
  std::vector<ValueId> operands;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Tensor& t = inputs[i].tensor;
    if (!t.defined()) {
      operands.push_back({});
      continue;
    }
    SymShape shape(t.shape().begin(), t.shape().end());
    operands.push_back(g.AddInput("x" + std::to_string(i), {t.dtype(), std::move(shape)}));
  }
  const NodeId id = g.AddNode(op, std::move(operands), outputs, std::move(attrs), "the_node");
  return EvalNode(g, g.node(id), inputs);
}

inline Result<std::vector<RtValue>> Eval(Op op, const std::vector<Tensor>& inputs, Attrs attrs = {},
                                         size_t outputs = 1) {
  std::vector<RtValue> values;
  for (const Tensor& t : inputs) values.push_back({t, nullptr});
  return EvalValues(op, values, std::move(attrs), outputs);
}

// The first output; an undefined tensor on error.
inline Tensor Eval1(Op op, const std::vector<Tensor>& inputs, Attrs attrs = {}) {
  auto r = Eval(op, inputs, std::move(attrs));
  return r ? (*r)[0].tensor : Tensor();
}

// The error's sentence; empty where there is none.
inline std::string ErrorOf(Op op, const std::vector<Tensor>& inputs, Attrs attrs = {}, size_t outputs = 1) {
  auto r = Eval(op, inputs, std::move(attrs), outputs);
  return r ? std::string() : r.error().message;
}

template <typename T>
Tensor Make(DType dtype, Shape shape, std::initializer_list<T> values) {
  return Tensor::Of<T>(dtype, std::move(shape), std::vector<T>(values));
}
inline Tensor S32(Shape shape, std::initializer_list<int32_t> v) {
  return Make<int32_t>(DType::kS32, std::move(shape), v);
}
inline Tensor S8(Shape shape, std::initializer_list<int8_t> v) { return Make<int8_t>(DType::kS8, std::move(shape), v); }
inline Tensor U8(Shape shape, std::initializer_list<uint8_t> v) {
  return Make<uint8_t>(DType::kU8, std::move(shape), v);
}
inline Tensor Bool(Shape shape, std::initializer_list<uint8_t> v) {
  return Make<uint8_t>(DType::kBool, std::move(shape), v);
}

}  // namespace octavo::ir::testing

#endif  // OCTAVO_TESTS_IR_INTERPRET_TESTING_H_
