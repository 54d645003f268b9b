// What ir/onnx/messages.cc says of each message is what ONNX's own schema says.
#include "octavo/ir/onnx/messages.h"

#include <google/protobuf/descriptor.h>
#include <gtest/gtest.h>
#include <onnx/onnx_pb.h>

#include <set>
#include <string>

namespace octavo::ir::onnx::messages {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;

Holds HoldsOf(const FieldDescriptor& field) {
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return Holds::kMessage;
    case FieldDescriptor::CPPTYPE_STRING:
      return Holds::kText;
    case FieldDescriptor::CPPTYPE_FLOAT:
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return Holds::kReals;
    default:
      return Holds::kNumbers;
  }
}

class Walk {
 public:
  void Compare(const Message& ours, const Descriptor& theirs) {
    if (!seen_.insert(theirs.full_name()).second) return;
    SCOPED_TRACE(theirs.full_name());
    EXPECT_EQ("onnx." + std::string(ours.name), theirs.full_name());
    EXPECT_GE(ours.bytes, 24);
    int known = 0;
    for (int i = 0; i < theirs.field_count(); ++i) {
      const FieldDescriptor& field = *theirs.field(i);
      if (field.name() == "opaque_type") continue;  // of onnx-ml.proto alone; octavo takes no such type
      SCOPED_TRACE(field.name());
      const Field* found = ours.Find(static_cast<uint64_t>(field.number()));
      ASSERT_NE(found, nullptr);
      ++known;
      EXPECT_EQ(found->holds, HoldsOf(field));
      EXPECT_EQ(found->repeated, field.is_repeated());
      ASSERT_EQ(found->message != nullptr, field.message_type() != nullptr);
      if (found->message != nullptr) Compare(*found->message, *field.message_type());
    }
    EXPECT_EQ(std::ssize(ours.fields), known);
  }
  size_t count() const { return seen_.size(); }

 private:
  std::set<std::string> seen_;
};

TEST(Messages, AreThoseOfTheSchema) {
  Walk walk;
  walk.Compare(kModel, *::onnx::ModelProto::descriptor());
  EXPECT_EQ(walk.count(), 21U);
  EXPECT_EQ(kModel.Find(1000), nullptr);
  EXPECT_EQ(kModel.Find(uint64_t{1} << 40 | 7), nullptr);
}

}  // namespace
}  // namespace octavo::ir::onnx::messages
