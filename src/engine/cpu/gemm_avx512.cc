// Linear layers with AVX-512F FMA: a word is one k as fp32, one zmm per 16-output block.
#include "engine/cpu/gemm_zmm.h"

namespace baton {
namespace {

struct Avx512Fma : ZmmRegisters {
  static constexpr int kSteps = 16;
  static constexpr int64_t kBlockGroups = 4;  // 32 KiB of words
  static constexpr int64_t kPrefetchBytes = 2048;

  static Vec Dot(Vec acc, Vec a, Vec b) { return _mm512_fmadd_ps(a, b, acc); }
  static Vec Weights(const bf16* block, int64_t step, int /*half*/, int chain) {
    const __m512i line = _mm512_load_si512(block + step * 32);
    return _mm512_castsi512_ps(
        chain == 0 ? _mm512_slli_epi32(line, 16)
                   : _mm512_and_si512(line, _mm512_set1_epi32(static_cast<int>(0xffff0000u))));
  }
  static void PackGroup(const bf16* x, uint32_t* e, uint32_t* o) {
    const __m512i pairs = _mm512_loadu_si512(x);
    _mm512_storeu_si512(e, _mm512_slli_epi32(pairs, 16));
    _mm512_storeu_si512(o,
                        _mm512_and_si512(pairs, _mm512_set1_epi32(static_cast<int>(0xffff0000u))));
  }
};

}  // namespace

constexpr LinearKernelTable kLinearAvx512 = VectorGemm<Avx512Fma>::Table();

}  // namespace baton
