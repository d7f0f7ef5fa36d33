#include "engine/weight_source.h"

#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/check.h"
#include "engine/safetensors.h"
#include "engine/text_file.h"

namespace baton {
namespace {

uint64_t HashText(std::string_view text, uint64_t seed) {
  return XXH64(text.data(), text.size(), seed);
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

// ---- a checkpoint folder ----

class CheckpointSource : public WeightSource {
 public:
  static absl::StatusOr<std::unique_ptr<WeightSource>> Open(const std::string& folder,
                                                            const ModelDesc& model) {
    ASSIGN_OR_RETURN(Checkpoint checkpoint, Checkpoint::Open(folder));
    std::unique_ptr<CheckpointSource> source(new CheckpointSource(model, std::move(checkpoint)));
    for (const TensorSpec& spec : source->tensors_) RETURN_IF_ERROR(source->Resolve(spec));
    return source;
  }

  void ReadBf16(int tensor, int64_t row, int64_t count, bf16* out) const override {
    const Stored& stored = stored_[tensor];
    ForStoredRows(tensor, row, count, [&](int64_t first, int64_t n) {
      if (stored.dtype == Dtype::kBf16) {
        std::memcpy(out, stored.bytes + first * 2, static_cast<size_t>(n * 2));
        out += n;
      } else {
        for (int64_t i = first; i < first + n; ++i) *out++ = FloatToBf16(Value(stored, i));
      }
    });
  }

  void ReadFp32(int tensor, int64_t row, int64_t count, float* out) const override {
    ForStoredRows(tensor, row, count, [&](int64_t first, int64_t n) {
      for (int64_t i = first; i < first + n; ++i) *out++ = Value(stored_[tensor], i);
    });
  }

  uint64_t Fingerprint(ComputePool& pool) const override {
    std::vector<uint64_t> hashes(tensors_.size());
    pool.For(static_cast<int64_t>(tensors_.size()),
             [&](int64_t i, int) { hashes[i] = XXH3_64bits(stored_[i].bytes, stored_[i].size); });
    uint64_t hash = HashText(model_.Canonical(), 0);
    for (size_t i = 0; i < tensors_.size(); ++i) {
      hash = HashText(absl::StrFormat("%s %d %x", tensors_[i].name,
                                      static_cast<int>(stored_[i].dtype), hashes[i]),
                      hash);
    }
    return hash;
  }

  // Headers, sizes and mtimes tell files apart, and the first bytes of every tensor tell apart
  // fine-tunes of one base that were unpacked with equal times.
  uint64_t Identity() const override {
    constexpr size_t kProbe = 256;
    uint64_t hash = HashText(model_.Canonical(), 1);
    for (const SafetensorsFile& file : checkpoint_.files()) {
      hash = XXH64(file.header().data(), file.header().size(), hash);
      hash =
          HashText(absl::StrCat(file.file().bytes().size(), " ", file.file().modified_ns()), hash);
    }
    for (const Stored& stored : stored_) {
      hash = XXH64(stored.bytes, std::min(stored.size, kProbe), hash);
    }
    return hash;
  }

 private:
  struct Stored {
    const std::byte* bytes;
    size_t size;
    Dtype dtype;
  };

  CheckpointSource(const ModelDesc& model, Checkpoint checkpoint)
      : WeightSource(model), checkpoint_(std::move(checkpoint)) {}

  // fn(first, n): values [first, first + n) of the published tensor, run by run, in our order.
  template <typename Fn>
  void ForStoredRows(int tensor, int64_t row, int64_t count, const Fn& fn) const {
    const int64_t cols = tensors_[tensor].cols;
    for (const RowRange& range : tensors_[tensor].stored_ranges) {
      const int64_t n = std::min(range.count - row, count);
      if (n > 0) fn((range.first + row) * cols, n * cols);
      count -= std::max<int64_t>(n, 0);
      row = std::max<int64_t>(row - range.count, 0);
    }
  }

  absl::Status Resolve(const TensorSpec& spec) {
    const TensorView* view = checkpoint_.Find(spec.stored_name);
    std::vector<int64_t> shape{spec.stored_rows};
    if (!spec.is_vector) shape.push_back(spec.cols);
    const std::string wanted =
        absl::StrFormat("config.json asks for shape [%s]", absl::StrJoin(shape, ", "));
    if (view == nullptr) {
      return absl::NotFoundError(absl::StrFormat("%s: tensor \"%s\" is missing; %s",
                                                 checkpoint_.folder(), spec.stored_name, wanted));
    }
    if (view->shape != shape) {
      return absl::InvalidArgumentError(absl::StrFormat("%s: tensor \"%s\" has shape [%s]; %s",
                                                        checkpoint_.folder(), spec.stored_name,
                                                        absl::StrJoin(view->shape, ", "), wanted));
    }
    Dtype dtype = Dtype::kBf16;
    if (view->dtype == "F32") {
      dtype = Dtype::kFp32;
    } else if (view->dtype == "F16") {
      dtype = Dtype::kFp16;
    } else if (view->dtype != "BF16") {
      return absl::InvalidArgumentError(
          absl::StrFormat("%s: tensor \"%s\" has dtype %s; supported: BF16, F16, F32",
                          checkpoint_.folder(), spec.stored_name, view->dtype));
    }
    stored_.push_back({view->bytes.data(), view->bytes.size(), dtype});
    return absl::OkStatus();
  }

  // memcpy: tensors are not aligned in the file.
  static float Value(const Stored& stored, int64_t i) {
    if (stored.dtype == Dtype::kFp32) {
      float value;
      std::memcpy(&value, stored.bytes + i * 4, sizeof(value));
      return value;
    }
    uint16_t half;
    std::memcpy(&half, stored.bytes + i * 2, sizeof(half));
    return stored.dtype == Dtype::kBf16 ? Bf16ToFloat(half) : HalfToFloat(half);
  }

  Checkpoint checkpoint_;
  std::vector<Stored> stored_;  // (tensors)
};

// ---- random weights (engine reference 6): the same bits in any language ----

class RandomSource : public WeightSource {
 public:
  RandomSource(const ModelDesc& model, uint64_t seed)
      : WeightSource(model), seed_(static_cast<uint32_t>(seed ^ seed >> 32)) {}

  void ReadBf16(int tensor, int64_t row, int64_t count, bf16* out) const override {
    const TensorSpec& spec = tensors_[tensor];
    const uint32_t first = static_cast<uint32_t>(row * spec.cols);
    const uint32_t salt = spec.random_id * 0x85EBCA77u + seed_;
    const int64_t n = count * spec.cols;
    for (int64_t i = 0; i < n; ++i) {
      out[i] = FloatToBf16(Value(first + static_cast<uint32_t>(i), salt, spec.is_norm));
    }
  }

  void ReadFp32(int tensor, int64_t row, int64_t count, float* out) const override {
    // Both modes compute with the same weights.
    std::vector<bf16> rounded(static_cast<size_t>(count * tensors_[tensor].cols));
    ReadBf16(tensor, row, count, rounded.data());
    std::transform(rounded.begin(), rounded.end(), out, [](bf16 v) { return Bf16ToFloat(v); });
  }

  uint64_t Fingerprint(ComputePool&) const override { return Identity(); }
  uint64_t Identity() const override {
    return HashText(absl::StrCat("random weights 1 seed ", seed_, " ", model_.Canonical()), 0);
  }

 private:
  static float Value(uint32_t index, uint32_t salt, bool is_norm) {
    uint32_t h = index * 0x9E3779B1u + salt;
    h ^= h >> 16;
    h *= 0x85EBCA6Bu;
    h ^= h >> 13;
    h *= 0xC2B2AE35u;
    h ^= h >> 16;
    const uint32_t sum = (h & 0xffu) + (h >> 8 & 0xffu) + (h >> 16 & 0xffu) + (h >> 24);
    // Four bytes sum to 510 on average with deviation 147.8: mean 0, deviation 0.02.
    const float value =
        static_cast<float>(static_cast<int32_t>(sum) - 510) * static_cast<float>(0.02 / 147.8);
    return is_norm ? 1.0f + 3.125f * value : value;
  }

  uint32_t seed_;
};

}  // namespace

WeightSource::WeightSource(const ModelDesc& model) : model_(model), tensors_(TensorsOf(model)) {}

int WeightSource::IndexOf(const std::string& name) const {
  const auto found = std::find_if(tensors_.begin(), tensors_.end(),
                                  [&](const TensorSpec& spec) { return spec.name == name; });
  CHECK(found != tensors_.end());
  return static_cast<int>(found - tensors_.begin());
}

bool IsRandomModel(const std::string& model, std::string* config) {
  constexpr std::string_view kPrefix = "random:";
  if (!model.starts_with(kPrefix)) return false;
  *config = model.substr(kPrefix.size());
  return true;
}

absl::StatusOr<ModelDesc> ReadModelDesc(const std::string& model) {
  std::string config;
  if (!IsRandomModel(model, &config)) return ModelDesc::FromFolder(model);
  constexpr size_t kMostConfigBytes = 1 << 20;
  ASSIGN_OR_RETURN(const std::string text, ReadTextFile(config, kMostConfigBytes));
  ASSIGN_OR_RETURN(ModelDesc desc, ModelDesc::FromJson(text, config));
  desc.name = absl::StrCat("random-", std::filesystem::path(config).stem().string());
  return desc;
}

absl::StatusOr<std::unique_ptr<WeightSource>> OpenWeightSource(const std::string& model,
                                                               const ModelDesc& desc,
                                                               uint64_t random_seed) {
  std::string config;
  if (!IsRandomModel(model, &config)) return CheckpointSource::Open(model, desc);
  return std::make_unique<RandomSource>(desc, random_seed);
}

}  // namespace baton
