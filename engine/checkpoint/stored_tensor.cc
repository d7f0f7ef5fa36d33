#include "engine/checkpoint/stored_tensor.h"

#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <memory>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "engine/numerics/half.h"

namespace baton {
namespace {

constexpr size_t kChunkBytes = 64 << 10;  // stays in the nearest caches between check and hash

// memcpy: tensors are not aligned in the file.
template <typename Out, typename Stored, typename Convert>
void ReadValues(const std::byte* from, int64_t n, Out* out, const Convert& convert) {
  for (int64_t i = 0; i < n; ++i) {
    Stored value;
    std::memcpy(&value, from + i * static_cast<int64_t>(sizeof(value)), sizeof(value));
    out[i] = convert(value);
  }
}

// fn(row, n_rows, col, n_cols, tile): rows [row, row + count) in tiles of fp32.
template <typename Fn>
void ForTiles(const QuantizedTensor& tensor, int64_t row, int64_t count, const Fn& fn) {
  float tile[kTileRows * kTileCols];
  for (int64_t end = row + count; row < end; row += kTileRows) {
    const int64_t n_rows = std::min(kTileRows, end - row);
    for (int64_t col = 0; col < tensor.cols; col += kTileCols) {
      const int64_t n_cols = std::min(kTileCols, tensor.cols - col);
      DequantizeTile(tensor, row, n_rows, col, n_cols, tile);
      fn(row, n_rows, col, n_cols, tile);
    }
  }
}

template <typename Out, typename Convert>
void ReadQuantized(const QuantizedTensor& tensor, int64_t row, int64_t count, Out* out,
                   const Convert& convert) {
  ForTiles(tensor, row, count,
           [&](int64_t first, int64_t n_rows, int64_t col, int64_t n_cols, const float* tile) {
             for (int64_t r = 0; r < n_rows; ++r) {
               Out* to = out + (first - row + r) * tensor.cols + col;
               for (int64_t c = 0; c < n_cols; ++c) to[c] = convert(tile[r * kTileCols + c]);
             }
           });
}

// Suffixes that quantised modules have beside or instead of "weight".
constexpr std::string_view kQuantizedSuffixes[] = {".qweight", ".qzeros", ".weight_packed",
                                                   ".weight_scale", ".weight_scale_inv"};

bool LooksQuantized(const Checkpoint& checkpoint, const std::string& module) {
  return std::any_of(std::begin(kQuantizedSuffixes), std::end(kQuantizedSuffixes),
                     [&](std::string_view suffix) {
                       return checkpoint.Find(absl::StrCat(module, std::string(suffix))) != nullptr;
                     });
}

}  // namespace

absl::StatusOr<StoredTensor> StoredTensor::Open(const Checkpoint& checkpoint,
                                                const QuantizationDesc& quantization,
                                                const std::string& name,
                                                const std::vector<int64_t>& shape) {
  constexpr std::string_view kWeight = ".weight";
  const TensorView* view = checkpoint.Find(name);
  Dtype dtype;
  const bool is_plain = view != nullptr && IsFloatDtype(*view, &dtype);
  const bool is_matrix = shape.size() == 2 && name.ends_with(kWeight);
  const std::string module =
      is_matrix ? name.substr(0, name.size() - kWeight.size()) : std::string();
  const bool has_codes = view != nullptr && !is_plain && !quantization.schemes.empty();
  if (!is_matrix || !(has_codes || LooksQuantized(checkpoint, module))) {
    return OpenPlain(checkpoint, name, shape);
  }
  if (is_plain) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s: tensor \"%s\" is there both with its values and quantised",
                        checkpoint.folder(), name));
  }
  if (quantization.schemes.empty()) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s: tensor \"%s\" is quantised, but config.json has no quantization_config that says how",
        checkpoint.folder(), name));
  }
  return OpenQuantized(checkpoint, quantization, name, shape[0], shape[1]);
}

absl::StatusOr<StoredTensor> StoredTensor::OpenPlain(const Checkpoint& checkpoint,
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
  tensor.origin_ = checkpoint.folder();
  tensor.name_ = name;
  tensor.cols_ = shape.size() == 2 ? shape[1] : 1;
  if (!IsFloatDtype(*view, &tensor.dtype_)) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s: tensor \"%s\" has dtype %s; supported: BF16, F16, F32",
                        checkpoint.folder(), name, view->dtype));
  }
  tensor.parts_.push_back({name, view->bytes, tensor.cols_, FiniteRuleOf(tensor.dtype_)});
  return tensor;
}

absl::StatusOr<StoredTensor> StoredTensor::OpenQuantized(const Checkpoint& checkpoint,
                                                         const QuantizationDesc& quantization,
                                                         const std::string& name, int64_t rows,
                                                         int64_t cols) {
  const std::string module = name.substr(0, name.rfind('.'));
  absl::Status status;
  for (const QuantScheme& scheme : quantization.schemes) {
    absl::StatusOr<QuantizedParts> found =
        FindQuantizedParts(checkpoint, scheme, module, rows, cols);
    status.Update(found.status());
    if (!found.ok()) continue;
    StoredTensor tensor;
    tensor.origin_ = checkpoint.folder();
    tensor.name_ = name;
    tensor.cols_ = cols;
    tensor.quantized_ = std::move(found->tensor);
    tensor.parts_ = std::move(found->parts);
    return tensor;
  }
  return status;
}

absl::StatusOr<StoredTensor> StoredTensor::Open(const GgufFile& file, const std::string& name,
                                                const std::vector<int64_t>& shape) {
  const GgufTensor* stored = file.FindTensor(name);
  const std::string wanted =
      absl::StrFormat("the metadata ask for shape [%s]", absl::StrJoin(shape, ", "));
  if (stored == nullptr) {
    return absl::NotFoundError(
        absl::StrFormat("%s: tensor \"%s\" is missing; %s", file.path(), name, wanted));
  }
  if (stored->shape != shape) {
    return absl::InvalidArgumentError(absl::StrFormat("%s: tensor \"%s\" has shape [%s]; %s",
                                                      file.path(), name,
                                                      absl::StrJoin(stored->shape, ", "), wanted));
  }
  const bool is_vector = shape.size() == 1;
  if (is_vector && !stored->type->plain) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s: tensor \"%s\" has type %s; supported for norms and biases: F32, F16, BF16",
        file.path(), name, std::string(stored->type->name)));
  }
  if (!stored->type->is_supported()) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s: tensor \"%s\" has type %s; supported: %s (convert or download the model in one of "
        "them)",
        file.path(), name, std::string(stored->type->name), SupportedGgufTensorTypes()));
  }
  StoredTensor tensor;
  tensor.origin_ = file.path();
  tensor.name_ = name;
  tensor.cols_ = is_vector ? 1 : shape[1];
  if (stored->type->plain) {
    tensor.dtype_ = *stored->type->plain;
    tensor.parts_.push_back({name, stored->bytes, tensor.cols_, FiniteRuleOf(tensor.dtype_)});
  } else {
    tensor.blocks_ = stored->type;
    tensor.parts_.push_back({name, stored->bytes, tensor.cols_, {0, 0}});
  }
  return tensor;
}

// Reads rows, which are whole blocks.
template <typename Out, typename Convert>
void StoredTensor::ReadBlocks(int64_t row, int64_t count, Out* out, const Convert& convert) const {
  float values[kMaxBlockValues];
  const int64_t n = blocks_->block_values;
  for (int64_t at = row * cols_, end = at + count * cols_; at < end; at += n) {
    blocks_->dequantize(parts_[0].bytes.data() + at / n * blocks_->block_bytes, values);
    for (int64_t i = 0; i < n; ++i) *out++ = convert(values[i]);
  }
}

void StoredTensor::ReadBf16(int64_t row, int64_t count, bf16* out) const {
  if (blocks_ != nullptr) return ReadBlocks(row, count, out, FloatToBf16);
  if (quantized_) return ReadQuantized(*quantized_, row, count, out, FloatToBf16);
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
  if (blocks_ != nullptr) return ReadBlocks(row, count, out, [](float value) { return value; });
  if (quantized_) {
    return ReadQuantized(*quantized_, row, count, out, [](float value) { return value; });
  }
  const std::byte* from = parts_[0].bytes.data() + row * cols_ * parts_[0].rule.bytes;
  const int64_t n = count * cols_;
  if (dtype_ == Dtype::kFp32) {
    std::memcpy(out, from, static_cast<size_t>(n * 4));
  } else {
    ReadValues<float, uint16_t>(from, n, out, dtype_ == Dtype::kBf16 ? Bf16ToFloat : HalfToFloat);
  }
}

absl::Status StoredTensor::CheckPart(const TensorPart& part, size_t offset, size_t size) const {
  if (part.rule.bytes == 0) return absl::OkStatus();
  const int64_t bad = FirstBadValue(part.bytes.subspan(offset, size), part.rule);
  if (bad < 0) return absl::OkStatus();
  const int64_t index = static_cast<int64_t>(offset) / part.rule.bytes + bad;
  return BadValue(part.name, index / part.cols, index % part.cols);
}

absl::Status StoredTensor::CheckBlocks() const {
  float values[kMaxBlockValues];
  const int64_t n = blocks_->block_values;
  const std::span<const std::byte> bytes = parts_[0].bytes;
  for (size_t block = 0; block * blocks_->block_bytes < bytes.size(); ++block) {
    blocks_->dequantize(bytes.data() + block * blocks_->block_bytes, values);
    const int64_t bad =
        FirstBadValue({reinterpret_cast<const std::byte*>(values), n * sizeof(float)}, kFiniteFp32);
    const int64_t index = static_cast<int64_t>(block) * n + bad;
    if (bad >= 0) return BadValue(name_, index / cols_, index % cols_);
  }
  return absl::OkStatus();
}

absl::Status StoredTensor::BadValue(const std::string& part, int64_t row, int64_t col) const {
  return absl::InvalidArgumentError(absl::StrFormat(
      "%s: tensor \"%s\" has a value in row %d, column %d that is NaN, infinite or beyond the "
      "range of bf16; the file is damaged, or was so when it was saved: download it again",
      origin_, part, row, col));
}

absl::StatusOr<uint64_t> StoredTensor::Digest() const {
  const std::unique_ptr<XXH3_state_t, XXH_errorcode (*)(XXH3_state_t*)> state(XXH3_createState(),
                                                                              XXH3_freeState);
  XXH3_64bits_reset(state.get());
  if (blocks_ != nullptr) RETURN_IF_ERROR(CheckBlocks());
  for (const TensorPart& part : parts_) {
    for (size_t at = 0; at < part.bytes.size(); at += kChunkBytes) {
      const size_t n = std::min(kChunkBytes, part.bytes.size() - at);
      RETURN_IF_ERROR(CheckPart(part, at, n));
      XXH3_64bits_update(state.get(), part.bytes.data() + at, n);
    }
  }
  return XXH3_64bits_digest(state.get());
}

std::string StoredTensor::Encoding() const {
  if (blocks_ != nullptr) return absl::StrCat("blocks ", std::string(blocks_->name));
  if (!quantized_) return absl::StrCat(static_cast<int>(dtype_));
  const QuantizedTensor& q = *quantized_;
  return absl::StrFormat("codes %d %d blocks %d %d zeros %d %d scales %d index %d",
                         static_cast<int>(q.layout), q.bits, q.block_rows, q.group,
                         q.zeros != nullptr, q.zeros_less_one, static_cast<int>(q.scale_dtype),
                         !q.group_index.empty());
}

std::span<const std::byte> StoredTensor::Head(size_t max_bytes) const {
  return parts_[0].bytes.first(std::min(parts_[0].bytes.size(), max_bytes));
}

}  // namespace baton
