// Rules of ops on sequences, signals, drawn numbers, texts and labels.
#include "octavo/ir/infer_rules.h"

namespace octavo::ir {

namespace {

// GRU, LSTM, RNN: y [s, directions, b, hidden], then the last states [directions, b, hidden]; layout 1: b before the others.
Status Recurrent(Inferrer& c) {
  const SymShape *x = c.ShapeOf(0), *r = c.ShapeOf(2);
  for (size_t i = 0; i < c.node().outputs.size(); ++i) c.Set(i, c.DtypeOf(0), std::nullopt);
  if (x == nullptr || r == nullptr || x->size() != 3 || r->size() != 3) return {};
  const Dim directions = (*r)[0], hidden = (*r)[2];
  const bool batch_first = c.node().attrs.Int("layout", 0) != 0;
  const Dim batch = (*x)[batch_first ? 0 : 1], steps = (*x)[batch_first ? 1 : 0];
  c.Set(0, c.DtypeOf(0),
        batch_first ? SymShape{batch, steps, directions, hidden} : SymShape{steps, directions, batch, hidden});
  const SymShape state = batch_first ? SymShape{batch, directions, hidden} : SymShape{directions, batch, hidden};
  for (size_t i = 1; i < c.node().outputs.size(); ++i) c.Set(i, c.DtypeOf(0), state);
  return {};
}

Status CausalConv(Inferrer& c) {
  const SymShape *x = c.ShapeOf(0), *w = c.ShapeOf(1);
  c.Set(0, c.DtypeOf(0), c.CopyOf(0));
  MaybeShape state = c.CopyOf(3);
  if (!state && x != nullptr && x->size() == 3 && w != nullptr && w->size() == 3)
    state = SymShape{(*x)[0], (*x)[1], (*w)[2] + Dim(-1)};
  ForgetNegative(state);
  c.Set(1, c.DtypeOf(0), std::move(state));
  return {};
}

// q [B, T, Hq * dk], k [B, T, H * dk], v [B, T, H * dv] -> [B, T, Hq * dv], [B, H, dk, dv]
Status LinearAttention(Inferrer& c) {
  const SymShape *q = c.ShapeOf(0), *k = c.ShapeOf(1), *v = c.ShapeOf(2);
  const Dim q_heads(c.node().attrs.Int("q_num_heads", 0)), heads(c.node().attrs.Int("kv_num_heads", 0));
  if (heads.number() < 1 || q_heads.number() < 1) return c.Refuse("q_num_heads and kv_num_heads must be positive");
  MaybeShape out, state = c.CopyOf(3);
  if (q != nullptr && q->size() == 3 && v != nullptr && v->size() == 3) {
    const Dim width = ExactDiv(v->back(), heads);
    out = SymShape{(*q)[0], (*q)[1], width * q_heads};
    if (!state && k != nullptr && k->size() == 3) state = SymShape{(*q)[0], heads, ExactDiv(k->back(), heads), width};
  }
  c.Set(0, c.DtypeOf(0), std::move(out));
  c.Set(1, c.Has(3) ? c.DtypeOf(3) : c.DtypeOf(0), std::move(state));
  return {};
}

// q [B, H, L, D], v [B, G, S, Dv]
Status FlexAttention(Inferrer& c) {
  MaybeShape out = c.CopyOf(0);
  const SymShape* v = c.ShapeOf(2);
  if (out && out->size() != 4) return c.Refuse("Q must have rank 4");
  if (out) out->back() = v != nullptr && v->size() == 4 ? v->back() : Dim();
  c.Set(0, c.DtypeOf(0), std::move(out));
  return {};
}

// floor(n / 2) + 1, where it can be told
Dim HalfOf(const Dim& n) { return n.is_number() && n.number() >= 0 ? Dim(n.number() / 2 + 1) : Dim(); }

Dim NumberAt(const Inferrer& c, size_t input) {
  const SymContents* contents = c.Contents(input);
  return contents != nullptr && contents->size() == 1 ? contents->front() : Dim();
}

Status Dft(Inferrer& c) {
  MaybeShape out = c.CopyOf(0);
  c.Set(0, c.DtypeOf(0), std::nullopt);
  if (!out || out->size() < 2) return {};
  const bool onesided = c.node().attrs.Int("onesided", 0) != 0, inverse = c.node().attrs.Int("inverse", 0) != 0;
  const auto axes = c.Numbers(2);
  out->back() = Dim(onesided && inverse ? 1 : 2);
  if (c.Has(2) && (!axes || axes->size() != 1)) {
    for (size_t d = 0; d + 1 < out->size(); ++d) (*out)[d] = Dim();
  } else {
    OCTAVO_TRY(const int64_t axis, c.Axis(axes ? (*axes)[0] : -2, static_cast<int64_t>(out->size())));
    if (axis == static_cast<int64_t>(out->size()) - 1)
      return c.Refuse("its axis is the last one, of real and imaginary parts");
    Dim& n = (*out)[static_cast<size_t>(axis)];
    if (c.Has(1)) n = NumberAt(c, 1);
    if (onesided && inverse && !c.Has(1)) n = (n + Dim(-1)) * Dim(2);
    if (onesided && !inverse) n = HalfOf(n);
  }
  ForgetNegative(out);
  c.Set(0, c.DtypeOf(0), std::move(out));
  return {};
}

Status Stft(Inferrer& c) {
  const SymShape *x = c.ShapeOf(0), *window = c.ShapeOf(2);
  SymShape out(4);
  out[3] = Dim(2);
  const Dim length = x != nullptr && x->size() > 1 ? (*x)[1] : Dim();
  if (x != nullptr && !x->empty()) out[0] = (*x)[0];
  Dim frame = c.Has(3) ? NumberAt(c, 3) : length;
  if (!c.Has(3) && c.Has(2)) frame = window != nullptr && window->size() == 1 ? (*window)[0] : Dim();
  out[2] = c.node().attrs.Int("onesided", 1) != 0 ? HalfOf(frame) : frame;
  const Dim step = NumberAt(c, 1), room = length - frame;
  if (room.is_number() && step.is_number() && step.number() > 0 && room.number() >= 0)
    out[1] = Dim(room.number() / step.number() + 1);
  c.Set(0, c.DtypeOf(0), std::move(out));
  return {};
}

DType TypeOr(const Inferrer& c, std::string_view attr, DType fallback) {
  return c.node().attrs.Has(attr) ? DTypeOfAttr(c, attr) : fallback;
}

Status WindowTable(Inferrer& c) {
  MaybeShape out = SymShape{NumberAt(c, 0)};
  ForgetNegative(out);
  c.Set(0, TypeOr(c, "output_datatype", DType::kF32), std::move(out));
  return {};
}

Status MelWeightMatrix(Inferrer& c) {
  MaybeShape out = SymShape{HalfOf(NumberAt(c, 1)), NumberAt(c, 0)};
  ForgetNegative(out);
  c.Set(0, TypeOr(c, "output_datatype", DType::kF32), std::move(out));
  return {};
}

Status Drawn(Inferrer& c) {
  const std::vector<int64_t> sizes = c.node().attrs.Ints("shape");
  MaybeShape out = SymShape(sizes.begin(), sizes.end());
  ForgetNegative(out);
  c.Set(0, TypeOr(c, "dtype", DType::kF32), std::move(out));
  return {};
}
Status DrawnLike(Inferrer& c) {
  c.Set(0, TypeOr(c, "dtype", c.DtypeOf(0)), c.CopyOf(0));
  return {};
}
Status Multinomial(Inferrer& c) {
  const SymShape* x = c.ShapeOf(0);
  MaybeShape out = SymShape{x != nullptr && !x->empty() ? (*x)[0] : Dim(), Dim(c.node().attrs.Int("sample_size", 1))};
  ForgetNegative(out);
  c.Set(0, TypeOr(c, "dtype", DType::kS32), std::move(out));
  return {};
}

// The labels' shape, or one number.
Status Loss(Inferrer& c) {
  c.Set(0, c.DtypeOf(0), c.node().attrs.Str("reduction", "mean") == "none" ? c.CopyOf(1) : SymShape{});
  c.Set(1, c.DtypeOf(0), c.CopyOf(0));
  return {};
}

Status Unique(Inferrer& c) {
  MaybeShape out = SymShape{Dim()};
  if (c.node().attrs.Has("axis")) {
    out = c.CopyOf(0);
    if (out) {
      OCTAVO_TRY(const int64_t axis, c.Axis(c.node().attrs.Int("axis", 0), static_cast<int64_t>(out->size())));
      (*out)[static_cast<size_t>(axis)] = Dim();
    }
  }
  c.Set(0, c.DtypeOf(0), std::move(out));
  for (size_t i = 1; i < c.node().outputs.size(); ++i) c.Set(i, DType::kS64, SymShape{Dim()});
  return {};
}

Status CenterCropPad(Inferrer& c) {
  MaybeShape out = c.CopyOf(0);
  if (out) {
    const SymContents* wanted = c.Contents(1);
    std::vector<int64_t> axes = c.node().attrs.Ints("axes");
    const bool all = !c.node().attrs.Has("axes");
    const size_t count = all ? out->size() : axes.size();
    for (size_t i = 0; i < count; ++i) {
      OCTAVO_TRY(const int64_t axis,
                 c.Axis(all ? static_cast<int64_t>(i) : axes[i], static_cast<int64_t>(out->size())));
      (*out)[static_cast<size_t>(axis)] = wanted != nullptr && wanted->size() == count ? (*wanted)[i] : Dim();
    }
  }
  ForgetNegative(out);
  c.Set(0, c.DtypeOf(0), std::move(out));
  return {};
}

Status StringConcat(Inferrer& c) {
  constexpr size_t kBoth[] = {0, 1};
  OCTAVO_TRY(MaybeShape out, Broadcast(c, kBoth));
  c.Set(0, DType::kString, std::move(out));
  return {};
}

Status StringSplit(Inferrer& c) {
  MaybeShape out = c.CopyOf(0);
  c.Set(1, DType::kS64, out);
  if (out) out->emplace_back();
  c.Set(0, DType::kString, std::move(out));
  return {};
}

// The last dim is another one; how large, the attributes and contents say.
Status OtherLastDim(Inferrer& c) {
  MaybeShape out = c.CopyOf(0);
  if (out && out->empty()) return c.Refuse("the operand is a scalar");
  if (out) out->back() = Dim();
  if (c.node().op == Op::kArrayFeatureExtractor && out && out->size() == 1) out = SymShape{Dim(1), Dim()};
  c.Set(0, c.node().op == Op::kTfIdfVectorizer ? DType::kF32 : c.DtypeOf(0), std::move(out));
  return {};
}

Status LabelEncoder(Inferrer& c) {
  const auto holds = [&]<typename T>(std::string_view name, T) {
    const Attr* attr = c.node().attrs.Find(name);
    return attr != nullptr && std::holds_alternative<std::vector<T>>(*attr);
  };
  DType type = c.node().attrs.TensorOr("values_tensor").dtype();
  if (holds("values_strings", std::string())) type = DType::kString;
  if (holds("values_floats", 0.0f)) type = DType::kF32;
  if (holds("values_int64s", int64_t{0})) type = DType::kS64;
  c.Set(0, type, c.CopyOf(0));
  return {};
}

// The tensors, then one or two states of each: the inputs without the gradients between them.
Status TrainingStep(Inferrer& c) {
  const size_t states = c.node().op == Op::kAdam ? 2 : 1, count = (c.node().inputs.size() - 2) / (2 + states);
  if (c.node().inputs.size() != 2 + count * (2 + states) || c.node().outputs.size() != count * (1 + states)) {
    return c.Refuse("{} inputs and {} outputs do not make tensors with gradients and states", c.node().inputs.size(),
                    c.node().outputs.size());
  }
  for (size_t i = 0; i < c.node().outputs.size(); ++i) {
    const size_t from = 2 + i + (i < count ? 0 : count);
    c.Set(i, c.DtypeOf(from), c.CopyOf(from));
  }
  return {};
}

}  // namespace

Rule SignalRule(Op op) {
  switch (op) {
    case Op::kGRU:
    case Op::kLSTM:
    case Op::kRNN:
      return Recurrent;
    case Op::kCausalConvWithState:
      return CausalConv;
    case Op::kLinearAttention:
      return LinearAttention;
    case Op::kFlexAttention:
      return FlexAttention;
    case Op::kDFT:
      return Dft;
    case Op::kSTFT:
      return Stft;
    case Op::kHannWindow:
    case Op::kHammingWindow:
    case Op::kBlackmanWindow:
      return WindowTable;
    case Op::kMelWeightMatrix:
      return MelWeightMatrix;
    case Op::kRandomNormal:
    case Op::kRandomUniform:
      return Drawn;
    case Op::kRandomNormalLike:
    case Op::kRandomUniformLike:
    case Op::kBernoulli:
      return DrawnLike;
    case Op::kMultinomial:
      return Multinomial;
    case Op::kNegativeLogLikelihoodLoss:
    case Op::kSoftmaxCrossEntropyLoss:
      return Loss;
    case Op::kUnique:
      return Unique;
    case Op::kCenterCropPad:
      return CenterCropPad;
    case Op::kStringConcat:
      return StringConcat;
    case Op::kStringSplit:
      return StringSplit;
    case Op::kStringNormalizer:
    case Op::kTfIdfVectorizer:
    case Op::kArrayFeatureExtractor:
      return OtherLastDim;
    case Op::kLabelEncoder:
      return LabelEncoder;
    case Op::kAdagrad:
    case Op::kAdam:
    case Op::kMomentum:
      return TrainingStep;
    default:
      return nullptr;
  }
}

}  // namespace octavo::ir
