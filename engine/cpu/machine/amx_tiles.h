// The AMX tile instructions, as inline assembly: g++ 12's intrinsics for them declare no memory
// operands, so the compiler may drop or move the stores that fill a tile. Only for kernel units, on
// machines with Isa::kAmx. Policy of the kernels on tiles (gemm_tile.h says what each
// operation does).
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace baton {
namespace {

struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t bytes_per_row[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
static_assert(sizeof(TileConfig) == 64);
constexpr TileConfig kEightFullTiles;
// Tiles 0 to 4 (sums, and one of rows) have n rows.
struct FewRowsConfigs {
  TileConfig of[17];
  constexpr FewRowsConfigs() : of{} {
    for (int n = 1; n <= 16; ++n)
      for (int t = 0; t <= 4; ++t) of[n].rows[t] = static_cast<uint8_t>(n);
  }
};
constexpr FewRowsConfigs kFewRows;

struct AmxTiles {
  static void Configure() { __asm__ volatile("ldtilecfg %0" : : "m"(kEightFullTiles) : "memory"); }
  static void ConfigureRows(int n) {
    __asm__ volatile("ldtilecfg %0" : : "m"(kFewRows.of[n]) : "memory");
  }
  static void Release() { __asm__ volatile("tilerelease" : : : "memory"); }
  template <int t>
  static void Zero() {
    __asm__ volatile("tilezero %%tmm%c0" : : "i"(t));
  }
  template <int t>
  static void Load(const void* from, int64_t stride) {
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(from), "r"(stride), "i"(t) : "memory");
  }
  // Load for data that is used once: bypasses L1 and leaves its contents there.
  template <int t>
  static void LoadOnce(const void* from, int64_t stride) {
    __asm__ volatile("tileloaddt1 (%0,%1,1), %%tmm%c2"
                     :
                     : "r"(from), "r"(stride), "i"(t)
                     : "memory");
  }
  template <int t>
  static void Store(void* to, int64_t stride) {
    __asm__ volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(to), "r"(stride), "i"(t) : "memory");
  }
  template <int c, int a, int b>
  static void Dot() {
    __asm__ volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(c), "i"(a), "i"(b));
  }
  template <int c, int a, int b>
  static void DotInt8() {
    __asm__ volatile("tdpbsud %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(c), "i"(a), "i"(b));
  }
  template <int c, int a, int b>
  static void DotSigned() {
    __asm__ volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(c), "i"(a), "i"(b));
  }
  // Inlined early: g++ 12 removes calls of a function that only prefetches as having no effect.
  static inline __attribute__((always_inline)) void Prefetch(const void* line) {
    _mm_prefetch(static_cast<const char*>(line), _MM_HINT_T0);
  }
};

}  // namespace
}  // namespace baton
