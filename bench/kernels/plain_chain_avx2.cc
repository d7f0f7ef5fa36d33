#include "bench/kernels/plain_chain.h"
#include "engine/cpu/linear/gemm_ymm.h"

namespace baton {

namespace {

// Takes a word of each k in turn, of eight outputs: one chain per output goes through both passes.
struct PlainFma : YmmRegisters {
  static constexpr int kPasses = 2;
  static constexpr int kSteps = 16;
  static constexpr int64_t PrefetchBytes(int /*streams*/) { return 0; }
  static constexpr int kDirectRows = 36, kDirectTileRows = 6, kDirectTilesRows = 6;
  static constexpr int kPrefetchRows = kDirectRows + 1;
  static constexpr int DirectBlocks(int64_t /*k*/) { return 4; }
  static constexpr int DirectVecs(int rows) { return rows == 1 ? 8 : rows <= 3 ? 4 : 2; }
  static constexpr int kTileRows = 6, kTileVecs = 2;
  static constexpr int64_t kBlockGroups = 4;

  static Vec Broadcast(const uint32_t* from) {
    return _mm256_castsi256_ps(_mm256_set1_epi32(static_cast<int>(*from)));
  }
  static __m256i Words(__m256i pairs, int pass) {
    return pass == 0 ? _mm256_slli_epi32(pairs, 16)
                     : _mm256_and_si256(pairs, _mm256_set1_epi32(static_cast<int>(0xffff0000u)));
  }
  static Vec Weights(const bf16* block, int64_t step, int v, int pass) {
    return _mm256_castsi256_ps(Words(LoadPairs(block + step * 32 + v * 16), pass));
  }
  static void PackGroup(const bf16* x, uint32_t* e, uint32_t* o) {
    for (int64_t half = 0; half < 2; ++half) {
      const __m256i pairs = LoadPairs(x + half * 16);
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(e) + half, Words(pairs, 0));
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(o) + half, Words(pairs, 1));
    }
  }
};

}  // namespace

const LinearKernelTable kPlainAvx2 = VectorGemm<PlainFma, PlainChain>::Table();

}  // namespace baton
