// Memory that is not there is an exception, never a null pointer or a smaller piece.
#include "octavo/kernels/simd/aligned.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <new>

#include "octavo/kernels/simd/weights.h"

namespace octavo::kernels {
namespace {

template <class Array>
void ExpectBadAlloc() {
  constexpr size_t kMost = std::numeric_limits<size_t>::max();
  // Sizes that wrap to nothing or to a little, and those that no machine has, which end a process under AddressSanitizer.
  for (const size_t count : {kMost, kMost - 70, kMost / 2 + 1}) EXPECT_THROW(Array{count}, std::bad_alloc) << count;
#if !defined(__SANITIZE_ADDRESS__)
  for (const size_t count : {kMost / 4, kMost / 4 + 2, kMost / 8 + 1, size_t{1} << 60}) {
    EXPECT_THROW(Array{count}, std::bad_alloc) << count;
  }
#endif
  EXPECT_EQ(Array(3).size(), 3u);
}

TEST(Memory, ThatIsNotThereThrows) {
  ExpectBadAlloc<AlignedArray<uint8_t>>();
  ExpectBadAlloc<AlignedArray<float>>();
  ExpectBadAlloc<AlignedArray<double>>();
  ExpectBadAlloc<WeightArray<uint8_t>>();
  ExpectBadAlloc<WeightArray<float>>();
  // A negative size that a caller made a size_t of.
  EXPECT_THROW(AlignedArray<uint8_t>(static_cast<size_t>(int64_t{-1})), std::bad_alloc);
  EXPECT_THROW(WeightArray<uint8_t>(static_cast<size_t>(int64_t{-64})), std::bad_alloc);
}

}  // namespace
}  // namespace octavo::kernels
