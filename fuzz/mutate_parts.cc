// Mutations of attributes, tensors, opsets, functions and subgraphs.
#include <algorithm>
#include <cstring>

#include "octavo/fuzz/mutator.h"
#include "octavo/fuzz/values.h"
#include "octavo/quant/numeric/dtype.h"

namespace octavo::fuzz {

namespace {

size_t ElementsOf(const pb::TensorProto& tensor) {
  uint64_t count = 1;
  for (const int64_t dim : tensor.dims()) {
    if (dim < 0 || dim > (1 << 24)) return 0;
    count = std::min<uint64_t>(count * static_cast<uint64_t>(dim), 1 << 24);
  }
  return count;
}

size_t RawBytes(int type, size_t count) { return quant::BytesOf(static_cast<quant::DType>(type), count); }

// Numbers of other fields move to raw_data, where a type and a shape can be changed with the bytes kept right.
void MakeRaw(pb::TensorProto& t) {
  std::string raw = t.raw_data();
  const auto take = [&](const auto& values, auto narrow) {
    for (const auto v : values) {
      const auto x = static_cast<decltype(narrow)>(v);
      raw.append(reinterpret_cast<const char*>(&x), sizeof(x));
    }
  };
  take(t.float_data(), float{});
  take(t.int64_data(), int64_t{});
  take(t.double_data(), double{});
  switch (RawBytes(t.data_type(), 1)) {
    case 1:
      take(t.int32_data(), int8_t{});
      break;
    case 2:
      take(t.int32_data(), int16_t{});
      break;
    default:
      take(t.int32_data(), int32_t{});
  }
  t.clear_float_data(), t.clear_int64_data(), t.clear_double_data(), t.clear_int32_data();
  t.set_raw_data(raw);
}

void Fit(pb::TensorProto& t) {
  std::string* raw = t.mutable_raw_data();
  const size_t want = RawBytes(t.data_type(), ElementsOf(t));
  if (want > (1 << 22) || want == raw->size()) return;
  const std::string before = *raw;
  raw->resize(want);
  for (size_t i = before.size(); !before.empty() && i < want; ++i) (*raw)[i] = before[i % before.size()];
}

}  // namespace

pb::TensorProto& Mutator::AddScalar(pb::GraphProto& graph, int type, double value) {
  pb::TensorProto& t = *graph.add_initializer();
  t.set_name(Fresh());
  t.set_data_type(type);
  std::string raw(RawBytes(type, 1), static_cast<char>(static_cast<int>(value)));
  if (type == pb::TensorProto::FLOAT) {
    const auto f = static_cast<float>(value);
    std::memcpy(raw.data(), &f, sizeof(f));
  }
  t.set_raw_data(raw);
  return t;
}

pb::TensorProto* Mutator::SomeTensor() {
  std::vector<pb::TensorProto*> all;
  pb::GraphProto& graph = SomeGraph();
  for (pb::TensorProto& t : *graph.mutable_initializer()) all.push_back(&t);
  for (pb::NodeProto& node : *graph.mutable_node()) {
    for (pb::AttributeProto& a : *node.mutable_attribute()) {
      if (a.has_t()) all.push_back(a.mutable_t());
    }
  }
  return all.empty() ? nullptr : random_.Of(all);
}

// A new value of a kind that the attribute has or may have.
void Mutator::AnyAttribute() {
  pb::NodeProto* node = SomeNode(SomeGraph());
  if (node == nullptr) return;
  const bool fresh = node->attribute_size() == 0 || random_.OneIn(3);
  pb::AttributeProto& a =
      fresh ? *node->add_attribute() : *node->mutable_attribute(random_.Int(node->attribute_size()));
  if (fresh) {
    a.set_name(std::string(random_.Of(KnownAttributes())));
    a.set_type(random_.OneIn(3)   ? pb::AttributeProto::FLOAT
               : random_.OneIn(3) ? pb::AttributeProto::INTS
                                  : pb::AttributeProto::INT);
  }
  switch (a.type()) {
    case pb::AttributeProto::FLOAT:
      return a.set_f(SomeFloat(random_, a.f()));
    case pb::AttributeProto::INT:
      return a.set_i(SomeInt(random_, a.i()));
    case pb::AttributeProto::STRING:
      return a.set_s(SomeString(random_, a.s()));
    case pb::AttributeProto::INTS:
      if (a.ints_size() == 0 || random_.OneIn(4)) return a.add_ints(SomeInt(random_, a.ints_size()));
      if (random_.OneIn(4)) return (void)a.mutable_ints()->RemoveLast();
      if (random_.OneIn(4))
        return a.mutable_ints()->SwapElements(random_.Int(a.ints_size()), random_.Int(a.ints_size()));
      return a.set_ints(random_.Int(a.ints_size()), SomeInt(random_, a.ints(0)));
    case pb::AttributeProto::FLOATS:
      return a.add_floats(SomeFloat(random_, 1));
    default:
      if (random_.OneIn(2)) a.set_name(std::string(random_.Of(KnownAttributes())));
  }
}

// The same number as another kind, or a reference to an attribute of a function that is not there.
void Mutator::AttributeKind() {
  pb::NodeProto* node = SomeNode(SomeGraph());
  if (node == nullptr || node->attribute_size() == 0) return;
  pb::AttributeProto& a = *node->mutable_attribute(random_.Int(node->attribute_size()));
  switch (random_.Int(6)) {
    case 0:
      return a.set_ref_attr_name(std::string(random_.Of(KnownAttributes())));
    case 1:
      return a.set_type(static_cast<pb::AttributeProto::AttributeType>(random_.Int(15)));
    case 2:
      a.set_f(static_cast<float>(a.i()));
      return a.set_type(pb::AttributeProto::FLOAT);
    case 3:
      a.add_ints(a.i());
      return a.set_type(pb::AttributeProto::INTS);
    case 4:
      *node->add_attribute() = pb::AttributeProto(a);
      return;
    default:
      return (void)node->mutable_attribute()->RemoveLast();
  }
}

// The same numbers in another shape; else another size, with or without the bytes for it.
void Mutator::TensorShape() {
  pb::TensorProto* t = SomeTensor();
  if (t == nullptr) return;
  const int rank = t->dims_size();
  switch (random_.Int(6)) {
    case 0:
      t->mutable_dims()->Add(1);
      if (random_.OneIn(2)) std::ranges::rotate(*t->mutable_dims(), t->mutable_dims()->end() - 1);
      return;
    case 1:
      return t->mutable_dims()->Truncate(
          static_cast<int>(std::ranges::remove(*t->mutable_dims(), 1).begin() - t->mutable_dims()->begin()));
    case 2:
      if (rank >= 2) t->mutable_dims()->SwapElements(random_.Int(rank), random_.Int(rank));
      return;
    case 3: {
      const auto count = static_cast<int64_t>(ElementsOf(*t));
      t->clear_dims();
      return t->add_dims(count);
    }
    case 4:
      if (rank > 0) t->set_dims(random_.Int(rank), SomeInt(random_, t->dims(0)));
      return;
    default:
      MakeRaw(*t);
      if (rank > 0) t->set_dims(random_.Int(rank), SomeSize(random_));
      Fit(*t);
  }
}

void Mutator::TensorType() {
  pb::TensorProto* t = SomeTensor();
  if (t == nullptr || ElementsOf(*t) > (1 << 20)) return;
  static constexpr int kTypes[] = {1, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 16, 17, 19, 21, 22, 0, 99};
  MakeRaw(*t);
  std::vector<float> floats(t->raw_data().size() / sizeof(float));
  if (!floats.empty()) std::memcpy(floats.data(), t->raw_data().data(), floats.size() * sizeof(float));
  const bool from_float = t->data_type() == pb::TensorProto::FLOAT;
  t->set_data_type(random_.Of(kTypes));
  if (from_float && t->data_type() == pb::TensorProto::DOUBLE) {
    const std::vector<double> wide(floats.begin(), floats.end());
    t->set_raw_data(wide.data(), wide.size() * sizeof(double));
  }
  if (from_float && t->data_type() == pb::TensorProto::BFLOAT16) {
    std::string raw;
    for (const float f : floats) raw.append(reinterpret_cast<const char*>(&f) + 2, 2);
    t->set_raw_data(raw);
  }
  if (!random_.OneIn(8)) Fit(*t);
}

void Mutator::TensorNumbers() {
  pb::TensorProto* t = SomeTensor();
  if (t == nullptr || t->raw_data().size() > (1 << 22)) return;
  MakeRaw(*t);
  std::string* raw = t->mutable_raw_data();
  if (random_.OneIn(5)) return SpoilBytes(random_, *raw);
  if (t->data_type() == pb::TensorProto::INT64) {
    std::vector<int64_t> v(raw->size() / sizeof(int64_t));
    std::memcpy(v.data(), raw->data(), v.size() * sizeof(int64_t));
    if (!v.empty()) v[static_cast<size_t>(random_.Below(static_cast<int64_t>(v.size())))] = SomeInt(random_, v[0]);
    return raw->assign(reinterpret_cast<const char*>(v.data()), v.size() * sizeof(int64_t)), void();
  }
  if (t->data_type() != pb::TensorProto::FLOAT) return SpoilBytes(random_, *raw), Fit(*t);
  std::vector<float> v(raw->size() / sizeof(float));
  std::memcpy(v.data(), raw->data(), v.size() * sizeof(float));
  if (v.empty()) return;
  const bool all = random_.OneIn(2);
  const float f = SomeFloat(random_, v[0]);
  const int how = random_.Int(3);
  for (size_t n = all ? v.size() : 1; n > 0; --n) {
    float& x = all ? v[n - 1] : v[static_cast<size_t>(random_.Below(static_cast<int64_t>(v.size())))];
    x = how == 0 ? f : how == 1 ? x * f : SomeFloat(random_, x);
  }
  raw->assign(reinterpret_cast<const char*>(v.data()), v.size() * sizeof(float));
}

// A constant that becomes an input, an input with a default, a Constant node, external data, or sparse.
void Mutator::TensorPlace() {
  pb::GraphProto& graph = *model_.mutable_graph();
  if (graph.initializer_size() == 0) return;
  const int at = random_.Int(graph.initializer_size());
  pb::TensorProto t = graph.initializer(at);
  switch (random_.Int(5)) {
    case 0:
    case 1: {
      auto* input = graph.add_input();
      input->set_name(t.name());
      auto* type = input->mutable_type()->mutable_tensor_type();
      type->set_elem_type(t.data_type());
      for (const int64_t dim : t.dims()) type->mutable_shape()->add_dim()->set_dim_value(dim);
      if (random_.OneIn(2)) graph.mutable_initializer()->DeleteSubrange(at, 1);
      return;
    }
    case 2: {
      graph.mutable_initializer()->DeleteSubrange(at, 1);
      pb::NodeProto& node = AddNodeAt(graph, 0);
      node.set_op_type("Constant"), node.add_output(t.name());
      auto* value = node.add_attribute();
      value->set_name("value"), value->set_type(pb::AttributeProto::TENSOR);
      value->mutable_t()->Swap(&t);
      return;
    }
    case 3: {
      pb::TensorProto& outside = *graph.mutable_initializer(at);
      outside.set_data_location(pb::TensorProto::EXTERNAL);
      if (random_.OneIn(2)) outside.clear_raw_data();
      for (const char* key : {"location", "offset", "length"}) {
        auto* entry = outside.add_external_data();
        entry->set_key(key);
        entry->set_value(*key == 'l' && key[1] == 'o' && random_.OneIn(2) ? "data"
                         : random_.OneIn(2)                               ? SomeString(random_, "0")
                                                                          : "64");
      }
      return;
    }
    default: {
      auto* sparse = graph.add_sparse_initializer();
      *sparse->mutable_values() = t;
      sparse->mutable_indices()->set_data_type(pb::TensorProto::INT64);
      for (const int64_t dim : t.dims()) sparse->add_dims(dim);
      for (int i = 0; i < random_.Int(5); ++i) sparse->mutable_indices()->add_int64_data(SomeInt(random_, i));
      sparse->mutable_indices()->add_dims(sparse->indices().int64_data_size());
    }
  }
}

void Mutator::Opset() {
  if (model_.opset_import_size() == 0 || random_.OneIn(8)) model_.add_opset_import()->set_version(17);
  auto* opset = model_.mutable_opset_import(random_.Int(model_.opset_import_size()));
  opset->set_version(random_.OneIn(5) ? SomeInt(random_, opset->version()) : 6 + random_.Int(20));
  if (random_.OneIn(8)) model_.set_ir_version(SomeInt(random_, model_.ir_version()));
}

// A node becomes the body of a function that it calls; now and then one that calls itself.
void Mutator::IntoFunction() {
  pb::NodeProto* node = SomeNode(SomeGraph());
  if (node == nullptr) return;
  pb::FunctionProto& f = *model_.add_functions();
  f.set_domain(random_.OneIn(4) ? "octavo" : "local");
  f.set_name(model_.functions_size() > 1 && random_.OneIn(8) ? model_.functions(0).name() : Fresh());
  *f.mutable_opset_import() = model_.opset_import();
  pb::NodeProto& body = *f.add_node();
  body = *node;
  const auto rename = [](auto& names, const char* prefix, auto* ports) {
    for (int i = 0; i < names.size(); ++i) {
      if (names.Get(i).empty()) continue;
      *names.Mutable(i) = prefix + std::to_string(i);
      *ports->Add() = names.Get(i);
    }
  };
  rename(*body.mutable_input(), "i", f.mutable_input());
  rename(*body.mutable_output(), "o", f.mutable_output());
  for (auto* list : {node->mutable_input(), node->mutable_output()})
    list->erase(std::remove(list->begin(), list->end(), std::string()), list->end());
  node->clear_attribute();
  node->set_op_type(f.name()), node->set_domain(f.domain());
  if (random_.OneIn(12)) body.set_op_type(f.name()), body.set_domain(f.domain());
  auto* opset = model_.add_opset_import();
  opset->set_domain(f.domain()), opset->set_version(1);
}

// A node moves into both branches of an If, or into the body of a Loop.
void Mutator::IntoBranch() {
  pb::GraphProto& graph = SomeGraph();
  pb::NodeProto* node = SomeNode(graph);
  if (node == nullptr || node->output_size() == 0) return;
  pb::NodeProto inner = *node;
  const bool loop = random_.OneIn(3);
  const auto body = [&](pb::AttributeProto* a, const char* name) {
    a->set_name(name), a->set_type(pb::AttributeProto::GRAPH);
    pb::GraphProto& g = *a->mutable_g();
    g.set_name(Fresh());
    if (loop) {
      for (const char* port : {"iteration", "go"}) {
        auto* in = g.add_input();
        in->set_name(port);
        auto* type = in->mutable_type()->mutable_tensor_type();
        type->set_elem_type(*port == 'i' ? pb::TensorProto::INT64 : pb::TensorProto::BOOL), type->mutable_shape();
      }
      g.add_output()->set_name("go");
    }
    *g.add_node() = inner;
    for (std::string& output : *g.mutable_node(0)->mutable_output()) {
      if (output.empty()) output = Fresh();
      output += "_in";
      g.add_output()->set_name(output);
    }
  };
  node->clear_attribute(), node->clear_input(), node->clear_domain();
  node->set_op_type(loop ? "Loop" : "If");
  pb::TensorProto& flag = AddScalar(graph, pb::TensorProto::BOOL, random_.Int(2));
  if (loop) node->add_input(AddScalar(graph, pb::TensorProto::INT64, random_.Int(3)).name());
  node->add_input(flag.name());
  body(node->add_attribute(), loop ? "body" : "then_branch");
  if (!loop) body(node->add_attribute(), "else_branch");
}

}  // namespace octavo::fuzz
