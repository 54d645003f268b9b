// Rules of matrix products: MatMul and its integer forms, Gemm, Einsum.
#include <algorithm>
#include <map>

#include "octavo/ir/infer_rules.h"
#include "octavo/ir/names.h"

namespace octavo::ir {

namespace {

// [..., M, K] x [..., K, N] with the batch dims broadcast; a vector on either side loses its dim.
Result<MaybeShape> ProductShape(const Inferrer& c, const SymShape* a, const SymShape* b) {
  if (a == nullptr || b == nullptr) return std::nullopt;
  if (a->empty() || b->empty()) return c.Refuse("a scalar operand has no rows to multiply");
  const Dim& inner_a = a->back();
  const Dim& inner_b = b->size() == 1 ? (*b)[0] : (*b)[b->size() - 2];
  if (inner_a.is_number() && inner_b.is_number() && inner_a.number() != inner_b.number()) {
    return c.Refuse("{} times {}: the inner sizes {} and {} differ", ToString(*a), ToString(*b), inner_a.number(),
                    inner_b.number());
  }
  const SymShape batch_a(a->begin(), a->size() > 2 ? a->end() - 2 : a->begin());
  const SymShape batch_b(b->begin(), b->size() > 2 ? b->end() - 2 : b->begin());
  OCTAVO_TRY(MaybeShape out, BroadcastShapes(c, &batch_a, &batch_b));
  if (a->size() > 1) out->push_back((*a)[a->size() - 2]);
  if (b->size() > 1) out->push_back(b->back());
  return out;
}

constexpr size_t kFactors[] = {0, 1};

Status MatMul(Inferrer& c) {
  OCTAVO_TRY(const DType type, CommonType(c, kFactors));
  OCTAVO_TRY(MaybeShape out, ProductShape(c, c.ShapeOf(0), c.ShapeOf(1)));
  c.Set(0, type, std::move(out));
  return {};
}

Status MatMulInteger(Inferrer& c) {
  OCTAVO_TRY(MaybeShape out, ProductShape(c, c.ShapeOf(0), c.ShapeOf(1)));
  c.Set(0, DType::kS32, std::move(out));
  return {};
}

Status QLinearMatMul(Inferrer& c) {
  OCTAVO_TRY(MaybeShape out, ProductShape(c, c.ShapeOf(0), c.ShapeOf(3)));
  c.Set(0, c.DtypeOf(7), std::move(out));
  return {};
}

Status Gemm(Inferrer& c) {
  const SymShape* a = c.ShapeOf(0);
  const SymShape* b = c.ShapeOf(1);
  const bool turn_a = c.node().attrs.Int("transA", 0) != 0;
  const bool turn_b = c.node().attrs.Int("transB", 0) != 0;
  SymShape out(2);
  Dim inner;
  for (const auto& [shape, turned, mine, shared] :
       {std::tuple{a, turn_a, size_t{0}, size_t{1}}, std::tuple{b, turn_b, size_t{1}, size_t{0}}}) {
    if (shape == nullptr) continue;
    if (shape->size() != 2) return c.Refuse("an operand has the shape {}; Gemm needs matrices", ToString(*shape));
    out[mine] = (*shape)[turned ? 1 - mine : mine];
    if (!Meet(inner, (*shape)[turned ? 1 - shared : shared])) {
      return c.Refuse("the inner sizes of {} and {} differ", ToString(*a), ToString(*b));
    }
  }
  OCTAVO_TRY(const DType type, CommonType(c, kFactors));
  c.Set(0, type, std::move(out));
  return {};
}

// --- Einsum ----------------------------------------------------------------------------------------------------------

using Sizes = std::map<char, Dim>;

// Binds the letters of one operand's term to its dims; '.' three times stands for any number of leading batch dims.
Status BindTerm(Inferrer& c, std::string_view term, const SymShape& shape, Sizes& sizes, SymShape& ellipsis) {
  const size_t letters = term.size() - (term.find('.') != std::string_view::npos ? 3 : 0);
  if (letters > shape.size() || (letters != shape.size() && letters == term.size())) {
    return c.Refuse("the term {} does not fit the shape {}", Quoted(term), ToString(shape));
  }
  size_t at = 0;
  for (size_t i = 0; i < term.size(); ++i) {
    if (term[i] == '.') {
      const SymShape batch(shape.begin() + static_cast<int64_t>(at),
                           shape.begin() + static_cast<int64_t>(at + shape.size() - letters));
      OCTAVO_TRY(MaybeShape joined, BroadcastShapes(c, &ellipsis, &batch));
      ellipsis = std::move(joined).value_or(SymShape());
      at += batch.size();
      i += 2;
      continue;
    }
    Dim& size = sizes.try_emplace(term[i], Dim(1)).first->second;
    const Dim& d = shape[at++];
    if (size.is_number() && d.is_number() && size.number() != d.number() && size.number() != 1 && d.number() != 1) {
      return c.Refuse("the letter {} is {} and {}", Quoted(term.substr(i, 1)), size.number(), d.number());
    }
    size = BroadcastDim(size, d);
  }
  return {};
}

// The output term of an equation without "->": the letters that occur once, in alphabetical order.
std::string ImplicitOutput(std::string_view left) {
  std::string out = left.find('.') != std::string_view::npos ? "..." : "";
  for (char letter = 'A'; letter <= 'z'; ++letter) {
    if (std::ranges::count(left, letter) == 1) out += letter;
  }
  return out;
}

Status Einsum(Inferrer& c) {
  std::string equation = c.node().attrs.Str("equation", "");
  std::erase(equation, ' ');
  const size_t arrow = equation.find("->");
  const std::string left = equation.substr(0, arrow);
  const std::string right = arrow == std::string::npos ? ImplicitOutput(left) : equation.substr(arrow + 2);
  c.Set(0, c.DtypeOf(0), std::nullopt);
  Sizes sizes;
  SymShape ellipsis;
  size_t begin = 0;
  for (size_t i = 0; i < c.node().inputs.size(); ++i) {
    if (begin > left.size()) return c.Refuse("{} has fewer terms than there are inputs", Quoted(equation));
    const size_t end = std::min(left.find(',', begin), left.size());
    const std::string_view term = std::string_view(left).substr(begin, end - begin);
    begin = end + 1;
    const size_t dots = static_cast<size_t>(std::ranges::count(term, '.'));
    if (dots != 0 && (dots != 3 || term.find("...") == std::string_view::npos)) {
      return c.Refuse("{} is not a term", Quoted(term));
    }
    const SymShape* shape = c.ShapeOf(i);
    if (shape == nullptr) return {};
    OCTAVO_TRY_STATUS(BindTerm(c, term, *shape, sizes, ellipsis));
  }
  const auto dots = std::ranges::count(right, '.');
  if (dots != 0 && (dots != 3 || right.find("...") == std::string::npos)) {
    return c.Refuse("{} is not a term", Quoted(right));
  }
  SymShape out;
  for (size_t i = 0; i < right.size(); ++i) {
    if (right[i] != '.' && right.find(right[i]) != i) {
      return c.Refuse("the output of {} names the letter {} twice", Quoted(equation), Quoted(right.substr(i, 1)));
    }
    if (right[i] == '.') {
      out.insert(out.end(), ellipsis.begin(), ellipsis.end());
      i += 2;
    } else if (const auto it = sizes.find(right[i]); it != sizes.end()) {
      out.push_back(it->second);
    } else {
      return c.Refuse("the letter {} of the output of {} is in no input", Quoted(right.substr(i, 1)), Quoted(equation));
    }
  }
  c.Set(0, c.DtypeOf(0), std::move(out));
  return {};
}

}  // namespace

Rule ProductRule(Op op) {
  switch (op) {
    case Op::kEinsum:
      return Einsum;
    case Op::kGemm:
      return Gemm;
    case Op::kMatMul:
      return MatMul;
    case Op::kMatMulInteger:
      return MatMulInteger;
    case Op::kQLinearMatMul:
      return QLinearMatMul;
    default:
      return nullptr;
  }
}

}  // namespace octavo::ir
