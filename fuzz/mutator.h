// The mutations of mutate.h. Each may find nothing to do.
#ifndef OCTAVO_FUZZ_MUTATOR_H_
#define OCTAVO_FUZZ_MUTATOR_H_

#include <onnx/onnx_pb.h>

#include <string>
#include <vector>

#include "octavo/fuzz/random.h"

namespace octavo::fuzz {

namespace pb = ::onnx;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

class Mutator {
 public:
  Mutator(Random& random, pb::ModelProto& model, const pb::ModelProto* other)
      : random_(random), model_(model), other_(other) {}
  void Mutate();

 private:
  // mutate.cc: any field of any message, by reflection.
  void AnyField();
  void Singular(Message& message, const FieldDescriptor& field);
  void Repeated(Message& message, const FieldDescriptor& field);
  void SetScalar(Message& message, const FieldDescriptor& field, int index);
  void FillNew(Message& message);
  std::string Name(const std::string& now);

  // mutate_graph.cc: what a graph is made of.
  void Rewire();
  void SwapInputs();
  void Bypass();
  void RenameOp();
  void InsertOp();
  void InsertQuantize();
  void AddOutput();
  void Twin();
  void InputType();
  void Borrow();

  // mutate_parts.cc: attributes, tensors, opsets, functions, subgraphs.
  void AnyAttribute();
  void AttributeKind();
  void TensorShape();
  void TensorType();
  void TensorNumbers();
  void TensorPlace();
  void Opset();
  void IntoFunction();
  void IntoBranch();

  pb::GraphProto& SomeGraph();
  pb::NodeProto* SomeNode(pb::GraphProto& graph);
  pb::TensorProto* SomeTensor();
  std::string SomeValue(const pb::GraphProto& graph);
  std::string Fresh();
  pb::NodeProto& AddNodeAt(pb::GraphProto& graph, int index);
  pb::TensorProto& AddScalar(pb::GraphProto& graph, int type, double value);

  Random& random_;
  pb::ModelProto& model_;
  const pb::ModelProto* other_;
  std::vector<std::string> names_;  // of all values, as they were
  int fresh_ = 0;
};

}  // namespace octavo::fuzz

#endif  // OCTAVO_FUZZ_MUTATOR_H_
