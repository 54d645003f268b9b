// Comparisons, bool ops and Where.
#include <functional>

#include "octavo/ir/interpret/call.h"
#include "octavo/ir/interpret/elementwise.h"

namespace octavo::ir::interpret {

namespace {

template <typename F>
Status Compare(Call& call) {
  const Tensor &a = call.T(0), &b = call.T(1);
  if (a.dtype() != b.dtype()) return Fail("the operands have different element types; cast one of them");
  OCTAVO_TRY(Pair p, MakePair(a, b, DType::kBool));
  const auto run = [&]<typename T>() -> Status {
    BinaryLoop<T, uint8_t>(p.space, a, b, p.y, [](auto x, auto y) { return static_cast<uint8_t>(F{}(x, y)); });
    return {};
  };
  OCTAVO_TRY_STATUS(a.dtype() == DType::kBool ? run.template operator()<uint8_t>() : ForNumbers(a.dtype(), run));
  call.Return(std::move(p.y));
  return {};
}

template <typename F>
Status Bools(Call& call) {
  const Tensor &a = call.T(0), &b = call.T(1);
  for (const Tensor* t : {&a, &b}) {
    if (t->dtype() != DType::kBool) return BadType(t->dtype());
  }
  OCTAVO_TRY(Pair p, MakePair(a, b, DType::kBool));
  BinaryLoop<uint8_t, uint8_t>(p.space, a, b, p.y, [](uint8_t x, uint8_t y) {
    return static_cast<uint8_t>(F{}(static_cast<uint8_t>(x != 0), static_cast<uint8_t>(y != 0)));
  });
  call.Return(std::move(p.y));
  return {};
}

template <typename T>
void WhereRow(const uint8_t* c, const T* a, const T* b, T* y, int64_t n, const std::array<int64_t, 4>& step) {
  if (step[0] == 1 && step[1] == 1 && step[2] == 1) {
    for (int64_t i = 0; i < n; ++i) {  // without a branch, so that nothing depends on what a mask looks like
      const T keep = static_cast<T>(T{0} - static_cast<T>(c[i] != 0));
      y[i] = static_cast<T>((a[i] & keep) | (b[i] & static_cast<T>(~keep)));
    }
  } else if (step[0] == 1 && step[1] == 0 && step[2] == 1) {
    const T yes = *a;
    for (int64_t i = 0; i < n; ++i) {
      const T no = b[i];
      y[i] = c[i] != 0 ? yes : no;
    }
  } else if (step[0] == 1 && step[1] == 1 && step[2] == 0) {
    const T no = *b;
    for (int64_t i = 0; i < n; ++i) {
      const T yes = a[i];
      y[i] = c[i] != 0 ? yes : no;
    }
  } else if (step[0] == 1 && step[1] == 0 && step[2] == 0) {
    const T yes = *a, no = *b;
    for (int64_t i = 0; i < n; ++i) y[i] = c[i] != 0 ? yes : no;
  } else if (step[0] == 0) {
    const T* from = *c != 0 ? a : b;
    const int64_t by = *c != 0 ? step[1] : step[2];
    for (int64_t i = 0; i < n; ++i) y[i] = from[i * by];
  } else {
    for (int64_t i = 0; i < n; ++i) y[i] = c[i * step[0]] != 0 ? a[i * step[1]] : b[i * step[2]];
  }
}

Status Where(Call& call) {
  const Tensor &c = call.T(0), &a = call.T(1), &b = call.T(2);
  if (c.dtype() != DType::kBool) return Fail("the condition must be bool, not {}", Describe(c));
  if (a.dtype() != b.dtype()) return Fail("the operands have different element types; cast one of them");
  OCTAVO_TRY(Shape both, BroadcastShapes(a.shape(), b.shape()));
  OCTAVO_TRY(Shape shape, BroadcastShapes(c.shape(), both));
  OCTAVO_TRY(Tensor y, Alloc(a.dtype(), shape));
  const auto space = MakeSpace<4>(shape, {BroadcastStrides(c.shape(), shape), BroadcastStrides(a.shape(), shape),
                                          BroadcastStrides(b.shape(), shape), StridesOf(shape)});
  OCTAVO_TRY_STATUS(ForSizes(a.dtype(), [&]<typename T>() -> Status {
    ForEachRow(space, [&](const std::array<int64_t, 4>& at) {
      WhereRow<T>(Ptr<uint8_t>(c) + at[0], Ptr<T>(a) + at[1], Ptr<T>(b) + at[2], MutablePtr<T>(y) + at[3],
                  space.dims.back(), space.strides.back());
    });
    return {};
  }));
  call.Return(std::move(y));
  return {};
}

}  // namespace

void RegisterLogic(Table& t) {
  t.Set(Op::kEqual, Compare<std::equal_to<>>);
  t.Set(Op::kGreater, Compare<std::greater<>>);
  t.Set(Op::kGreaterOrEqual, Compare<std::greater_equal<>>);
  t.Set(Op::kLess, Compare<std::less<>>);
  t.Set(Op::kLessOrEqual, Compare<std::less_equal<>>);
  t.Set(Op::kAnd, Bools<std::bit_and<>>);
  t.Set(Op::kOr, Bools<std::bit_or<>>);
  t.Set(Op::kXor, Bools<std::bit_xor<>>);
  t.Set(Op::kWhere, Where);
}

}  // namespace octavo::ir::interpret
