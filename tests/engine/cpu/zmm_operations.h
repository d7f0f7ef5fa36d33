// Each AVX-512 intrinsic of the kernel units as a function on lines of 64 bytes. In a unit that has
// included zmm_on_ymm.h the functions run the emulation, in a unit compiled for AVX-512 the
// instructions; the text is the same.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace baton {

struct alignas(64) ZmmLine {
  uint8_t bytes[64] = {};
};

struct ZmmOperation {
  enum Needs { kAvx512, kVnni, kBf16 };
  const char* name;
  Needs needs;
  // x: three operands. A shorter operand is the front of its line.
  void (*run)(const ZmmLine* x, ZmmLine* out);
};
struct ZmmOperations {
  const ZmmOperation* first;
  int n;
};
extern const ZmmOperations kEmulatedZmm, kMachineZmm;

#if defined(__AVX512F__)
namespace {

inline __m512 F(const ZmmLine& x) { return _mm512_loadu_ps(&x); }
inline __m512i I(const ZmmLine& x) { return _mm512_loadu_si512(&x); }
inline __m512d D(const ZmmLine& x) { return _mm512_castps_pd(F(x)); }
inline __m256i Half(const ZmmLine& x) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(&x));
}
inline __m128i Quarter128(const ZmmLine& x) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(&x));
}
inline int32_t Word(const ZmmLine& x) {
  int32_t word;
  __builtin_memcpy(&word, x.bytes, sizeof word);
  return word;
}
inline int64_t Long(const ZmmLine& x) {
  int64_t value;
  __builtin_memcpy(&value, x.bytes, sizeof value);
  return value;
}
inline float Float(const ZmmLine& x) { return __builtin_bit_cast(float, Word(x)); }
inline void Put(ZmmLine* out, __m512 x) { _mm512_storeu_ps(out, x); }
inline void Put(ZmmLine* out, __m512i x) { _mm512_storeu_si512(out, x); }
inline void Put(ZmmLine* out, __m512d x) { Put(out, _mm512_castpd_ps(x)); }
inline void Put(ZmmLine* out, __m256i x) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), x);
}
inline void Put(ZmmLine* out, __m256 x) { Put(out, _mm256_castps_si256(x)); }
inline void Put(ZmmLine* out, __m128i x) { _mm_storeu_si128(reinterpret_cast<__m128i*>(out), x); }
inline void Put(ZmmLine* out, __mmask16 x) { __builtin_memcpy(out->bytes, &x, sizeof x); }

using X = const ZmmLine*;
using Out = ZmmLine*;
constexpr ZmmOperation::Needs kF = ZmmOperation::kAvx512;

constexpr ZmmOperation kZmmOperations[] = {
    {"load_ps, store_ps", kF, [](X x, Out out) { _mm512_store_ps(out, _mm512_load_ps(x)); }},
    {"load_si512, store_si512", kF,
     [](X x, Out out) { _mm512_store_si512(out, _mm512_load_si512(x)); }},
    {"loadu_ps", kF, [](X x, Out out) { _mm512_storeu_ps(out, _mm512_loadu_ps(x->bytes + 12)); }},
    {"loadu_si512", kF,
     [](X x, Out out) { _mm512_storeu_si512(out, _mm512_loadu_si512(x->bytes + 1)); }},
    {"stream_si512", kF,
     [](X x, Out out) { _mm512_stream_si512(reinterpret_cast<__m512i*>(out), I(*x)); }},
    {"maskz_loadu_ps", kF,
     [](X x, Out out) { Put(out, _mm512_maskz_loadu_ps(static_cast<__mmask16>(Word(x[1])), x)); }},
    {"setzero_ps", kF, [](X, Out out) { Put(out, _mm512_setzero_ps()); }},
    {"setzero_si512", kF, [](X, Out out) { Put(out, _mm512_setzero_si512()); }},
    {"set1_ps", kF, [](X x, Out out) { Put(out, _mm512_set1_ps(Float(*x))); }},
    {"set1_epi32", kF, [](X x, Out out) { Put(out, _mm512_set1_epi32(Word(*x))); }},
    {"set1_epi64", kF, [](X x, Out out) { Put(out, _mm512_set1_epi64(Long(x[0]))); }},
    {"set1_epi16", kF,
     [](X x, Out out) { Put(out, _mm512_set1_epi16(static_cast<short>(Word(*x)))); }},
    {"set1_epi8", kF,
     [](X x, Out out) { Put(out, _mm512_set1_epi8(static_cast<char>(Word(*x)))); }},
    {"broadcast_i32x4", kF, [](X x, Out out) { Put(out, _mm512_broadcast_i32x4(Quarter128(*x))); }},
    {"castps_si512, castsi512_ps", kF,
     [](X x, Out out) { Put(out, _mm512_castsi512_ps(_mm512_castps_si512(F(*x)))); }},
    {"castps512_ps256", kF, [](X x, Out out) { Put(out, _mm512_castps512_ps256(F(*x))); }},
    {"castsi512_si256", kF, [](X x, Out out) { Put(out, _mm512_castsi512_si256(I(*x))); }},
    {"extractf32x8_ps 0", kF, [](X x, Out out) { Put(out, _mm512_extractf32x8_ps(F(*x), 0)); }},
    {"extractf32x8_ps 1", kF, [](X x, Out out) { Put(out, _mm512_extractf32x8_ps(F(*x), 1)); }},
    {"extracti64x4_epi64 1", kF,
     [](X x, Out out) { Put(out, _mm512_extracti64x4_epi64(I(*x), 1)); }},

    {"castsi256_si512, inserti64x4 1", kF,
     [](X x, Out out) {
       Put(out, _mm512_inserti64x4(_mm512_castsi256_si512(Half(x[0])), Half(x[1]), 1));
     }},

    {"add_ps", kF, [](X x, Out out) { Put(out, _mm512_add_ps(F(x[0]), F(x[1]))); }},
    {"sub_ps", kF, [](X x, Out out) { Put(out, _mm512_sub_ps(F(x[0]), F(x[1]))); }},
    {"mul_ps", kF, [](X x, Out out) { Put(out, _mm512_mul_ps(F(x[0]), F(x[1]))); }},
    {"div_ps", kF, [](X x, Out out) { Put(out, _mm512_div_ps(F(x[0]), F(x[1]))); }},
    {"fmadd_ps", kF, [](X x, Out out) { Put(out, _mm512_fmadd_ps(F(x[0]), F(x[1]), F(x[2]))); }},
    {"max_ps", kF, [](X x, Out out) { Put(out, _mm512_max_ps(F(x[0]), F(x[1]))); }},
    {"min_ps", kF, [](X x, Out out) { Put(out, _mm512_min_ps(F(x[0]), F(x[1]))); }},

    {"add_epi32", kF, [](X x, Out out) { Put(out, _mm512_add_epi32(I(x[0]), I(x[1]))); }},
    {"sub_epi8", kF, [](X x, Out out) { Put(out, _mm512_sub_epi8(I(x[0]), I(x[1]))); }},
    {"and_si512", kF, [](X x, Out out) { Put(out, _mm512_and_si512(I(x[0]), I(x[1]))); }},
    {"or_si512", kF, [](X x, Out out) { Put(out, _mm512_or_si512(I(x[0]), I(x[1]))); }},
    {"slli_epi32 16", kF, [](X x, Out out) { Put(out, _mm512_slli_epi32(I(*x), 16)); }},
    {"slli_epi32 23", kF, [](X x, Out out) { Put(out, _mm512_slli_epi32(I(*x), 23)); }},
    {"srli_epi32 4", kF, [](X x, Out out) { Put(out, _mm512_srli_epi32(I(*x), 4)); }},
    {"srli_epi32 16", kF, [](X x, Out out) { Put(out, _mm512_srli_epi32(I(*x), 16)); }},
    {"srli_epi16 8", kF, [](X x, Out out) { Put(out, _mm512_srli_epi16(I(*x), 8)); }},
    {"madd_epi16", kF, [](X x, Out out) { Put(out, _mm512_madd_epi16(I(x[0]), I(x[1]))); }},
    {"maddubs_epi16", kF, [](X x, Out out) { Put(out, _mm512_maddubs_epi16(I(x[0]), I(x[1]))); }},

    {"cvtepi32_ps", kF, [](X x, Out out) { Put(out, _mm512_cvtepi32_ps(I(*x))); }},
    {"cvtps_epi32", kF, [](X x, Out out) { Put(out, _mm512_cvtps_epi32(F(*x))); }},
    {"cvtepi8_epi32", kF, [](X x, Out out) { Put(out, _mm512_cvtepi8_epi32(Quarter128(*x))); }},
    {"cvtepu16_epi32", kF, [](X x, Out out) { Put(out, _mm512_cvtepu16_epi32(Half(*x))); }},
    {"cvtepi32_epi16", kF, [](X x, Out out) { Put(out, _mm512_cvtepi32_epi16(I(*x))); }},
    {"cvtepi32_epi8", kF, [](X x, Out out) { Put(out, _mm512_cvtepi32_epi8(I(*x))); }},

    {"cmp_ps_mask unordered", kF,
     [](X x, Out out) { Put(out, _mm512_cmp_ps_mask(F(x[0]), F(x[1]), _CMP_UNORD_Q)); }},
    {"cmp_ps_mask less", kF,
     [](X x, Out out) { Put(out, _mm512_cmp_ps_mask(F(x[0]), F(x[1]), _CMP_LT_OQ)); }},
    {"mask_mov_ps", kF,
     [](X x, Out out) {
       Put(out, _mm512_mask_mov_ps(F(x[0]), static_cast<__mmask16>(Word(x[2])), F(x[1])));
     }},
    {"mask_mov_epi32", kF,
     [](X x, Out out) {
       Put(out, _mm512_mask_mov_epi32(I(x[0]), static_cast<__mmask16>(Word(x[2])), I(x[1])));
     }},
    {"mask_mov_epi16", kF,
     [](X x, Out out) {
       Put(out, _mm512_mask_mov_epi16(I(x[0]), static_cast<__mmask32>(Word(x[2])), I(x[1])));
     }},

    {"shuffle_ps 0x88", kF,
     [](X x, Out out) { Put(out, _mm512_shuffle_ps(F(x[0]), F(x[1]), 0x88)); }},
    {"shuffle_ps 0x1e", kF,
     [](X x, Out out) { Put(out, _mm512_shuffle_ps(F(x[0]), F(x[1]), 0x1e)); }},
    {"shuffle_epi8", kF, [](X x, Out out) { Put(out, _mm512_shuffle_epi8(I(x[0]), I(x[1]))); }},
    {"mask_shuffle_epi8", kF,
     [](X x, Out out) {
       const __mmask64 mask = static_cast<__mmask64>(Long(x[2]));
       Put(out, _mm512_mask_shuffle_epi8(I(x[0]), mask, I(x[1]), I(x[2])));
     }},
    {"unpacklo_epi16", kF, [](X x, Out out) { Put(out, _mm512_unpacklo_epi16(I(x[0]), I(x[1]))); }},
    {"unpackhi_epi16", kF, [](X x, Out out) { Put(out, _mm512_unpackhi_epi16(I(x[0]), I(x[1]))); }},
    {"unpacklo_epi64", kF, [](X x, Out out) { Put(out, _mm512_unpacklo_epi64(I(x[0]), I(x[1]))); }},
    {"unpackhi_epi64", kF, [](X x, Out out) { Put(out, _mm512_unpackhi_epi64(I(x[0]), I(x[1]))); }},
    {"unpacklo_pd", kF, [](X x, Out out) { Put(out, _mm512_unpacklo_pd(D(x[0]), D(x[1]))); }},
    {"unpackhi_pd", kF, [](X x, Out out) { Put(out, _mm512_unpackhi_pd(D(x[0]), D(x[1]))); }},
    {"shuffle_i64x2 0x44", kF,
     [](X x, Out out) { Put(out, _mm512_shuffle_i64x2(I(x[0]), I(x[1]), 0x44)); }},
    {"shuffle_i64x2 0x1e", kF,
     [](X x, Out out) { Put(out, _mm512_shuffle_i64x2(I(x[0]), I(x[1]), 0x1e)); }},
    {"shuffle_f32x4 0xdd", kF,
     [](X x, Out out) { Put(out, _mm512_shuffle_f32x4(F(x[0]), F(x[1]), 0xdd)); }},
    {"shuffle_f32x4 0x1e", kF,
     [](X x, Out out) { Put(out, _mm512_shuffle_f32x4(F(x[0]), F(x[1]), 0x1e)); }},
    {"permutexvar_epi16", kF,
     [](X x, Out out) { Put(out, _mm512_permutexvar_epi16(I(x[0]), I(x[1]))); }},

    {"dpbusd_epi32", ZmmOperation::kVnni,
     [](X x, Out out) { Put(out, _mm512_dpbusd_epi32(I(x[0]), I(x[1]), I(x[2]))); }},
    {"dpbf16_ps", ZmmOperation::kBf16,
     [](X x, Out out) {
       Put(out, _mm512_dpbf16_ps(F(x[0]), __builtin_bit_cast(__m512bh, F(x[1])),
                                 __builtin_bit_cast(__m512bh, F(x[2]))));
     }},
};
constexpr ZmmOperations kZmm = {kZmmOperations,
                                static_cast<int>(sizeof kZmmOperations / sizeof(ZmmOperation))};

}  // namespace
#endif
}  // namespace baton
