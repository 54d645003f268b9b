// The messages of an ONNX file as its schema has them: what a field's bytes become. Messages of protobuf's small library (lite) cannot tell.
#ifndef OCTAVO_IR_ONNX_MESSAGES_H_
#define OCTAVO_IR_ONNX_MESSAGES_H_

#include <cstdint>
#include <span>
#include <string_view>

namespace octavo::ir::onnx::messages {

enum class Holds : uint8_t { kNumbers, kReals, kText, kMessage };  // kNumbers: whole ones

struct Message;

struct Field {
  int number;
  Holds holds;
  bool repeated;
  const Message* message = nullptr;
};

struct Message {
  std::string_view name;  // as in onnx.proto, "TensorProto.Segment"
  int64_t bytes;          // in memory, empty
  std::span<const Field> fields;

  const Field* Find(uint64_t number) const;  // null: there is none
};

extern const Message kAttribute, kValueInfo, kNode, kTrainingInfo, kModel, kStringStringEntry, kTensorAnnotation,
    kGraph, kTensor, kTensorSegment, kSparseTensor, kTensorShape, kTensorShapeDimension, kType, kTypeTensor,
    kTypeSequence, kTypeMap, kTypeOptional, kTypeSparseTensor, kOperatorSetId, kFunction;

}  // namespace octavo::ir::onnx::messages

#endif  // OCTAVO_IR_ONNX_MESSAGES_H_
