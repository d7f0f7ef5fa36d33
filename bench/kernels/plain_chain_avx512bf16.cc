#include "bench/kernels/plain_chain.h"
#include "engine/cpu/linear/gemm_zmm.h"
#include "engine/cpu/machine/vdpbf16.h"

namespace baton {

namespace {

// Takes lines of packed weights unchanged, each a pair of k of sixteen outputs: one chain per
// output goes through both passes.
struct PlainPairs : ZmmRegisters, Vdpbf16 {
  static constexpr int kPasses = 2;
  static constexpr int kSteps = 8;
  static constexpr int kTileRows = 6, kTileVecs = 4;
  static constexpr int64_t kBlockGroups = 4;  // 16 KiB of words
  static constexpr int64_t PrefetchBytes(int /*streams*/) { return 0; }
  static constexpr int kDirectRows = 48, kDirectTileRows = 12, kDirectTilesRows = 12;
  static constexpr int kPrefetchRows = kDirectRows + 1;
  static constexpr int DirectBlocks(int64_t /*k*/) { return 4; }
  static constexpr int DirectVecs(int rows) { return rows <= 6 ? 4 : 2; }

  static Vec Weights(const bf16* block, int64_t step, int /*v*/, int pass) {
    return _mm512_castsi512_ps(_mm512_load_si512(block + (step * 2 + pass) * 32));
  }
  static void PackGroup(const bf16* x, uint32_t* e, uint32_t* o) {
    const __m512i order = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15);
    const __m512i pairs = _mm512_permutexvar_epi32(order, _mm512_loadu_si512(x));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(e), _mm512_castsi512_si256(pairs));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(o), _mm512_extracti64x4_epi64(pairs, 1));
  }
};

}  // namespace

const LinearKernelTable kPlainAvx512Bf16 = VectorGemm<PlainPairs, PlainChain>::Table();

}  // namespace baton
