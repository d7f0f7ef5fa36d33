#include "engine/cpu/linear_reference.h"

#include "engine/numerics/exp2.h"
#include "engine/numerics/tile_order.h"

namespace baton {
namespace {

float Accumulate(const LinearJob& job, int64_t row, int64_t output) {
  const bf16* x = job.x + row * job.x_stride;
  const bf16* block = job.weights + output / 16 * 16 * job.k_padded;
  const float acc = TileOrderDot(
      0.0f, job.k_padded / 32, [&](int64_t k) { return Bf16ToFloat(x[k]); },
      [&](int64_t k) { return Bf16ToFloat(block[k / 2 * 32 + output % 16 * 2 + k % 2]); });
  return job.bias == nullptr ? acc : Add(acc, job.bias[output]);
}

}  // namespace

void RunLinearReference(const LinearJob& job) {
  for (int64_t row = 0; row < job.rows; ++row) {
    bf16* y = job.y == nullptr ? nullptr : job.y + row * job.y_stride;
    for (int64_t n = 0; n < job.n; ++n) {
      if (job.epilogue == Epilogue::kSwiGlu && n % 32 >= 16) continue;
      const float sum = Accumulate(job, row, n);
      switch (job.epilogue) {
        case Epilogue::kBf16:
          y[n] = FloatToBf16(sum);
          break;
        case Epilogue::kFp32:
          job.y_fp32[row * job.y_stride + n] = CanonicalizeNan(sum);
          break;
        case Epilogue::kResidualAdd: {
          const float residual = Bf16ToFloat(job.residual[row * job.residual_stride + n]);
          y[n] = FloatToBf16(Add(residual, RoundBf16(sum)));
          break;
        }
        case Epilogue::kSwiGlu: {
          const float up = RoundBf16(Accumulate(job, row, n + 16));
          y[n / 32 * 16 + n % 32] = FloatToBf16(Mul(Silu(RoundBf16(sum)), up));
          break;
        }
      }
    }
  }
}

}  // namespace baton
