#include "octavo/ir/elements.h"

#include <cstring>

namespace octavo::ir {

void CopyElements(const Tensor& from, int64_t begin, Tensor& to, int64_t at, int64_t count) {
  const int64_t bits = quant::BitsOf(from.dtype());
  const auto is_whole = [bits](int64_t elements) { return elements * bits % 8 == 0; };
  if (is_whole(begin) && is_whole(at) && is_whole(count)) {
    std::memcpy(to.mutable_data() + at * bits / 8, from.data() + begin * bits / 8,
                static_cast<size_t>(count * bits / 8));
    return;
  }
  OCTAVO_CHECK(bits == 4, "elements of {} bits", bits);
  const std::byte* source = from.data();
  std::byte* target = to.mutable_data();
  for (int64_t i = 0; i < count; ++i) {
    const auto code = std::to_integer<unsigned>(source[(begin + i) / 2]) >> ((begin + i) % 2 * 4) & 15U;
    const int64_t shift = (at + i) % 2 * 4;
    std::byte& byte = target[(at + i) / 2];
    byte = static_cast<std::byte>((std::to_integer<unsigned>(byte) & ~(15U << shift)) | code << shift);
  }
}

}  // namespace octavo::ir
