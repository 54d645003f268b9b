#include "octavo/fuzz/shrink.h"

#include <onnx/onnx_pb.h>

#include <memory>
#include <vector>

namespace octavo::fuzz {

namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

class Shrinker {
 public:
  Shrinker(::onnx::ModelProto& model, const std::function<bool(const std::string&)>& fails)
      : model_(model), fails_(fails) {}

  bool Pass() {
    smaller_ = false;
    Visit(model_);
    return smaller_;
  }

 private:
  // Keeps what `change` does to the message if the model still fails.
  template <typename F>
  bool Try(Message& message, F change) {
    const std::unique_ptr<Message> before(message.New());
    before->CopyFrom(message);
    change();
    if (fails_(model_.SerializePartialAsString())) return smaller_ = true;
    message.CopyFrom(*before);
    return false;
  }

  void Elements(Message& message, const FieldDescriptor* field) {
    const auto* r = message.GetReflection();
    for (int chunk = r->FieldSize(message, field); chunk > 0; chunk /= 2) {
      for (int end = r->FieldSize(message, field); end > 0; end -= chunk) {
        const int begin = std::max(0, end - chunk);
        Try(message, [&] {
          int last = r->FieldSize(message, field);
          for (int i = end; i < last; ++i) r->SwapElements(&message, field, i - (end - begin), i);
          for (int i = begin; i < end; ++i) r->RemoveLast(&message, field);
        });
      }
    }
  }

  void Visit(Message& message) {
    const auto* r = message.GetReflection();
    std::vector<const FieldDescriptor*> fields;
    r->ListFields(message, &fields);
    for (const FieldDescriptor* field : fields) {
      if (field->is_repeated())
        Elements(message, field);
      else
        Try(message, [&] { r->ClearField(&message, field); });
      if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) continue;
      if (field->is_repeated()) {
        for (int i = 0; i < r->FieldSize(message, field); ++i) Visit(*r->MutableRepeatedMessage(&message, field, i));
      } else if (r->HasField(message, field)) {
        Visit(*r->MutableMessage(&message, field));
      }
    }
  }

  ::onnx::ModelProto& model_;
  const std::function<bool(const std::string&)>& fails_;
  bool smaller_ = false;
};

}  // namespace

std::string Shrink(const std::string& model, const std::function<bool(const std::string&)>& fails) {
  ::onnx::ModelProto proto;
  if (!proto.ParseFromString(model) || !fails(proto.SerializePartialAsString())) return model;
  Shrinker shrinker(proto, fails);
  while (shrinker.Pass()) {
  }
  return proto.SerializePartialAsString();
}

}  // namespace octavo::fuzz
