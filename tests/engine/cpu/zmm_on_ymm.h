// The AVX-512 intrinsics that kernel units use, on two ymm registers: so that every kernel written
// for zmm registers is tested on every machine, with the bits it has where the instructions are.
//
// A unit that includes this header first and is compiled for AVX2, FMA and F16C can include any
// kernel header for AVX-512. What is declared here in namespace baton hides the types and
// intrinsics of the same names that <immintrin.h> has outside; one that is missing here is an error
// of the compiler, since outside it needs instructions that the unit does not have.
//
// Semantics: Intel's published ones. Floating-point operations round and flush as MXCSR says, as
// the instructions do. vdpbf16ps ignores MXCSR: it rounds to nearest even and flushes denormals,
// which is what the MXCSR of numerics v1 (engine/threads/mxcsr.h) says too. Masks are integers. NaN
// payloads are those of the ymm instructions.
#pragma once

#include <immintrin.h>

#include <cstdint>

// Kernel headers take their AVX-512 forms when these are defined.
#if !defined(__AVX512F__)
#define __AVX512F__ 1
#define __AVX512BW__ 1
#define __AVX512DQ__ 1
#define __AVX512VL__ 1
#endif

namespace baton {
namespace {

struct [[gnu::may_alias]] alignas(64) __m512 {
  __m256 lo, hi;
};
struct [[gnu::may_alias]] alignas(64) __m512i {
  __m256i lo, hi;
};
struct [[gnu::may_alias]] alignas(64) __m512d {
  __m256d lo, hi;
};
struct [[gnu::may_alias]] alignas(64) __m512bh {
  __m256i lo, hi;
};

#define BATON_ZMM [[gnu::always_inline]] inline

// ---- loads and stores: the aligned ones fault on an address that is no multiple of 64 ----

BATON_ZMM void FaultUnlessAligned(const void* address) {
  if (reinterpret_cast<uintptr_t>(address) % 64 != 0) __builtin_trap();
}
BATON_ZMM __m512 _mm512_loadu_ps(const void* from) {
  const float* const floats = static_cast<const float*>(from);
  return {_mm256_loadu_ps(floats), _mm256_loadu_ps(floats + 8)};
}
BATON_ZMM __m512 _mm512_load_ps(const void* from) {
  FaultUnlessAligned(from);
  return _mm512_loadu_ps(from);
}
BATON_ZMM void _mm512_storeu_ps(void* to, const __m512& x) {
  float* const floats = static_cast<float*>(to);
  _mm256_storeu_ps(floats, x.lo);
  _mm256_storeu_ps(floats + 8, x.hi);
}
BATON_ZMM void _mm512_store_ps(void* to, const __m512& x) {
  FaultUnlessAligned(to);
  _mm512_storeu_ps(to, x);
}
BATON_ZMM __m512i _mm512_loadu_si512(const void* from) {
  const __m256i* const halves = static_cast<const __m256i*>(from);
  return {_mm256_loadu_si256(halves), _mm256_loadu_si256(halves + 1)};
}
BATON_ZMM __m512i _mm512_load_si512(const void* from) {
  FaultUnlessAligned(from);
  return _mm512_loadu_si512(from);
}
BATON_ZMM void _mm512_storeu_si512(void* to, const __m512i& x) {
  __m256i* const halves = static_cast<__m256i*>(to);
  _mm256_storeu_si256(halves, x.lo);
  _mm256_storeu_si256(halves + 1, x.hi);
}
BATON_ZMM void _mm512_store_si512(void* to, const __m512i& x) {
  FaultUnlessAligned(to);
  _mm512_storeu_si512(to, x);
}
// Stores past the caches; faults on an unaligned address as the aligned store does.
BATON_ZMM void _mm512_stream_si512(__m512i* to, const __m512i& x) { _mm512_store_si512(to, x); }

// ---- constants, other types of the same bits, parts ----

BATON_ZMM __m512 _mm512_setzero_ps() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
BATON_ZMM __m512i _mm512_setzero_si512() {
  return {_mm256_setzero_si256(), _mm256_setzero_si256()};
}
BATON_ZMM __m512 _mm512_set1_ps(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
BATON_ZMM __m512i _mm512_set1_epi32(int x) { return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)}; }
BATON_ZMM __m512i _mm512_set1_epi64(int64_t x) {
  return {_mm256_set1_epi64x(x), _mm256_set1_epi64x(x)};
}
BATON_ZMM __m512i _mm512_set1_epi16(short x) {
  return {_mm256_set1_epi16(x), _mm256_set1_epi16(x)};
}
BATON_ZMM __m512i _mm512_set1_epi8(char x) { return {_mm256_set1_epi8(x), _mm256_set1_epi8(x)}; }
BATON_ZMM __m512i _mm512_broadcast_i32x4(__m128i x) {
  return {_mm256_broadcastsi128_si256(x), _mm256_broadcastsi128_si256(x)};
}
BATON_ZMM __m512 _mm512_castsi512_ps(const __m512i& x) {
  return {_mm256_castsi256_ps(x.lo), _mm256_castsi256_ps(x.hi)};
}
BATON_ZMM __m512i _mm512_castps_si512(const __m512& x) {
  return {_mm256_castps_si256(x.lo), _mm256_castps_si256(x.hi)};
}
BATON_ZMM __m512d _mm512_castps_pd(const __m512& x) {
  return {_mm256_castps_pd(x.lo), _mm256_castps_pd(x.hi)};
}
BATON_ZMM __m512 _mm512_castpd_ps(const __m512d& x) {
  return {_mm256_castpd_ps(x.lo), _mm256_castpd_ps(x.hi)};
}
BATON_ZMM __m256 _mm512_castps512_ps256(const __m512& x) { return x.lo; }
BATON_ZMM __m256i _mm512_castsi512_si256(const __m512i& x) { return x.lo; }
BATON_ZMM __m512i _mm512_castsi256_si512(__m256i x) { return {x, x}; }  // the upper half: any
BATON_ZMM __m512i _mm512_inserti64x4(const __m512i& x, __m256i half, int at) {
  return at % 2 != 0 ? __m512i{x.lo, half} : __m512i{half, x.hi};
}
BATON_ZMM __m256 _mm512_extractf32x8_ps(const __m512& x, int half) {
  return half % 2 != 0 ? x.hi : x.lo;
}
BATON_ZMM __m256i _mm512_extracti64x4_epi64(const __m512i& x, int half) {
  return half % 2 != 0 ? x.hi : x.lo;
}

// ---- fp32 arithmetic ----

BATON_ZMM __m512 _mm512_add_ps(const __m512& a, const __m512& b) {
  return {_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)};
}
BATON_ZMM __m512 _mm512_sub_ps(const __m512& a, const __m512& b) {
  return {_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)};
}
BATON_ZMM __m512 _mm512_mul_ps(const __m512& a, const __m512& b) {
  return {_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)};
}
BATON_ZMM __m512 _mm512_div_ps(const __m512& a, const __m512& b) {
  return {_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)};
}
BATON_ZMM __m512 _mm512_fmadd_ps(const __m512& a, const __m512& b, const __m512& c) {
  return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
}
BATON_ZMM __m512 _mm512_max_ps(const __m512& a, const __m512& b) {
  return {_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)};
}
BATON_ZMM __m512 _mm512_min_ps(const __m512& a, const __m512& b) {
  return {_mm256_min_ps(a.lo, b.lo), _mm256_min_ps(a.hi, b.hi)};
}

// ---- integer arithmetic ----

BATON_ZMM __m512i _mm512_add_epi32(const __m512i& a, const __m512i& b) {
  return {_mm256_add_epi32(a.lo, b.lo), _mm256_add_epi32(a.hi, b.hi)};
}
BATON_ZMM __m512i _mm512_sub_epi8(const __m512i& a, const __m512i& b) {
  return {_mm256_sub_epi8(a.lo, b.lo), _mm256_sub_epi8(a.hi, b.hi)};
}
BATON_ZMM __m512i _mm512_and_si512(const __m512i& a, const __m512i& b) {
  return {_mm256_and_si256(a.lo, b.lo), _mm256_and_si256(a.hi, b.hi)};
}
BATON_ZMM __m512i _mm512_or_si512(const __m512i& a, const __m512i& b) {
  return {_mm256_or_si256(a.lo, b.lo), _mm256_or_si256(a.hi, b.hi)};
}
BATON_ZMM __m512i _mm512_slli_epi32(const __m512i& x, unsigned bits) {
  const int count = static_cast<int>(bits);
  return {_mm256_slli_epi32(x.lo, count), _mm256_slli_epi32(x.hi, count)};
}
BATON_ZMM __m512i _mm512_srli_epi32(const __m512i& x, unsigned bits) {
  const int count = static_cast<int>(bits);
  return {_mm256_srli_epi32(x.lo, count), _mm256_srli_epi32(x.hi, count)};
}
BATON_ZMM __m512i _mm512_srli_epi16(const __m512i& x, unsigned bits) {
  const int count = static_cast<int>(bits);
  return {_mm256_srli_epi16(x.lo, count), _mm256_srli_epi16(x.hi, count)};
}
BATON_ZMM __m512i _mm512_madd_epi16(const __m512i& a, const __m512i& b) {
  return {_mm256_madd_epi16(a.lo, b.lo), _mm256_madd_epi16(a.hi, b.hi)};
}
BATON_ZMM __m512i _mm512_maddubs_epi16(const __m512i& a, const __m512i& b) {  // saturates
  return {_mm256_maddubs_epi16(a.lo, b.lo), _mm256_maddubs_epi16(a.hi, b.hi)};
}

// ---- conversions ----

BATON_ZMM __m512 _mm512_cvtepi32_ps(const __m512i& x) {
  return {_mm256_cvtepi32_ps(x.lo), _mm256_cvtepi32_ps(x.hi)};
}
BATON_ZMM __m512i _mm512_cvtps_epi32(const __m512& x) {
  return {_mm256_cvtps_epi32(x.lo), _mm256_cvtps_epi32(x.hi)};
}
BATON_ZMM __m512i _mm512_cvtepi8_epi32(__m128i x) {
  return {_mm256_cvtepi8_epi32(x), _mm256_cvtepi8_epi32(_mm_srli_si128(x, 8))};
}
BATON_ZMM __m512i _mm512_cvtepu16_epi32(__m256i x) {
  return {_mm256_cvtepu16_epi32(_mm256_castsi256_si128(x)),
          _mm256_cvtepu16_epi32(_mm256_extracti128_si256(x, 1))};
}
// Returns the low half of each lane. (Packing saturates, but not masked values; it packs each 128
// bits separately.)
BATON_ZMM __m256i _mm512_cvtepi32_epi16(const __m512i& x) {
  const __m256i low = _mm256_set1_epi32(0xffff);
  const __m256i packed =
      _mm256_packus_epi32(_mm256_and_si256(x.lo, low), _mm256_and_si256(x.hi, low));
  return _mm256_permute4x64_epi64(packed, 0xd8);
}
// Returns the low byte of each lane.
BATON_ZMM __m128i _mm512_cvtepi32_epi8(const __m512i& x) {
  const __m256i low = _mm256_set1_epi32(0xff);
  const __m256i words =
      _mm512_cvtepi32_epi16({_mm256_and_si256(x.lo, low), _mm256_and_si256(x.hi, low)});
  return _mm_packus_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
}

// ---- masks: bit i is lane i ----

BATON_ZMM __mmask16 _mm512_cmp_ps_mask(const __m512& a, const __m512& b, int predicate) {
  const int low = _mm256_movemask_ps(_mm256_cmp_ps(a.lo, b.lo, predicate));
  const int high = _mm256_movemask_ps(_mm256_cmp_ps(a.hi, b.hi, predicate));
  return static_cast<__mmask16>(low | high << 8);
}
// Returns all ones in the lanes of eight, sixteen or thirty-two whose bit is set.
BATON_ZMM __m256i Lanes32(unsigned mask) {
  const __m256i bits = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
  return _mm256_cmpeq_epi32(_mm256_and_si256(_mm256_set1_epi32(static_cast<int>(mask)), bits),
                            bits);
}
BATON_ZMM __m256i Lanes16(unsigned mask) {
  const __m256i bits = _mm256_setr_epi16(1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096,
                                         8192, 16384, static_cast<short>(0x8000));
  return _mm256_cmpeq_epi16(_mm256_and_si256(_mm256_set1_epi16(static_cast<short>(mask)), bits),
                            bits);
}
BATON_ZMM __m256i Lanes8(uint64_t mask) {
  const __m256i byte_of_lane =
      _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
  const __m256i bits = _mm256_set1_epi64x(static_cast<int64_t>(0x8040201008040201));
  const __m256i bytes =
      _mm256_shuffle_epi8(_mm256_set1_epi32(static_cast<int>(mask)), byte_of_lane);
  return _mm256_cmpeq_epi8(_mm256_and_si256(bytes, bits), bits);
}
// Returns x where the mask is set, else other.
BATON_ZMM __m512i _mm512_mask_mov_epi32(const __m512i& other, __mmask16 mask, const __m512i& x) {
  return {_mm256_blendv_epi8(other.lo, x.lo, Lanes32(mask)),
          _mm256_blendv_epi8(other.hi, x.hi, Lanes32(mask >> 8u))};
}
BATON_ZMM __m512i _mm512_mask_mov_epi16(const __m512i& other, __mmask32 mask, const __m512i& x) {
  return {_mm256_blendv_epi8(other.lo, x.lo, Lanes16(mask)),
          _mm256_blendv_epi8(other.hi, x.hi, Lanes16(mask >> 16u))};
}
BATON_ZMM __m512 _mm512_mask_mov_ps(const __m512& other, __mmask16 mask, const __m512& x) {
  return _mm512_castsi512_ps(
      _mm512_mask_mov_epi32(_mm512_castps_si512(other), mask, _mm512_castps_si512(x)));
}
// Returns zero where the mask is not set, and does not touch the memory there.
BATON_ZMM __m512 _mm512_maskz_loadu_ps(__mmask16 mask, const void* from) {
  const float* const floats = static_cast<const float*>(from);
  return {_mm256_maskload_ps(floats, Lanes32(mask)),
          _mm256_maskload_ps(floats + 8, Lanes32(mask >> 8u))};
}

// ---- shuffles ----

// Shuffles within each 128 bits, as the ymm instructions do.
BATON_ZMM __m512 _mm512_shuffle_ps(const __m512& a, const __m512& b, int order) {
  return {_mm256_shuffle_ps(a.lo, b.lo, order), _mm256_shuffle_ps(a.hi, b.hi, order)};
}
BATON_ZMM __m512i _mm512_shuffle_epi8(const __m512i& x, const __m512i& order) {
  return {_mm256_shuffle_epi8(x.lo, order.lo), _mm256_shuffle_epi8(x.hi, order.hi)};
}
BATON_ZMM __m512i _mm512_mask_shuffle_epi8(const __m512i& other, __mmask64 mask, const __m512i& x,
                                           const __m512i& order) {
  return {_mm256_blendv_epi8(other.lo, _mm256_shuffle_epi8(x.lo, order.lo), Lanes8(mask)),
          _mm256_blendv_epi8(other.hi, _mm256_shuffle_epi8(x.hi, order.hi), Lanes8(mask >> 32u))};
}
BATON_ZMM __m512i _mm512_unpacklo_epi16(const __m512i& a, const __m512i& b) {
  return {_mm256_unpacklo_epi16(a.lo, b.lo), _mm256_unpacklo_epi16(a.hi, b.hi)};
}
BATON_ZMM __m512i _mm512_unpackhi_epi16(const __m512i& a, const __m512i& b) {
  return {_mm256_unpackhi_epi16(a.lo, b.lo), _mm256_unpackhi_epi16(a.hi, b.hi)};
}
BATON_ZMM __m512i _mm512_unpacklo_epi64(const __m512i& a, const __m512i& b) {
  return {_mm256_unpacklo_epi64(a.lo, b.lo), _mm256_unpacklo_epi64(a.hi, b.hi)};
}
BATON_ZMM __m512i _mm512_unpackhi_epi64(const __m512i& a, const __m512i& b) {
  return {_mm256_unpackhi_epi64(a.lo, b.lo), _mm256_unpackhi_epi64(a.hi, b.hi)};
}
BATON_ZMM __m512d _mm512_unpacklo_pd(const __m512d& a, const __m512d& b) {
  return {_mm256_unpacklo_pd(a.lo, b.lo), _mm256_unpacklo_pd(a.hi, b.hi)};
}
BATON_ZMM __m512d _mm512_unpackhi_pd(const __m512d& a, const __m512d& b) {
  return {_mm256_unpackhi_pd(a.lo, b.lo), _mm256_unpackhi_pd(a.hi, b.hi)};
}
// Takes 128 bits at a time: two of a, then two of b, each chosen by two bits of `order`.
BATON_ZMM __m128i Quarter(const __m512i& x, int i) {
  const __m256i half = (i & 2) != 0 ? x.hi : x.lo;
  return (i & 1) != 0 ? _mm256_extracti128_si256(half, 1) : _mm256_castsi256_si128(half);
}
BATON_ZMM __m512i _mm512_shuffle_i64x2(const __m512i& a, const __m512i& b, int order) {
  return {_mm256_set_m128i(Quarter(a, order >> 2), Quarter(a, order)),
          _mm256_set_m128i(Quarter(b, order >> 6), Quarter(b, order >> 4))};
}
BATON_ZMM __m512 _mm512_shuffle_f32x4(const __m512& a, const __m512& b, int order) {
  return _mm512_castsi512_ps(
      _mm512_shuffle_i64x2(_mm512_castps_si512(a), _mm512_castps_si512(b), order));
}
// Lane i is lane order[i] % 32 of x.
BATON_ZMM __m512i _mm512_permutexvar_epi16(const __m512i& order, const __m512i& x) {
  alignas(64) uint16_t from[32], at[32], to[32];
  _mm512_store_si512(from, x);
  _mm512_store_si512(at, order);
  for (int i = 0; i < 32; ++i) to[i] = from[at[i] % 32];
  return _mm512_load_si512(to);
}

// ---- VNNI and BF16 ----

// acc + four products of unsigned bytes of a and signed bytes of b, modulo 2^32. Two products of
// every second byte are exact on shorts.
BATON_ZMM __m256i AddByteProducts(__m256i acc, __m256i a, __m256i b) {
  const __m256i a_even = _mm256_and_si256(a, _mm256_set1_epi16(255));
  const __m256i b_even = _mm256_srai_epi16(_mm256_slli_epi16(b, 8), 8);
  const __m256i even = _mm256_madd_epi16(a_even, b_even);
  const __m256i odd = _mm256_madd_epi16(_mm256_srli_epi16(a, 8), _mm256_srai_epi16(b, 8));
  return _mm256_add_epi32(acc, _mm256_add_epi32(even, odd));
}
BATON_ZMM __m512i _mm512_dpbusd_epi32(const __m512i& acc, const __m512i& a, const __m512i& b) {
  return {AddByteProducts(acc.lo, a.lo, b.lo), AddByteProducts(acc.hi, a.hi, b.hi)};
}
// acc + products of bf16: of the high halves first, then of the low ones, each a fused
// multiply-add.
BATON_ZMM __m256 AddPairProducts(__m256 acc, __m256i a, __m256i b) {
  const __m256i high = _mm256_set1_epi32(static_cast<int>(0xffff0000u));
  acc = _mm256_fmadd_ps(_mm256_castsi256_ps(_mm256_and_si256(a, high)),
                        _mm256_castsi256_ps(_mm256_and_si256(b, high)), acc);
  return _mm256_fmadd_ps(_mm256_castsi256_ps(_mm256_slli_epi32(a, 16)),
                         _mm256_castsi256_ps(_mm256_slli_epi32(b, 16)), acc);
}
BATON_ZMM __m512 _mm512_dpbf16_ps(const __m512& acc, const __m512bh& a, const __m512bh& b) {
  return {AddPairProducts(acc.lo, a.lo, b.lo), AddPairProducts(acc.hi, a.hi, b.hi)};
}

#undef BATON_ZMM

}  // namespace
}  // namespace baton
