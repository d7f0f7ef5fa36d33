#include "engine/cpu/fp32/fp32_weights.h"

#include <algorithm>

#include "common/check.h"
#include "engine/threads/phase_clock.h"

namespace baton {
namespace {

constexpr int64_t kOutputsPerItem = 16;

// The phase of a matrix such as "layers.3.q".
Phase PhaseOf(const std::string& name) {
  const std::string matrix = name.substr(name.rfind('.') + 1);
  if (matrix == "q" || matrix == "k" || matrix == "v" || matrix == "latent") return Phase::kQkv;
  if (matrix == "o") return Phase::kOutput;
  if (matrix == "up" || matrix == "gate") return Phase::kGateUp;
  if (matrix == "down") return Phase::kDown;
  return matrix == "embed" || matrix == "lm_head" ? Phase::kHead : Phase::kExperts;
}

}  // namespace

Fp32Weights::Fp32Weights(const WeightSource& source, ComputePool& pool) : pool_(pool) {
  for (size_t i = 0; i < source.tensors().size(); ++i) {
    const TensorSpec& spec = source.tensors()[i];
    std::vector<float>& data = tensors_[spec.name];
    data.resize(static_cast<size_t>(spec.rows * spec.cols));
    source.ReadFp32(static_cast<int>(i), 0, spec.rows, data.data());
    for (float& value : data) value += spec.norm_offset;
  }
}

const std::vector<float>& Fp32Weights::At(const std::string& name) const {
  const auto found = tensors_.find(name);
  BATON_CHECK(found != tensors_.end());
  return found->second;
}

int64_t Fp32Weights::bytes() const {
  int64_t bytes = 0;
  for (const auto& [name, data] : tensors_) {
    bytes += static_cast<int64_t>(data.size() * sizeof(float));
  }
  return bytes;
}

void Fp32Weights::Linear(const Matrix& x, const std::string& name, Matrix& y) const {
  const PhaseScope phase(pool_.clock(), PhaseOf(name));
  const std::vector<float>& weight = At(name);
  const auto bias = tensors_.find(name + ".bias");
  const int64_t rows = x.rows();
  pool_.For((y.cols + kOutputsPerItem - 1) / kOutputsPerItem, [&](int64_t item, int) {
    const int64_t first = item * kOutputsPerItem;
    for (int64_t n = first; n < std::min(first + kOutputsPerItem, y.cols); ++n) {
      const float start = bias == tensors_.end() ? 0.0f : bias->second[n];
      for (int64_t row = 0; row < rows; ++row) {
        y.row(row)[n] = start + Dot(x.row(row), weight.data() + n * x.cols, x.cols);
      }
    }
  });
}

}  // namespace baton
