#include "octavo/ir/onnx/messages.h"

#include <onnx_messages.pb.h>

#include <algorithm>
#include <utility>

namespace octavo::ir::onnx::messages {

namespace pb = ::octavo_onnx;

namespace {

using enum Holds;

constexpr Field kAttributeFields[] = {{1, kText, false},
                                      {2, kReals, false},
                                      {3, kNumbers, false},
                                      {4, kText, false},
                                      {5, kMessage, false, &kTensor},
                                      {6, kMessage, false, &kGraph},
                                      {7, kReals, true},
                                      {8, kNumbers, true},
                                      {9, kText, true},
                                      {10, kMessage, true, &kTensor},
                                      {11, kMessage, true, &kGraph},
                                      {13, kText, false},
                                      {14, kMessage, false, &kType},
                                      {15, kMessage, true, &kType},
                                      {20, kNumbers, false},
                                      {21, kText, false},
                                      {22, kMessage, false, &kSparseTensor},
                                      {23, kMessage, true, &kSparseTensor}};
constexpr Field kValueInfoFields[] = {
    {1, kText, false}, {2, kMessage, false, &kType}, {3, kText, false}, {4, kMessage, true, &kStringStringEntry}};
constexpr Field kNodeFields[] = {{1, kText, true},
                                 {2, kText, true},
                                 {3, kText, false},
                                 {4, kText, false},
                                 {5, kMessage, true, &kAttribute},
                                 {6, kText, false},
                                 {7, kText, false},
                                 {8, kText, false},
                                 {9, kMessage, true, &kStringStringEntry}};
constexpr Field kTrainingInfoFields[] = {{1, kMessage, false, &kGraph},
                                         {2, kMessage, false, &kGraph},
                                         {3, kMessage, true, &kStringStringEntry},
                                         {4, kMessage, true, &kStringStringEntry}};
constexpr Field kModelFields[] = {{1, kNumbers, false},
                                  {2, kText, false},
                                  {3, kText, false},
                                  {4, kText, false},
                                  {5, kNumbers, false},
                                  {6, kText, false},
                                  {7, kMessage, false, &kGraph},
                                  {8, kMessage, true, &kOperatorSetId},
                                  {14, kMessage, true, &kStringStringEntry},
                                  {20, kMessage, true, &kTrainingInfo},
                                  {25, kMessage, true, &kFunction}};
constexpr Field kStringStringEntryFields[] = {{1, kText, false}, {2, kText, false}};
constexpr Field kTensorAnnotationFields[] = {{1, kText, false}, {2, kMessage, true, &kStringStringEntry}};
constexpr Field kGraphFields[] = {{1, kMessage, true, &kNode},          {2, kText, false},
                                  {5, kMessage, true, &kTensor},        {10, kText, false},
                                  {11, kMessage, true, &kValueInfo},    {12, kMessage, true, &kValueInfo},
                                  {13, kMessage, true, &kValueInfo},    {14, kMessage, true, &kTensorAnnotation},
                                  {15, kMessage, true, &kSparseTensor}, {16, kMessage, true, &kStringStringEntry}};
constexpr Field kTensorFields[] = {{1, kNumbers, true},
                                   {2, kNumbers, false},
                                   {3, kMessage, false, &kTensorSegment},
                                   {4, kReals, true},
                                   {5, kNumbers, true},
                                   {6, kText, true},
                                   {7, kNumbers, true},
                                   {8, kText, false},
                                   {9, kText, false},
                                   {10, kReals, true},
                                   {11, kNumbers, true},
                                   {12, kText, false},
                                   {13, kMessage, true, &kStringStringEntry},
                                   {14, kNumbers, false},
                                   {16, kMessage, true, &kStringStringEntry}};
constexpr Field kTensorSegmentFields[] = {{1, kNumbers, false}, {2, kNumbers, false}};
constexpr Field kSparseTensorFields[] = {
    {1, kMessage, false, &kTensor}, {2, kMessage, false, &kTensor}, {3, kNumbers, true}};
constexpr Field kTensorShapeFields[] = {{1, kMessage, true, &kTensorShapeDimension}};
constexpr Field kTensorShapeDimensionFields[] = {{1, kNumbers, false}, {2, kText, false}, {3, kText, false}};
constexpr Field kTypeFields[] = {{1, kMessage, false, &kTypeTensor},       {4, kMessage, false, &kTypeSequence},
                                 {5, kMessage, false, &kTypeMap},          {6, kText, false},
                                 {8, kMessage, false, &kTypeSparseTensor}, {9, kMessage, false, &kTypeOptional}};
constexpr Field kTypeTensorFields[] = {{1, kNumbers, false}, {2, kMessage, false, &kTensorShape}};
constexpr Field kTypeSequenceFields[] = {{1, kMessage, false, &kType}};
constexpr Field kTypeMapFields[] = {{1, kNumbers, false}, {2, kMessage, false, &kType}};
constexpr Field kTypeOptionalFields[] = {{1, kMessage, false, &kType}};
constexpr Field kTypeSparseTensorFields[] = {{1, kNumbers, false}, {2, kMessage, false, &kTensorShape}};
constexpr Field kOperatorSetIdFields[] = {{1, kText, false}, {2, kNumbers, false}};
constexpr Field kFunctionFields[] = {{1, kText, false},
                                     {4, kText, true},
                                     {5, kText, true},
                                     {6, kText, true},
                                     {7, kMessage, true, &kNode},
                                     {8, kText, false},
                                     {9, kMessage, true, &kOperatorSetId},
                                     {10, kText, false},
                                     {11, kMessage, true, &kAttribute},
                                     {12, kMessage, true, &kValueInfo},
                                     {13, kText, false},
                                     {14, kMessage, true, &kStringStringEntry}};

}  // namespace

constinit const Message kAttribute = {"AttributeProto", sizeof(pb::AttributeProto), kAttributeFields};
constinit const Message kValueInfo = {"ValueInfoProto", sizeof(pb::ValueInfoProto), kValueInfoFields};
constinit const Message kNode = {"NodeProto", sizeof(pb::NodeProto), kNodeFields};
constinit const Message kTrainingInfo = {"TrainingInfoProto", sizeof(pb::TrainingInfoProto), kTrainingInfoFields};
constinit const Message kModel = {"ModelProto", sizeof(pb::ModelProto), kModelFields};
constinit const Message kStringStringEntry = {"StringStringEntryProto", sizeof(pb::StringStringEntryProto),
                                              kStringStringEntryFields};
constinit const Message kTensorAnnotation = {"TensorAnnotation", sizeof(pb::TensorAnnotation), kTensorAnnotationFields};
constinit const Message kGraph = {"GraphProto", sizeof(pb::GraphProto), kGraphFields};
constinit const Message kTensor = {"TensorProto", sizeof(pb::TensorProto), kTensorFields};
constinit const Message kTensorSegment = {"TensorProto.Segment", sizeof(pb::TensorProto_Segment), kTensorSegmentFields};
constinit const Message kSparseTensor = {"SparseTensorProto", sizeof(pb::SparseTensorProto), kSparseTensorFields};
constinit const Message kTensorShape = {"TensorShapeProto", sizeof(pb::TensorShapeProto), kTensorShapeFields};
constinit const Message kTensorShapeDimension = {"TensorShapeProto.Dimension", sizeof(pb::TensorShapeProto_Dimension),
                                                 kTensorShapeDimensionFields};
constinit const Message kType = {"TypeProto", sizeof(pb::TypeProto), kTypeFields};
constinit const Message kTypeTensor = {"TypeProto.Tensor", sizeof(pb::TypeProto_Tensor), kTypeTensorFields};
constinit const Message kTypeSequence = {"TypeProto.Sequence", sizeof(pb::TypeProto_Sequence), kTypeSequenceFields};
constinit const Message kTypeMap = {"TypeProto.Map", sizeof(pb::TypeProto_Map), kTypeMapFields};
constinit const Message kTypeOptional = {"TypeProto.Optional", sizeof(pb::TypeProto_Optional), kTypeOptionalFields};
constinit const Message kTypeSparseTensor = {"TypeProto.SparseTensor", sizeof(pb::TypeProto_SparseTensor),
                                             kTypeSparseTensorFields};
constinit const Message kOperatorSetId = {"OperatorSetIdProto", sizeof(pb::OperatorSetIdProto), kOperatorSetIdFields};
constinit const Message kFunction = {"FunctionProto", sizeof(pb::FunctionProto), kFunctionFields};

const Field* Message::Find(uint64_t number) const {
  const auto found = std::ranges::find_if(fields, [&](const Field& f) { return std::cmp_equal(f.number, number); });
  return found == fields.end() ? nullptr : &*found;
}

}  // namespace octavo::ir::onnx::messages
