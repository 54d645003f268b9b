// Einsum: each operand's diagonal is taken, operands are joined from left to right as batched matrix products
// (products.h), labels that nobody needs any more are summed.
#include <algorithm>
#include <map>

#include "octavo/ir/interpret/products.h"
#include "octavo/ir/interpret/strided.h"
#include "octavo/ir/interpret/types.h"

namespace octavo::ir::interpret {

namespace {

using Labels = std::vector<int>;  // characters; dims of an ellipsis are numbered from 1000 at the right end
constexpr int kEllipsis = 1000;

bool Holds(const Labels& labels, int label) { return std::find(labels.begin(), labels.end(), label) != labels.end(); }

struct Equation {
  std::vector<Labels> operands;
  Labels output;
  std::map<int, int64_t> sizes;
};

// One term, "i...j", for an operand of `rank` dims (-1: the output, whose ellipsis has `ellipsis` dims).
Result<Labels> ParseTerm(std::string_view term, int64_t rank, int64_t ellipsis) {
  Labels labels;
  const size_t dots = term.find("...");
  const int64_t letters = static_cast<int64_t>(term.size()) - (dots == std::string_view::npos ? 0 : 3);
  if (rank >= 0) ellipsis = rank - letters;
  if (ellipsis < 0 || (dots == std::string_view::npos && rank >= 0 && ellipsis != 0)) {
    return Fail("the term '{}' does not fit an operand of rank {}", term, rank);
  }
  for (size_t i = 0; i < term.size(); ++i) {
    if (i == dots) {
      for (int64_t e = ellipsis; e-- > 0;) labels.push_back(kEllipsis + static_cast<int>(e));
      i += 2;
      continue;
    }
    const char c = term[i];
    if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'))) return Fail("'{}' in the term '{}' is no label", c, term);
    labels.push_back(c);
  }
  return labels;
}

Result<Equation> Parse(const Call& call) {
  std::string text = call.node.attrs.Str("equation", "");
  std::erase(text, ' ');
  const size_t arrow = text.find("->");
  std::string_view rest = std::string_view(text).substr(0, arrow);
  Equation e;
  int64_t ellipsis = 0;
  for (size_t i = 0; i < call.in.size(); ++i) {
    const size_t comma = rest.find(',');
    if ((comma == std::string_view::npos) != (i + 1 == call.in.size())) {
      return Fail("the equation '{}' does not name {} operands", text, call.in.size());
    }
    if (!call.Has(i) || call.T(i).dtype() != call.T(0).dtype())
      return Fail("the operands have different element types");
    OCTAVO_TRY(Labels labels, ParseTerm(rest.substr(0, comma), call.T(i).rank(), 0));
    for (size_t d = 0; d < labels.size(); ++d) {
      const int64_t size = call.T(i).shape()[d];
      if (labels[d] >= kEllipsis) ellipsis = std::max<int64_t>(ellipsis, labels[d] - kEllipsis + 1);
      int64_t& known = e.sizes.try_emplace(labels[d], 1).first->second;
      if (size != 1 && known != 1 && size != known)
        return Fail("a label of '{}' has sizes {} and {}", text, known, size);
      if (size != 1) known = size;
    }
    e.operands.push_back(std::move(labels));
    rest = comma == std::string_view::npos ? std::string_view() : rest.substr(comma + 1);
  }
  if (arrow != std::string::npos) {
    OCTAVO_TRY(e.output, ParseTerm(std::string_view(text).substr(arrow + 2), -1, ellipsis));
  } else {
    for (int64_t d = ellipsis; d-- > 0;) e.output.push_back(kEllipsis + static_cast<int>(d));
    for (const auto& [label, size] : e.sizes) {  // letters that occur once, in order
      size_t times = 0;
      for (const Labels& l : e.operands) times += static_cast<size_t>(std::count(l.begin(), l.end(), label));
      if (times == 1 && label < kEllipsis) e.output.push_back(label);
    }
  }
  for (size_t i = 0; i < e.output.size(); ++i) {
    if (!e.sizes.contains(e.output[i]) || std::count(e.output.begin(), e.output.end(), e.output[i]) != 1) {
      return Fail("the output of '{}' repeats a label or names an unknown one", text);
    }
  }
  return e;
}

// A dense tensor whose dims carry distinct labels.
struct Term {
  Tensor data;
  Labels labels;
};

// x with dims in the order of `labels`; a label x lacks is a broadcast dim; repeated labels of `from` give the
// diagonal.
Result<Term> Arranged(const Tensor& x, const Labels& from, const Labels& labels, const std::map<int, int64_t>& sizes) {
  const auto strides = StridesOf(x.shape());
  Shape shape;
  std::vector<int64_t> steps;
  for (int label : labels) {
    int64_t step = 0;
    for (size_t d = 0; d < from.size(); ++d) {
      if (from[d] == label && x.shape()[d] != 1) step += strides[d];
    }
    shape.push_back(sizes.at(label));
    steps.push_back(step);
  }
  OCTAVO_TRY(Tensor y, Alloc(x.dtype(), shape));
  CopyStrided(x.data(), steps, y.mutable_data(), StridesOf(shape), shape,
              static_cast<size_t>(quant::BitsOf(x.dtype()) / 8));
  return Term{std::move(y), labels};
}

// Sums the dims that are not in `keep`, in row-major order.
Result<Term> SumAway(const Term& t, const Labels& keep) {
  Labels kept;
  Shape shape, full;
  for (size_t d = 0; d < t.labels.size(); ++d) {
    const bool stays = Holds(keep, t.labels[d]);
    if (stays) kept.push_back(t.labels[d]);
    if (stays) shape.push_back(t.data.shape()[d]);
    full.push_back(stays ? t.data.shape()[d] : 1);
  }
  if (kept.size() == t.labels.size()) return t;
  std::vector<int64_t> steps = StridesOf(full);
  for (size_t d = 0; d < full.size(); ++d) steps[d] = Holds(keep, t.labels[d]) ? steps[d] : 0;
  const auto space = MakeSpace<2>(t.data.shape(), {StridesOf(t.data.shape()), steps});
  OCTAVO_TRY(Tensor y, AllocZeros(t.data.dtype(), shape));
  const auto run = [&]<typename T>() {
    const int64_t step = space.strides.back()[1];
    ForEachRow(space, [&](const std::array<int64_t, 2>& at) {
      for (int64_t i = 0; i < space.dims.back(); ++i) MutablePtr<T>(y)[at[1] + i * step] += Ptr<T>(t.data)[at[0] + i];
    });
  };
  if (y.dtype() == DType::kF32) run.operator()<float>();
  if (y.dtype() == DType::kF64) run.operator()<double>();
  if (y.dtype() == DType::kU64) run.operator()<uint64_t>();
  return Term{std::move(y), std::move(kept)};
}

// a times b, summed over the labels that both have and nobody needs.
Result<Term> Join(const Term& a, const Term& b, const Labels& needed, const std::map<int, int64_t>& sizes) {
  Labels batch, rows, columns, inner;
  for (int l : a.labels) (Holds(b.labels, l) ? (Holds(needed, l) ? batch : inner) : rows).push_back(l);
  for (int l : b.labels) {
    if (!Holds(a.labels, l)) columns.push_back(l);
  }
  const auto join = [](Labels x, const Labels& y, const Labels& z) {
    x.insert(x.end(), y.begin(), y.end());
    x.insert(x.end(), z.begin(), z.end());
    return x;
  };
  const auto count = [&](const Labels& labels) {
    int64_t n = 1;
    for (int l : labels) n *= sizes.at(l);
    return n;
  };
  OCTAVO_TRY(const Term x, Arranged(a.data, a.labels, join(batch, rows, inner), sizes));
  OCTAVO_TRY(const Term w, Arranged(b.data, b.labels, join(batch, inner, columns), sizes));
  Term y{{}, join(batch, rows, columns)};
  Shape shape;
  for (int l : y.labels) shape.push_back(sizes.at(l));
  OCTAVO_TRY(y.data, AllocZeros(x.data.dtype(), shape));
  const int64_t m = count(rows), k = count(inner), n = count(columns);
  const int64_t products = m * k * n == 0 ? 0 : count(batch);
  const auto run = [&]<typename T>(auto multiply) {
    for (int64_t i = 0; i < products; ++i) {
      multiply(Ptr<T>(x.data) + i * m * k, Ptr<T>(w.data) + i * k * n, MutablePtr<T>(y.data) + i * m * n, m, k, n);
    }
  };
  if (x.data.dtype() == DType::kF32) run.operator()<float>(MultiplyF32);
  if (x.data.dtype() == DType::kF64) run.operator()<double>(MultiplyF64);
  if (x.data.dtype() == DType::kU64) run.operator()<uint64_t>(MultiplyU64);
  return y;
}

Labels Distinct(const Labels& labels) {
  Labels d;
  for (int l : labels) {
    if (!Holds(d, l)) d.push_back(l);
  }
  return d;
}

Status Einsum(Call& call) {
  const DType type = call.T(0).dtype();
  const bool is_float = quant::IsComputedFloat(type);
  if (!is_float && !quant::IsInteger(type)) return BadType(type);
  const DType mid = type == DType::kF64 ? DType::kF64 : (is_float ? DType::kF32 : DType::kU64);
  OCTAVO_TRY(const Equation e, Parse(call));
  Term all;
  for (size_t i = 0; i < call.in.size(); ++i) {
    OCTAVO_TRY(const Tensor x, CastTo(call.T(i), mid));
    // Dims of size 1 that stand for more stay out: another operand has the label.
    Labels own;
    for (size_t d = 0; d < e.operands[i].size(); ++d) {
      const int label = e.operands[i][d];
      bool repeats = true;
      for (size_t k = 0; k < e.operands[i].size(); ++k) {
        repeats &= e.operands[i][k] != label || (x.shape()[k] == 1 && e.sizes.at(label) != 1);
      }
      if (!repeats) own.push_back(label);
    }
    OCTAVO_TRY(Term t, Arranged(x, e.operands[i], Distinct(own), e.sizes));
    Labels needed = e.output;
    for (size_t k = i + 1; k < call.in.size(); ++k) {
      needed.insert(needed.end(), e.operands[k].begin(), e.operands[k].end());
    }
    Labels before = needed;  // what the new term must keep: also what it shares with the product so far
    before.insert(before.end(), all.labels.begin(), all.labels.end());
    OCTAVO_TRY(t, SumAway(t, before));
    if (i > 0) {
      Labels shared = needed;
      shared.insert(shared.end(), t.labels.begin(), t.labels.end());
      OCTAVO_TRY(all, SumAway(all, shared));
      OCTAVO_TRY(t, Join(all, t, needed, e.sizes));
    }
    all = std::move(t);
  }
  OCTAVO_TRY(all, SumAway(all, e.output));
  OCTAVO_TRY(const Term result, Arranged(all.data, all.labels, e.output, e.sizes));
  OCTAVO_TRY(Tensor y, CastTo(result.data, type));
  call.Return(std::move(y));
  return {};
}

}  // namespace

void RegisterEinsum(Table& t) { t.Set(Op::kEinsum, Einsum); }

}  // namespace octavo::ir::interpret
