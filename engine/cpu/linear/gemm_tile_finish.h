// Writes the outputs of some rows and a pair of blocks, while their sums are still in L1. For
// kernel units with AVX-512.
//
// For many rows the stores bypass the caches: an ordinary store to a line that is not cached reads
// it first, and y's rows are kilobytes apart, which took up to a third of the time of 512 rows (AMX
// Xeon; whole lines past the caches: 5 to 7 %). A line is 32 outputs, so
//   kBf16, kGelu      a pair of blocks is a line
//   kSwiGlu, kGeGlu   a pair of blocks gives 16 outputs; the first of two pairs waits
//   kResidualAdd      reads its line anyway, and kFp32 has few rows: ordinary stores
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "engine/cpu/linear/gemm_epilogue.h"
#include "engine/cpu/linear/linear_job.h"

namespace baton {
namespace {

// Sums [block of the pair][row][16] of rows [row, row + rows), which end at the job's last row, and
// of one or two blocks [block, block + blocks).
struct PairSums {
  const float* sums;
  int64_t block_stride;  // in sums
  int64_t row, rows;
  int64_t block, blocks;
};

// True if whole lines of y may bypass the caches: the rows of y begin at line boundaries.
inline bool HasWholeLines(const LinearJob& job) {
  const bool has_kind = job.epilogue != Epilogue::kFp32 && job.epilogue != Epilogue::kResidualAdd;
  return has_kind && reinterpret_cast<uintptr_t>(job.y) % 64 == 0 && job.y_stride % 32 == 0;
}

// The part of a line that a pair of blocks fills.
enum class LinePart {
  kNone,        // ordinary stores
  kWhole,       // not gated
  kFirstHalf,   // gated: waits in `halves`
  kSecondHalf,  // gated: goes with the pair before it
};

// The line part of a pair in the item of blocks [first, end).
inline LinePart LinePartOf(const LinearJob& job, bool whole_lines, const PairSums& pair,
                           int64_t first, int64_t end) {
  if (!whole_lines) return LinePart::kNone;
  if (!IsGated(job.epilogue)) {
    return pair.block * 16 + 32 <= job.n ? LinePart::kWhole : LinePart::kNone;
  }
  const bool is_second = (pair.block - first) % 4 != 0;
  if (is_second) return LinePart::kSecondHalf;
  return pair.block + 4 <= end ? LinePart::kFirstHalf : LinePart::kNone;
}

constexpr int64_t kHalfLine = 16;  // bf16s; `halves` has this many per row of the job

inline __m256i Bf16s(Lanes x) { return _mm512_cvtepi32_epi16(Bf16Bits(x)); }
inline void WriteLine(bf16* to, __m256i low, __m256i high) {
  _mm512_stream_si512(reinterpret_cast<__m512i*>(to),
                      _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1));
}

template <Epilogue kEpilogue, class Outputs>
inline void FinishGatedRows(const LinearJob& job, const Outputs& outputs, const PairSums& pair,
                            LinePart part, bf16* halves) {
  for (int64_t r = 0; r < pair.rows; ++r) {
    const int64_t row = pair.row + r;
    const float* const sums = pair.sums + r * 16;
    const Lanes gate = AddBias(job, pair.block, outputs.Get(row, 0, sums));
    const Lanes up = AddBias(job, pair.block + 1, outputs.Get(row, 1, sums + pair.block_stride));
    const Lanes y = GatedOutput<kEpilogue>(gate, up);
    bf16* const half = halves + row * kHalfLine;
    bf16* const to = job.y + row * job.y_stride + pair.block * 8;
    if (part == LinePart::kFirstHalf) {
      StoreBf16(half, y);
    } else if (part == LinePart::kSecondHalf) {
      WriteLine(to - kHalfLine, _mm256_load_si256(reinterpret_cast<const __m256i*>(half)),
                Bf16s(y));
    } else {
      StoreBf16(to, y);
    }
  }
}

template <Epilogue kEpilogue, class Outputs>
inline void FinishPlainRows(const LinearJob& job, const Outputs& outputs, const PairSums& pair,
                            LinePart part) {
  for (int64_t r = 0; r < pair.rows; ++r) {
    const int64_t row = pair.row + r;
    const float* const sums = pair.sums + r * 16;
    const Lanes low = AddBias(job, pair.block, outputs.Get(row, 0, sums));
    if (pair.blocks == 1) {
      FinishBlock<kEpilogue>(job, row, pair.block, low);
      continue;
    }
    const Lanes high = AddBias(job, pair.block + 1, outputs.Get(row, 1, sums + pair.block_stride));
    if constexpr (kEpilogue == Epilogue::kBf16 || kEpilogue == Epilogue::kGelu) {
      if (part == LinePart::kWhole) {
        WriteLine(job.y + row * job.y_stride + pair.block * 16, Bf16s(PlainOutput<kEpilogue>(low)),
                  Bf16s(PlainOutput<kEpilogue>(high)));
        continue;
      }
    }
    FinishBlock<kEpilogue>(job, row, pair.block, low);
    FinishBlock<kEpilogue>(job, row, pair.block + 1, high);
  }
}

// noinline: inside the loops of tiles it would take their registers.
template <class Outputs>
__attribute__((noinline)) void FinishPair(const LinearJob& job, const Outputs& outputs,
                                          const PairSums& pair, LinePart part, bf16* halves) {
  switch (job.epilogue) {
    case Epilogue::kBf16:
      return FinishPlainRows<Epilogue::kBf16>(job, outputs, pair, part);
    case Epilogue::kFp32:
      return FinishPlainRows<Epilogue::kFp32>(job, outputs, pair, part);
    case Epilogue::kResidualAdd:
      return FinishPlainRows<Epilogue::kResidualAdd>(job, outputs, pair, part);
    case Epilogue::kGelu:
      return FinishPlainRows<Epilogue::kGelu>(job, outputs, pair, part);
    case Epilogue::kSwiGlu:
      return FinishGatedRows<Epilogue::kSwiGlu>(job, outputs, pair, part, halves);
    case Epilogue::kGeGlu:
      return FinishGatedRows<Epilogue::kGeGlu>(job, outputs, pair, part, halves);
  }
}

}  // namespace
}  // namespace baton
