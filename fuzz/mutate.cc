#include "octavo/fuzz/mutate.h"

#include <algorithm>

#include "octavo/fuzz/mutator.h"
#include "octavo/fuzz/values.h"

namespace octavo::fuzz {

namespace {

constexpr size_t kMostBytes = 4u << 20;

void Gather(Message& message, std::vector<Message*>& all) {
  if (all.size() > 20000) return;
  all.push_back(&message);
  std::vector<const FieldDescriptor*> fields;
  message.GetReflection()->ListFields(message, &fields);
  for (const FieldDescriptor* field : fields) {
    if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) continue;
    if (!field->is_repeated()) {
      Gather(*message.GetReflection()->MutableMessage(&message, field), all);
      continue;
    }
    for (int i = 0; i < message.GetReflection()->FieldSize(message, field); ++i)
      Gather(*message.GetReflection()->MutableRepeatedMessage(&message, field, i), all);
  }
}

// A message of the type of `like` somewhere in the model; may be `like` itself.
const Message* Relative(Random& random, const std::vector<Message*>& all, const google::protobuf::Descriptor* type) {
  const auto start = static_cast<size_t>(random.Below(static_cast<int64_t>(all.size())));
  for (size_t i = 0; i < all.size(); ++i) {
    const Message* m = all[(start + i) % all.size()];
    if (m->GetDescriptor() == type) return m;
  }
  return nullptr;
}

}  // namespace

std::string Mutator::Name(const std::string& now) {
  if (!names_.empty() && !random_.OneIn(4)) return random_.Of(names_);
  return SomeString(random_, now);
}

// index < 0: a singular field.
void Mutator::SetScalar(Message& message, const FieldDescriptor& field, int index) {
  const auto* r = message.GetReflection();
  const bool one = index < 0;
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32: {
      const auto v = static_cast<int32_t>(
          SomeInt(random_, one ? r->GetInt32(message, &field) : r->GetRepeatedInt32(message, &field, index)));
      return one ? r->SetInt32(&message, &field, v) : r->SetRepeatedInt32(&message, &field, index, v);
    }
    case FieldDescriptor::CPPTYPE_INT64: {
      const int64_t v =
          SomeInt(random_, one ? r->GetInt64(message, &field) : r->GetRepeatedInt64(message, &field, index));
      return one ? r->SetInt64(&message, &field, v) : r->SetRepeatedInt64(&message, &field, index, v);
    }
    case FieldDescriptor::CPPTYPE_UINT64: {
      const auto v = static_cast<uint64_t>(SomeInt(random_, 1));
      return one ? r->SetUInt64(&message, &field, v) : r->SetRepeatedUInt64(&message, &field, index, v);
    }
    case FieldDescriptor::CPPTYPE_FLOAT: {
      const float v =
          SomeFloat(random_, one ? r->GetFloat(message, &field) : r->GetRepeatedFloat(message, &field, index));
      return one ? r->SetFloat(&message, &field, v) : r->SetRepeatedFloat(&message, &field, index, v);
    }
    case FieldDescriptor::CPPTYPE_DOUBLE: {
      const double v = SomeFloat(random_, 1.0f);
      return one ? r->SetDouble(&message, &field, v) : r->SetRepeatedDouble(&message, &field, index, v);
    }
    case FieldDescriptor::CPPTYPE_ENUM: {
      const auto* values = field.enum_type();
      const auto* v = values->value(random_.Int(values->value_count()));
      return one ? r->SetEnum(&message, &field, v) : r->SetRepeatedEnum(&message, &field, index, v);
    }
    case FieldDescriptor::CPPTYPE_STRING: {
      std::string v = one ? r->GetString(message, &field) : r->GetRepeatedString(message, &field, index);
      if (field.type() == FieldDescriptor::TYPE_BYTES)
        SpoilBytes(random_, v);
      else
        v = Name(v);
      return one ? r->SetString(&message, &field, std::move(v))
                 : r->SetRepeatedString(&message, &field, index, std::move(v));
    }
    default:
      return;
  }
}

// As another message of its kind in the model is.
void Mutator::FillNew(Message& message) {
  std::vector<Message*> all;
  Gather(model_, all);
  const Message* relative = Relative(random_, all, message.GetDescriptor());
  if (relative == nullptr || relative == &message || relative->ByteSizeLong() > kMostBytes / 4) return;
  const std::string bytes = relative->SerializeAsString();  // a message may stand within its relative
  message.ParseFromString(bytes);
}

void Mutator::Singular(Message& message, const FieldDescriptor& field) {
  const auto* r = message.GetReflection();
  if (r->HasField(message, &field) && random_.OneIn(3)) return r->ClearField(&message, &field);
  if (field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) return FillNew(*r->MutableMessage(&message, &field));
  SetScalar(message, field, -1);
}

void Mutator::Repeated(Message& message, const FieldDescriptor& field) {
  const auto* r = message.GetReflection();
  const int size = r->FieldSize(message, &field);
  const bool messages = field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE;
  const auto add = [&] {
    if (messages) return FillNew(*r->AddMessage(&message, &field));
    if (field.cpp_type() == FieldDescriptor::CPPTYPE_STRING)
      r->AddString(&message, &field, "");
    else if (field.cpp_type() == FieldDescriptor::CPPTYPE_INT64)
      r->AddInt64(&message, &field, random_.Below(4));
    else if (field.cpp_type() == FieldDescriptor::CPPTYPE_INT32)
      r->AddInt32(&message, &field, random_.Int(4));
    else if (field.cpp_type() == FieldDescriptor::CPPTYPE_FLOAT)
      r->AddFloat(&message, &field, 1.0f);
    else
      return;
    SetScalar(message, field, r->FieldSize(message, &field) - 1);
  };
  if (size == 0) return add();
  switch (random_.Int(6)) {
    case 0:  // one less
      r->SwapElements(&message, &field, random_.Int(size), size - 1);
      return r->RemoveLast(&message, &field);
    case 1:
      return r->SwapElements(&message, &field, random_.Int(size), random_.Int(size));
    case 2:
      if (random_.OneIn(10)) r->ClearField(&message, &field);
      return;
    case 3:
      for (int n = random_.OneIn(20) ? 40 : 1; n > 0; --n) add();
      return;
    default:
      if (!messages)
        SetScalar(message, field, random_.Int(size));
      else if (random_.OneIn(2))
        FillNew(*r->MutableRepeatedMessage(&message, &field, random_.Int(size)));
  }
}

void Mutator::AnyField() {
  std::vector<Message*> all;
  Gather(model_, all);
  Message& message = *random_.Of(all);
  const auto* type = message.GetDescriptor();
  std::vector<const FieldDescriptor*> set;
  message.GetReflection()->ListFields(message, &set);
  const FieldDescriptor* field =
      set.empty() || random_.OneIn(4) ? type->field(random_.Int(type->field_count())) : random_.Of(set);
  if (field == nullptr) return;
  if (field->is_repeated())
    Repeated(message, *field);
  else
    Singular(message, *field);
}

void Mutator::Mutate() {
  for (const pb::NodeProto& node : model_.graph().node())
    names_.insert(names_.end(), node.output().begin(), node.output().end());
  for (const auto& input : model_.graph().input()) names_.push_back(input.name());
  for (const auto& tensor : model_.graph().initializer()) names_.push_back(tensor.name());
  using Step = void (Mutator::*)();
  static constexpr Step kSteps[] = {
      &Mutator::Rewire,        &Mutator::SwapInputs,    &Mutator::Bypass,        &Mutator::RenameOp,
      &Mutator::InsertOp,      &Mutator::InsertOp,      &Mutator::AddOutput,     &Mutator::AddOutput,
      &Mutator::Twin,          &Mutator::InputType,     &Mutator::InputType,     &Mutator::Borrow,
      &Mutator::AnyAttribute,  &Mutator::AnyAttribute,  &Mutator::AttributeKind, &Mutator::TensorShape,
      &Mutator::TensorShape,   &Mutator::TensorType,    &Mutator::TensorType,    &Mutator::TensorNumbers,
      &Mutator::TensorNumbers, &Mutator::TensorNumbers, &Mutator::TensorPlace,   &Mutator::Opset,
      &Mutator::IntoFunction,  &Mutator::IntoBranch,    &Mutator::InsertQuantize};
  int steps = 1;
  while (steps < 8 && random_.OneIn(2)) ++steps;
  const bool wild = random_.OneIn(3);  // else most mutants stay readable
  for (; steps > 0; --steps) {
    if (wild ? random_.OneIn(2) : random_.OneIn(12))
      AnyField();
    else
      (this->*random_.Of(kSteps))();
  }
}

std::string MutateBytes(std::string_view model, std::string_view other, uint64_t seed) {
  Random random(seed);
  pb::ModelProto proto, second;
  std::string bytes(model);
  if (model.size() > kMostBytes) return {};
  if (!proto.ParseFromArray(model.data(), static_cast<int>(model.size())) || random.OneIn(50)) {
    for (int n = 1 + random.Int(4); n > 0 && !bytes.empty(); --n)
      bytes[static_cast<size_t>(random.Below(static_cast<int64_t>(bytes.size())))] = static_cast<char>(random.Int(256));
    return bytes;
  }
  const bool two = !other.empty() && other.size() < kMostBytes &&
                   second.ParseFromArray(other.data(), static_cast<int>(other.size()));
  Mutator(random, proto, two ? &second : nullptr).Mutate();
  bytes.clear();
  if (!proto.SerializePartialToString(&bytes) || bytes.size() > 2 * kMostBytes) return {};
  return bytes;
}

}  // namespace octavo::fuzz
