#include "octavo/fuzz/convolutions.h"

#include <onnx/onnx_pb.h>

#include <vector>

namespace octavo::fuzz {

namespace {

namespace pb = ::onnx;
using Ints = std::vector<int64_t>;

class Maker {
 public:
  explicit Maker(Random& random) : random_(random), graph_(*model_.mutable_graph()), axes_(Axes()) {}

  std::string Make() {
    model_.set_ir_version(8);
    model_.add_opset_import()->set_version(18);
    graph_.set_name("g");
    Input();
    Convolution(/*transposed=*/false);
    using Step = void (Maker::*)();
    static constexpr Step kSteps[] = {
        &Maker::Conv,      &Maker::Conv,      &Maker::Conv, &Maker::Conv,   &Maker::ConvTranspose, &Maker::Activation,
        &Maker::HardSwish, &Maker::Pool,      &Maker::Pool, &Maker::Affine, &Maker::Affine,        &Maker::Resize,
        &Maker::Gate,      &Maker::BatchNorm, &Maker::Join, &Maker::Mean,   &Maker::Channels,      &Maker::Turn};
    for (int n = 1 + random_.Int(7); n > 0; --n) (this->*random_.Of(kSteps))();
    if (random_.OneIn(4)) Tokens();
    auto* output = graph_.add_output();
    output->set_name(now_);
    output->mutable_type()->mutable_tensor_type()->set_elem_type(pb::TensorProto::FLOAT);
    return model_.SerializeAsString();
  }

 private:
  // Images most often.
  size_t Axes() { return random_.OneIn(3) ? 1 + static_cast<size_t>(random_.Int(3)) : 2; }
  int64_t From(int64_t low, int64_t high) { return low + random_.Below(high - low + 1); }
  Ints Many(size_t n, int64_t low, int64_t high) {
    Ints all(n);
    for (int64_t& x : all) x = From(low, high);
    return all;
  }

  void Input() {
    auto* input = graph_.add_input();
    input->set_name(now_ = "x");
    auto* type = input->mutable_type()->mutable_tensor_type();
    type->set_elem_type(pb::TensorProto::FLOAT);
    channels_ = From(1, 9);
    const auto dim = [&](const std::string& symbol, int64_t size) {
      auto* d = type->mutable_shape()->add_dim();
      if (random_.OneIn(3) && axes_ < 3)  // a symbol gets sizes that three axes make much of
        d->set_dim_param(symbol);
      else
        d->set_dim_value(size);
    };
    dim("batch", From(1, 3));
    type->mutable_shape()->add_dim()->set_dim_value(channels_);
    for (size_t i = 0; i < axes_; ++i) dim("d" + std::to_string(i), From(3, axes_ == 3 ? 8 : 16));
  }

  pb::NodeProto& Node(const char* op, const std::vector<std::string>& inputs) {
    pb::NodeProto& node = *graph_.add_node();
    node.set_op_type(op);
    for (const std::string& i : inputs) node.add_input(i);
    node.add_output(now_ = "v" + std::to_string(graph_.node_size()));
    return node;
  }
  static void Set(pb::NodeProto& node, const char* name, int64_t value) {
    auto* a = node.add_attribute();
    a->set_name(name), a->set_type(pb::AttributeProto::INT), a->set_i(value);
  }
  static void Set(pb::NodeProto& node, const char* name, const Ints& values) {
    auto* a = node.add_attribute();
    a->set_name(name), a->set_type(pb::AttributeProto::INTS);
    for (const int64_t v : values) a->add_ints(v);
  }
  static void Set(pb::NodeProto& node, const char* name, const char* value) {
    auto* a = node.add_attribute();
    a->set_name(name), a->set_type(pb::AttributeProto::STRING), a->set_s(value);
  }

  pb::TensorProto& Tensor(int type, const Ints& shape) {
    pb::TensorProto& t = *graph_.add_initializer();
    t.set_name("c" + std::to_string(graph_.initializer_size()));
    t.set_data_type(type);
    for (const int64_t d : shape) t.add_dims(d);
    return t;
  }
  std::string Floats(const Ints& shape, float low, float high) {
    pb::TensorProto& t = Tensor(pb::TensorProto::FLOAT, shape);
    int64_t count = 1;
    for (const int64_t d : shape) count *= d;
    for (; count > 0; --count)
      t.add_float_data(low + (high - low) * static_cast<float>(random_.Below(1 << 20)) * 0x1p-20f);
    return t.name();
  }
  std::string Whole(const Ints& values) {
    pb::TensorProto& t = Tensor(pb::TensorProto::INT64, {static_cast<int64_t>(values.size())});
    for (const int64_t v : values) t.add_int64_data(v);
    return t.name();
  }

  void Convolution(bool transposed) {
    int64_t groups = random_.OneIn(2) ? 1 : random_.OneIn(2) ? channels_ : 2;
    if (channels_ % groups != 0) groups = 1;
    const int64_t filters = groups * From(1, random_.OneIn(8) ? 40 : 8);
    Ints weights = transposed ? Ints{channels_, filters / groups} : Ints{filters, channels_ / groups};
    const Ints window = random_.OneIn(3) ? Ints(axes_, 1) : Many(axes_, 1, axes_ == 3 ? 3 : 5);
    weights.insert(weights.end(), window.begin(), window.end());
    std::vector<std::string> inputs{now_, Floats(weights, -0.4f, 0.4f)};
    if (random_.OneIn(2)) inputs.push_back(Floats({filters}, -1, 1));
    pb::NodeProto& node = Node(transposed ? "ConvTranspose" : "Conv", inputs);
    Set(node, "group", groups);
    const Ints strides = random_.OneIn(2) ? Many(axes_, 1, 3) : Ints();
    if (!strides.empty()) Set(node, "strides", strides);
    if (random_.OneIn(4)) Set(node, "dilations", Many(axes_, 1, 3));
    if (random_.OneIn(6))
      Set(node, "auto_pad", random_.OneIn(2) ? "SAME_UPPER" : random_.OneIn(2) ? "SAME_LOWER" : "VALID");
    else if (random_.OneIn(2))
      Set(node, "pads", Many(2 * axes_, 0, 2));
    if (transposed && random_.OneIn(3)) Set(node, "output_padding", Many(axes_, 0, 1));
    channels_ = filters;
  }
  void Conv() { Convolution(false); }
  void ConvTranspose() { Convolution(true); }

  void Activation() {
    static constexpr const char* kOps[] = {"Relu",      "Sigmoid", "HardSigmoid", "HardSwish",
                                           "LeakyRelu", "Elu",     "Tanh",        "Softplus"};
    Node(random_.Of(kOps), {now_});
  }
  // Written out, as torch's exporter does.
  void HardSwish() {
    const std::string x = now_;
    Node("Add", {x, Floats({}, 3, 3)});
    Node("Clip", {now_, Floats({}, 0, 0), Floats({}, 6, 6)});
    if (random_.OneIn(2)) {
      Node("Mul", {x, now_});
      Node("Div", {now_, Floats({}, 6, 6)});
    } else {
      Node("Div", {now_, Floats({}, 6, 6)});
      Node("Mul", {now_, x});
    }
  }
  void Pool() {
    const bool average = random_.OneIn(2);
    pb::NodeProto& node = Node(average ? "AveragePool" : "MaxPool", {now_});
    Set(node, "kernel_shape", Many(axes_, 1, 3));
    if (random_.OneIn(2)) Set(node, "strides", Many(axes_, 1, 3));
    if (random_.OneIn(2)) Set(node, "pads", Many(2 * axes_, 0, 1));
    if (random_.OneIn(4)) Set(node, "dilations", Many(axes_, 1, 2));
    if (random_.OneIn(3)) Set(node, "ceil_mode", 1);
    if (average && random_.OneIn(2)) Set(node, "count_include_pad", 1);
  }
  // A number for each channel, for all of them, or for each place of the last axis by chance.
  void Affine() {
    Ints shape(axes_ + 1, 1);
    if (random_.OneIn(3)) shape.insert(shape.begin(), 1);
    if (!random_.OneIn(4)) shape[shape.size() - axes_ - 1] = channels_;
    const std::string constant = Floats(shape, -1.5f, 1.5f);
    static constexpr const char* kOps[] = {"Mul", "Add", "Sub", "Div"};
    const char* op = random_.Of(kOps);
    if (random_.OneIn(2))
      Node(op, {now_, constant});
    else
      Node(op, {constant, now_});
  }
  void BatchNorm() {
    const auto each = [&](float low) { return Floats({channels_}, low, 1.5f); };
    Node("BatchNormalization", {now_, each(-1.5f), each(-1.5f), each(-1.5f), each(0.1f)});
  }
  void Resize() {
    Ints sizes(axes_ + 2, 1);
    std::vector<std::string> inputs{now_, "", ""};
    if (random_.OneIn(4)) {
      for (size_t i = 2; i < sizes.size(); ++i) sizes[i] = From(1, axes_ == 3 ? 8 : 20);
      inputs.push_back(Whole({sizes.begin() + 2, sizes.end()}));
    } else {
      pb::TensorProto& t = Tensor(pb::TensorProto::FLOAT, {static_cast<int64_t>(axes_)});
      static constexpr float kScales[] = {0.5f, 1, 1.5f, 2, 2, 3};
      for (size_t i = 0; i < axes_; ++i) t.add_float_data(random_.Of(kScales));
      inputs[2] = t.name();
    }
    pb::NodeProto& node = Node("Resize", inputs);
    Ints places(axes_);
    for (size_t i = 0; i < axes_; ++i) places[i] = static_cast<int64_t>(i) + 2;
    Set(node, "axes", places);
    static constexpr const char* kModes[] = {"nearest", "linear", "linear", "cubic"};
    static constexpr const char* kPlaces[] = {"half_pixel", "asymmetric", "pytorch_half_pixel", "align_corners"};
    static constexpr const char* kNearest[] = {"round_prefer_floor", "round_prefer_ceil", "floor", "ceil"};
    const char* mode = random_.Of(kModes);
    Set(node, "mode", mode);
    Set(node, "coordinate_transformation_mode", random_.Of(kPlaces));
    if (mode == kModes[0]) Set(node, "nearest_mode", random_.Of(kNearest));
  }
  // Squeeze and excitation.
  void Gate() {
    const std::string x = now_;
    if (random_.OneIn(2)) {
      Node("GlobalAveragePool", {x});
    } else {
      Ints places(axes_);
      for (size_t i = 0; i < axes_; ++i) places[i] = static_cast<int64_t>(i) + 2;
      Node("ReduceMean", {x, Whole(places)});
    }
    if (random_.OneIn(2)) Node("Conv", {now_, Floats(Square(), -0.4f, 0.4f)});
    Node(random_.OneIn(2) ? "Sigmoid" : "HardSigmoid", {now_});
    Node("Mul", {x, now_});
  }
  // The weights of a convolution over one pixel that keeps the channels.
  Ints Square() const {
    Ints shape{channels_, channels_};
    shape.resize(2 + axes_, 1);
    return shape;
  }
  // Two branches of one value: a sum, or their channels one behind the other.
  void Join() {
    const std::string x = now_;
    Node("Conv", {x, Floats(Square(), -0.4f, 0.4f)});
    if (random_.OneIn(2)) Activation();
    if (random_.OneIn(2)) return (void)Node(random_.OneIn(3) ? "Mul" : "Add", {now_, x});
    Set(Node("Concat", {x, now_}), "axis", 1);
    channels_ *= 2;
  }
  // Over some axes, kept.
  void Mean() {
    if (!random_.OneIn(3)) return;
    Node("ReduceMean", {now_, Whole({From(1, static_cast<int64_t>(axes_) + 1)})});
    if (graph_.initializer(graph_.initializer_size() - 1).int64_data(0) == 1) channels_ = 1;
  }
  // Some of the channels.
  void Channels() {
    if (channels_ < 2) return;
    const int64_t end = From(1, channels_);
    Node("Slice", {now_, Whole({0}), Whole({end}), Whole({1})});
    channels_ = end;
  }
  // To channels last and back, with something between that knows no axes.
  void Turn() {
    Ints last{0}, first{0, static_cast<int64_t>(axes_) + 1};
    for (size_t i = 0; i < axes_; ++i) {
      last.push_back(static_cast<int64_t>(i) + 2);
      first.push_back(static_cast<int64_t>(i) + 1);
    }
    last.push_back(1);
    Set(Node("Transpose", {now_}), "perm", last);
    if (random_.OneIn(2)) Node("Relu", {now_});
    if (random_.OneIn(2)) Set(Node("Softmax", {now_}), "axis", -1);
    Set(Node("Transpose", {now_}), "perm", first);
  }
  void Tokens() {
    Node("Reshape", {now_, Whole({0, channels_, -1})});
    Set(Node("Transpose", {now_}), "perm", Ints{0, 2, 1});
    Node("MatMul", {now_, Floats({channels_, 4}, -0.4f, 0.4f)});
  }

  Random& random_;
  pb::ModelProto model_;
  pb::GraphProto& graph_;
  const size_t axes_;
  std::string now_;  // the last value, and the number of its channels
  int64_t channels_ = 1;
};

}  // namespace

std::string RandomConvolutions(Random& random) { return Maker(random).Make(); }

}  // namespace octavo::fuzz
