// Where a kernel begins another loop, tile, part or buffer. Tests stand at each of these sizes, one below and one above
// (tests/kernels/thresholds_test.cc): the tables name the constants that the kernels use, so a test moves with them.
#ifndef OCTAVO_KERNELS_THRESHOLDS_H_
#define OCTAVO_KERNELS_THRESHOLDS_H_

#include <cstdint>

#include "octavo/kernels/blocked/blocked_int8.h"
#include "octavo/kernels/fp8/fp8_layout.h"
#include "octavo/kernels/gemm/panels_f32.h"
#include "octavo/kernels/gemm/segments.h"
#include "octavo/kernels/sdpa/sdpa_layout.h"
#include "octavo/kernels/sdpa/sdpa_window.h"

namespace octavo::kernels::thresholds {

// Elements of rows without other dims: a vector of 8 or 16 floats, four of them that become bytes together, bytes of a zmm.
inline constexpr int64_t kVectors[] = {8, 16, 32, 64, 128};

// int8 products. Rows: a tile of 6, of AMX 16 and two of them.
inline constexpr int64_t kGemmRows[] = {1,
                                        4,
                                        6,
                                        internal::kSmallRows,
                                        12,
                                        16,
                                        internal::kDecodingRows,
                                        internal::kRowsOfBatch,
                                        48,
                                        64,
                                        internal::kMostRowsAtOnce,
                                        internal::kMostTileRows};
// Depth: quads, tiles of AMX, what is decoded at once, the parts of AMX: one, two, three and four.
inline constexpr int64_t kGemmDepths[] = {4,
                                          8,
                                          16,
                                          internal::kTileDepth,
                                          internal::kTileDepth* internal::kWholeDepth,
                                          internal::kMostDecodedK,
                                          2 * internal::kTileDepth* internal::kPartDepth,
                                          3 * internal::kTileDepth* internal::kPartDepth,
                                          4 * internal::kTileDepth* internal::kPartDepth};
// Columns: a panel, two, a block, the blocks of AMX that stay in L2, the sums of one row that stay in L1.
inline constexpr int64_t kGemmColumns[] = {16, 32, kColumnBlock, 8 * kColumnBlock, internal::kRowsOfSums* kColumnBlock};

// Float rows by weights in blocks, and codes of rows.
inline constexpr int64_t kBlockedRows[] = {1, 4, 6, blocked_sizes::kSmallRows, blocked_sizes::kRowsAtOnce};
inline constexpr int64_t kBlockedDepths[] = {16, 32, blocked_sizes::kChunk, 2 * blocked_sizes::kChunk};
inline constexpr int64_t kCodeRows[] = {1,
                                        internal::kMostCodeRows / 2,
                                        internal::kMostCodeRows,
                                        internal::kCodeTileRows,
                                        2 * internal::kCodeTileRows,
                                        internal::kCodeRowsAtOnce,
                                        internal::kCodeTileRowsAtOnce};
inline constexpr int64_t kCodeDepths[] = {16, 32, internal::kCodeDepthAtOnce, 2 * internal::kCodeDepthAtOnce};

inline constexpr int64_t kFp8Rows[] = {1,
                                       internal::kFp8SmallPairRows,
                                       6,
                                       internal::kFp8SmallRows,
                                       16,
                                       32,
                                       internal::kFp8MostRows,
                                       internal::kFp8MostTileRows};
inline constexpr int64_t kFp8Depths[] = {2, 16, 32, internal::kFp8Chunk, 2 * internal::kFp8Chunk};

inline constexpr int64_t kPanelRows[] = {1, kPanelFewRows, kPanelTileRows, 2 * kPanelTileRows};
inline constexpr int64_t kPanelsColumns[] = {8, kPanelColumns, 4 * kPanelColumns};

// Attention. Rows: groups of 6, two of them, rows on AMX, rows that share a packed tile of flash.
inline constexpr int64_t kSdpaRowsAtOnce[] = {1, 6, 8, 12, 16, 32, static_cast<int64_t>(internal::kMostAmxRows)};
inline constexpr int64_t kSdpaFlashRowsAtOnce[] = {1, 6, internal::kFlashRows};
inline constexpr int64_t kSdpaKeys[] = {4,
                                        16,
                                        internal::kSpanKeys,
                                        4 * static_cast<int64_t>(internal::kPairUnit),
                                        internal::kManyAmxKeys,
                                        internal::kFewAmxRowsKeys,
                                        internal::kTwoGroupKeys,
                                        internal::kMostRelativePairKeys,
                                        kSdpaFlashKeys,
                                        2 * kSdpaFlashKeys};
inline constexpr int64_t kSdpaLongKeys[] = {internal::kMostPairKeys};
inline constexpr int64_t kSdpaHeads[] = {4, 16, static_cast<int64_t>(internal::kDecodeColumns), 64, 128, 256};

}  // namespace octavo::kernels::thresholds

#endif  // OCTAVO_KERNELS_THRESHOLDS_H_
