#include "engine/stored_tensor.h"

#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace baton {
namespace {

constexpr size_t kChunkBytes = 64 << 10;  // stays in the nearest caches between check and hash

FiniteRule RuleOf(Dtype dtype) {
  if (dtype == Dtype::kFp32) return kFiniteFp32;
  return dtype == Dtype::kFp16 ? kFiniteFp16 : kFiniteBf16;
}

// IEEE half to fp32, exactly.
float HalfToFloat(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
  const uint32_t exponent = (half >> 10) & 0x1fu, fraction = half & 0x3ffu;
  if (exponent == 0) {
    const float magnitude = static_cast<float>(fraction) * 0x1p-24f;
    return sign != 0 ? -magnitude : magnitude;
  }
  const uint32_t wide = exponent == 31 ? 0xffu : exponent + 112;
  return __builtin_bit_cast(float, sign | wide << 23 | fraction << 13);
}

// memcpy: tensors are not aligned in the file.
template <typename Out, typename Stored, typename Convert>
void ReadValues(const std::byte* from, int64_t n, Out* out, const Convert& convert) {
  for (int64_t i = 0; i < n; ++i) {
    Stored value;
    std::memcpy(&value, from + i * static_cast<int64_t>(sizeof(value)), sizeof(value));
    out[i] = convert(value);
  }
}

}  // namespace

absl::StatusOr<StoredTensor> StoredTensor::Open(const Checkpoint& checkpoint,
                                                const std::string& name,
                                                const std::vector<int64_t>& shape) {
  const TensorView* view = checkpoint.Find(name);
  const std::string wanted =
      absl::StrFormat("config.json asks for shape [%s]", absl::StrJoin(shape, ", "));
  if (view == nullptr) {
    return absl::NotFoundError(
        absl::StrFormat("%s: tensor \"%s\" is missing; %s", checkpoint.folder(), name, wanted));
  }
  if (view->shape != shape) {
    return absl::InvalidArgumentError(absl::StrFormat("%s: tensor \"%s\" has shape [%s]; %s",
                                                      checkpoint.folder(), name,
                                                      absl::StrJoin(view->shape, ", "), wanted));
  }
  StoredTensor tensor;
  tensor.folder_ = checkpoint.folder();
  tensor.cols_ = shape.size() == 2 ? shape[1] : 1;
  if (view->dtype == "F32") {
    tensor.dtype_ = Dtype::kFp32;
  } else if (view->dtype == "F16") {
    tensor.dtype_ = Dtype::kFp16;
  } else if (view->dtype != "BF16") {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s: tensor \"%s\" has dtype %s; supported: BF16, F16, F32",
                        checkpoint.folder(), name, view->dtype));
  }
  tensor.parts_.push_back({name, view->bytes, tensor.cols_, RuleOf(tensor.dtype_)});
  return tensor;
}

void StoredTensor::ReadBf16(int64_t row, int64_t count, bf16* out) const {
  const std::byte* from = parts_[0].bytes.data() + row * cols_ * parts_[0].rule.bytes;
  const int64_t n = count * cols_;
  if (dtype_ == Dtype::kBf16) {
    std::memcpy(out, from, static_cast<size_t>(n * 2));
  } else if (dtype_ == Dtype::kFp16) {
    ReadValues<bf16, uint16_t>(from, n, out,
                               [](uint16_t v) { return FloatToBf16(HalfToFloat(v)); });
  } else {
    ReadValues<bf16, float>(from, n, out, FloatToBf16);
  }
}

void StoredTensor::ReadFp32(int64_t row, int64_t count, float* out) const {
  const std::byte* from = parts_[0].bytes.data() + row * cols_ * parts_[0].rule.bytes;
  const int64_t n = count * cols_;
  if (dtype_ == Dtype::kFp32) {
    std::memcpy(out, from, static_cast<size_t>(n * 4));
  } else {
    ReadValues<float, uint16_t>(from, n, out, dtype_ == Dtype::kBf16 ? Bf16ToFloat : HalfToFloat);
  }
}

absl::Status StoredTensor::CheckPart(const Part& part, size_t offset, size_t size) const {
  const int64_t bad = FirstBadValue(part.bytes.subspan(offset, size), part.rule);
  if (bad < 0) return absl::OkStatus();
  const int64_t index = static_cast<int64_t>(offset) / part.rule.bytes + bad;
  return absl::InvalidArgumentError(absl::StrFormat(
      "%s: tensor \"%s\" has a value in row %d, column %d that is NaN, infinite or beyond the "
      "range of bf16; the file is damaged, or was so when it was saved: download it again",
      folder_, part.name, index / part.cols, index % part.cols));
}

absl::StatusOr<uint64_t> StoredTensor::Digest() const {
  const std::unique_ptr<XXH3_state_t, XXH_errorcode (*)(XXH3_state_t*)> state(XXH3_createState(),
                                                                              XXH3_freeState);
  XXH3_64bits_reset(state.get());
  for (const Part& part : parts_) {
    for (size_t at = 0; at < part.bytes.size(); at += kChunkBytes) {
      const size_t n = std::min(kChunkBytes, part.bytes.size() - at);
      RETURN_IF_ERROR(CheckPart(part, at, n));
      XXH3_64bits_update(state.get(), part.bytes.data() + at, n);
    }
  }
  return XXH3_64bits_digest(state.get());
}

std::string StoredTensor::Encoding() const { return absl::StrCat(static_cast<int>(dtype_)); }

std::span<const std::byte> StoredTensor::Head(size_t most_bytes) const {
  return parts_[0].bytes.first(std::min(parts_[0].bytes.size(), most_bytes));
}

}  // namespace baton
