// Pad: constant, edge, reflect, wrap; negative pads crop. One axis at a time picks source positions, so that corners
// come out as ONNX has them.
#include <cstring>

#include "octavo/ir/interpret/call.h"
#include "octavo/ir/interpret/types.h"

namespace octavo::ir::interpret {

namespace {

// Source position of `i` (may lie outside 0..n-1); -1: the constant.
int64_t SourceOf(int64_t i, int64_t n, std::string_view mode) {
  if (i >= 0 && i < n) return i;
  if (mode == "constant" || n == 0) return -1;
  if (mode == "edge") return i < 0 ? 0 : n - 1;
  if (mode == "wrap") return (i % n + n) % n;
  if (n == 1) return 0;
  const int64_t period = 2 * (n - 1);  // reflect
  const int64_t r = (i % period + period) % period;
  return r < n ? r : period - r;
}

// Positions along one axis of the result.
std::vector<int64_t> Sources(int64_t n, int64_t before, int64_t after, std::string_view mode) {
  // Cropping first: reflect and wrap then see only what is left.
  const int64_t lo = before < 0 ? -before : 0, hi = after < 0 ? n + after : n;
  const int64_t left = before > 0 ? before : 0, right = after > 0 ? after : 0;
  ChargeWork(static_cast<size_t>(hi - lo + left + right) * sizeof(int64_t));
  std::vector<int64_t> at;
  at.reserve(static_cast<size_t>(hi - lo + left + right));
  for (int64_t i = -left; i < hi - lo + right; ++i) {
    const int64_t s = SourceOf(i, hi - lo, mode);
    at.push_back(s < 0 ? -1 : s + lo);
  }
  return at;
}

// Neighbours of a row of the result that are neighbours in the operand too, or lie outside of it (from: -1).
struct Piece {
  int64_t to = 0, count = 0, from = 0;
};
std::vector<Piece> PiecesOf(const std::vector<int64_t>& row) {
  std::vector<Piece> pieces;
  for (int64_t i = 0; const int64_t s : row) {
    const bool on = !pieces.empty() && s == (pieces.back().from < 0 ? -1 : pieces.back().from + pieces.back().count);
    if (on) {
      ++pieces.back().count;
    } else {
      pieces.push_back({i, 1, s});
    }
    ++i;
  }
  return pieces;
}

template <typename T>
void Fill(const Tensor& x, const std::vector<std::vector<int64_t>>& sources, T value, Tensor& y) {
  const auto strides = StridesOf(x.shape());
  const size_t rank = sources.size();
  std::vector<size_t> index(rank, 0);
  T* out = MutablePtr<T>(y);
  const T* in = Ptr<T>(x);
  const std::vector<int64_t>& row = sources[rank - 1];
  const auto n = static_cast<int64_t>(row.size());
  const std::vector<Piece> pieces = PiecesOf(row);
  for (int64_t done = 0; done < y.size(); done += n) {
    int64_t base = 0;
    bool inside = true;
    for (size_t d = 0; d + 1 < rank; ++d) {
      const int64_t s = sources[d][index[d]];
      inside &= s >= 0;
      base += s * strides[d];
    }
    if (!inside) std::fill_n(out + done, n, value);
    for (const Piece& p : inside ? std::span(pieces) : std::span<const Piece>()) {
      if (p.from < 0) {
        std::fill_n(out + done + p.to, p.count, value);
      } else {
        std::copy_n(in + base + p.from, p.count, out + done + p.to);
      }
    }
    for (size_t d = rank - 1; d-- > 0;) {
      if (++index[d] < sources[d].size()) break;
      index[d] = 0;
    }
  }
}

Status Pad(Call& call) {
  const Tensor& x = call.T(0);
  const std::string mode = call.node.attrs.Str("mode", "constant");
  if (mode != "constant" && mode != "edge" && mode != "reflect" && mode != "wrap") {
    return Fail("mode is '{}'; it must be constant, edge, reflect or wrap", mode);
  }
  OCTAVO_TRY(const auto pads, IntsOf(call.T(1), "the pads"));
  std::vector<int64_t> axes;
  if (call.Has(3)) {
    OCTAVO_TRY(axes, IntsOf(call.T(3), "the axes"));
    OCTAVO_TRY(axes, Axes(std::move(axes), x.rank(), false));
  } else {
    for (int64_t i = 0; i < x.rank(); ++i) axes.push_back(i);
  }
  if (pads.size() != 2 * axes.size()) return Fail("{} pads for {} axes", pads.size(), axes.size());
  if (call.Has(2) && (call.T(2).size() != 1 || call.T(2).dtype() != x.dtype())) {
    return Fail("the constant must be one element of the operand's type");
  }
  Shape shape = x.shape();
  std::vector<int64_t> before(shape.size(), 0), after(shape.size(), 0);
  for (size_t k = 0; k < axes.size(); ++k) {
    const auto a = static_cast<size_t>(axes[k]);
    before[a] = pads[k];
    after[a] = pads[k + axes.size()];
    const int64_t crop = std::min<int64_t>(before[a], 0), cut = std::min<int64_t>(after[a], 0);
    if (crop < -shape[a] || cut < -shape[a] || shape[a] + crop + cut < 0)
      return Fail("the pads crop more than axis {} has", a);
    if (__builtin_add_overflow(shape[a], before[a], &shape[a]) ||
        __builtin_add_overflow(shape[a], after[a], &shape[a])) {
      return Fail("the result's shape overflows");
    }
    if (mode != "constant" && x.shape()[a] + crop + cut == 0 && shape[a] > 0)
      return Fail("axis {} has nothing to repeat", a);
  }
  OCTAVO_TRY(Tensor y, AllocZeros(x.dtype(), shape));
  if (x.rank() == 0) {
    call.Return(x);
    return {};
  }
  std::vector<std::vector<int64_t>> sources;
  for (size_t d = 0; d < shape.size() && y.size() > 0; ++d) {
    sources.push_back(Sources(x.shape()[d], before[d], after[d], mode));
  }
  OCTAVO_TRY_STATUS(ForSizes(x.dtype(), [&]<typename T>() -> Status {
    T value{};
    if (call.Has(2)) value = Ptr<T>(call.T(2))[0];
    if (y.size() > 0) Fill<T>(x, sources, value, y);
    return {};
  }));
  call.Return(std::move(y));
  return {};
}

}  // namespace

void RegisterPad(Table& t) { t.Set(Op::kPad, Pad); }

}  // namespace octavo::ir::interpret
