#include "engine/cpu/linear/linear_reference.h"

#include "engine/cpu/linear/integer_rows.h"
#include "engine/numerics/gelu.h"
#include "engine/numerics/tile_order.h"

namespace baton {
namespace {

float TileOrderSum(const LinearJob& job, int64_t row, int64_t output) {
  const bf16* x = job.x + row * job.x_stride;
  const bf16* block = static_cast<const bf16*>(job.weights) + output / 16 * 16 * job.k_padded;
  return TileOrderDot(
      0.0f, job.k_padded / 32, [&](int64_t k) { return Bf16ToFloat(x[k]); },
      [&](int64_t k) { return Bf16ToFloat(block[k / 2 * 32 + output % 16 * 2 + k % 2]); });
}

// The stored integer of a weight. group: its group in the block, from which k is counted.
int32_t StoredWeight(const LinearJob& job, const uint8_t* group, int64_t output, int64_t k) {
  const uint8_t* lines = group + 64 + output % 16 * 4 + k % 4;
  if (job.weight_type == WeightType::kInt8) return lines[k / 4 * 64] - 128;
  return (lines[k / 8 * 64] >> (k / 4 % 2 * 4) & 15) - 8;
}

float IntegerSum(const LinearJob& job, int64_t row, int64_t output) {
  const bf16* x = job.x + row * job.x_stride;
  const RowScale row_scale = ScaleOfRow(x, job.k);
  const uint8_t* group = static_cast<const uint8_t*>(job.weights) + output / 16 * job.block_bytes;
  float acc = 0.0f;
  for (int64_t begin = 0; begin < job.k_padded; begin += job.group_k, group += job.group_bytes) {
    int64_t sum = 0;
    for (int64_t step = 0; step < job.group_k; step += 32) {
      int8_t values[32];
      QuantizeStep<float>(x, begin + step, job.k, row_scale, values);
      for (int64_t i = 0; i < 32; ++i) {
        sum += values[i] * StoredWeight(job, group, output, step + i);
      }
    }
    const float exact = static_cast<float>(static_cast<int32_t>(sum));
    const float scale =
        Load<float>(static_cast<const float*>(static_cast<const void*>(group)) + output % 16);
    if (job.weight_type == WeightType::kInt8) return Mul(exact, Mul(row_scale.scale, scale));
    acc = Fma(exact, scale, acc);
  }
  return Mul(acc, row_scale.scale);
}

float Accumulate(const LinearJob& job, int64_t row, int64_t output) {
  const float acc = job.weight_type == WeightType::kBf16 ? TileOrderSum(job, row, output)
                                                         : IntegerSum(job, row, output);
  return job.bias == nullptr ? acc : Add(acc, job.bias[output]);
}

}  // namespace

void RunLinearReference(const LinearJob& job) {
  for (int64_t row = 0; row < job.rows; ++row) {
    bf16* y = job.y == nullptr ? nullptr : job.y + row * job.y_stride;
    for (int64_t n = 0; n < job.n; ++n) {
      if (IsGated(job.epilogue) && n % 32 >= 16) continue;
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
        case Epilogue::kGelu:
          y[n] = FloatToBf16(Gelu(RoundBf16(sum)));
          break;
        case Epilogue::kSwiGlu:
        case Epilogue::kGeGlu: {
          const float gate = RoundBf16(sum), up = RoundBf16(Accumulate(job, row, n + 16));
          const float open = job.epilogue == Epilogue::kSwiGlu ? Silu(gate) : GeluTanh(gate);
          y[n / 32 * 16 + n % 32] = FloatToBf16(Mul(open, up));
          break;
        }
      }
    }
  }
}

}  // namespace baton
