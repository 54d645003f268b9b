// The int8 products of the attention on AMX tiles: sixteen rows x up to four panels, which hides the latency of the dot
// product (gemm/amx-inl.h). A panel is a column of B tiles as it lies, its steps padded to whole tiles with zeros;
// rows that do not exist are computed and not looked at. Per target: AVX-512 VNNI, for what stands between.
#if defined(OCTAVO_KERNELS_SDPA_SDPA_AMX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef OCTAVO_KERNELS_SDPA_SDPA_AMX_INL_H_
#undef OCTAVO_KERNELS_SDPA_SDPA_AMX_INL_H_
#else
#define OCTAVO_KERNELS_SDPA_SDPA_AMX_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include "hwy/highway.h"
#include "octavo/kernels/sdpa/sdpa_tile-inl.h"
#include "octavo/kernels/tile/amx.h"

#if HWY_TARGET == HWY_AVX3_DL
HWY_BEFORE_NAMESPACE();
namespace octavo::kernels {
namespace HWY_NAMESPACE {

struct AmxEngine : VnniEngine {
  using Values = AmxEngine;
  static constexpr size_t kRows = 16;
  static constexpr size_t kStepsTo = 16;
};

// Where the sums of a tile begin: row r at data + r * stride bytes.
struct TileInit {
  const int32_t* data;
  ptrdiff_t stride;
};

// out[16][kC panels] = init + a . b.
template <size_t kC>
HWY_NOINLINE void TileColumns(const TileArgs<int32_t>& args, const uint8_t* b, TileInit init, int32_t* out) {
  const auto a_stride = static_cast<ptrdiff_t>(args.a_stride);
  tile::Load<0>(init.data, init.stride);
  if constexpr (kC > 1) tile::Load<1>(init.data + 16, init.stride);
  if constexpr (kC > 2) tile::Load<2>(init.data + 32, init.stride);
  if constexpr (kC > 3) tile::Load<3>(init.data + 48, init.stride);
  for (size_t i = 0; i < args.steps; i += 16) {
    const uint8_t* at = b + i * 64;
    tile::Load<4>(args.a + i * 4, a_stride);
    tile::Load<6>(at, 64);
    tile::DotUS<0, 4, 6>();
    if constexpr (kC > 1) {
      tile::Load<7>(at + args.panel_bytes, 64);
      tile::DotUS<1, 4, 7>();
    }
    if constexpr (kC > 2) {
      tile::Load<6>(at + 2 * args.panel_bytes, 64);
      tile::DotUS<2, 4, 6>();
    }
    if constexpr (kC > 3) {
      tile::Load<7>(at + 3 * args.panel_bytes, 64);
      tile::DotUS<3, 4, 7>();
    }
  }
  const auto stride = static_cast<ptrdiff_t>(args.out_stride * sizeof(int32_t));
  tile::Store<0>(out, stride);
  if constexpr (kC > 1) tile::Store<1>(out + 16, stride);
  if constexpr (kC > 2) tile::Store<2>(out + 32, stride);
  if constexpr (kC > 3) tile::Store<3>(out + 48, stride);
}

// All columns of `panels` panels, as TileRows, for sixteen rows.
inline void TilePanels(const TileArgs<int32_t>& args, const uint8_t* b, const int32_t* columns, size_t panels) {
  namespace hn = hwy::HWY_NAMESPACE;
  const I16D d;
  alignas(64) int32_t sums[16 * 64];
  for (size_t p = 0; p < panels; p += 4) {
    const size_t count = HWY_MIN(panels - p, size_t{4});
    TileInit init = {columns + 16 * p, 0};  // a stride of 0: the same for all rows
    if (args.row_terms != nullptr) {
      for (size_t r = 0; r < 16; ++r) {
        const I16V term = hn::Set(d, args.row_terms[r]);
        for (size_t c = 0; c < 16 * count; c += 16) {
          hn::Store(hn::Add(hn::Load(d, columns + 16 * p + c), term), d, sums + 64 * r + c);
        }
      }
      init = {sums, 256};
    }
    const uint8_t* first = b + p * args.panel_bytes;
    int32_t* out = args.out + 16 * p;
    if (count == 4) TileColumns<4>(args, first, init, out);
    if (count == 3) TileColumns<3>(args, first, init, out);
    if (count == 2) TileColumns<2>(args, first, init, out);
    if (count == 1) TileColumns<1>(args, first, init, out);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace octavo::kernels
HWY_AFTER_NAMESPACE();
#endif  // HWY_TARGET == HWY_AVX3_DL

#endif  // include guard
