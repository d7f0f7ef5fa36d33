#include "engine/cpu/machine/amx_tiles.h"
#include "engine/cpu/machine/peak_kernels.h"

namespace baton {
namespace {

template <bool kIntegers, int c, int a, int b>
inline void Dot() {
  if constexpr (kIntegers) {
    AmxTiles::DotInt8<c, a, b>();
  } else {
    AmxTiles::Dot<c, a, b>();
  }
}

// The operands' upper halves are bf16 of the same range; the lower halves are any finite bf16.
template <bool kIntegers>
float Run(const float* operands, int64_t iterations) {
  alignas(64) float sums[4][256];
  AmxTiles::Configure();
  AmxTiles::Zero<0>();
  AmxTiles::Zero<1>();
  AmxTiles::Zero<2>();
  AmxTiles::Zero<3>();
  AmxTiles::Load<4>(operands, 64);
  AmxTiles::Load<5>(operands + 256, 64);
  AmxTiles::Load<6>(operands + 512, 64);
  AmxTiles::Load<7>(operands + 768, 64);
  for (int64_t iteration = 0; iteration < iterations; ++iteration) {
    Dot<kIntegers, 0, 4, 6>();
    Dot<kIntegers, 1, 4, 7>();
    Dot<kIntegers, 2, 5, 6>();
    Dot<kIntegers, 3, 5, 7>();
  }
  AmxTiles::Store<0>(sums[0], 64);
  AmxTiles::Store<1>(sums[1], 64);
  AmxTiles::Store<2>(sums[2], 64);
  AmxTiles::Store<3>(sums[3], 64);
  AmxTiles::Release();
  return sums[0][0] + sums[1][0] + sums[2][0] + sums[3][0];
}

}  // namespace

constexpr PeakKernel kPeakAmx = {4 * 16 * 16 * 32 * 2, Run<false>};
constexpr PeakKernel kPeakIntegerAmx = {4 * 16 * 16 * 64 * 2, Run<true>};

}  // namespace baton
