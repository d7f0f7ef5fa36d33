#include "engine/checkpoint/weight_source.h"

#include <xxhash.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/check.h"
#include "engine/checkpoint/gguf.h"
#include "engine/checkpoint/gguf_model.h"
#include "engine/checkpoint/safetensors.h"
#include "engine/checkpoint/stored_tensor.h"
#include "engine/model/model_path.h"
#include "engine/model/text_file.h"

namespace baton {
namespace {

uint64_t HashText(std::string_view text, uint64_t seed) {
  return XXH64(text.data(), text.size(), seed);
}

// ---- files of tensors ----

// Facts that distinguish a file from others.
struct FileFacts {
  std::span<const std::byte> header;
  const MappedFile& file;
};
std::vector<FileFacts> FactsOf(const Checkpoint& checkpoint) {
  std::vector<FileFacts> facts;
  for (const SafetensorsFile& file : checkpoint.files()) {
    facts.push_back({file.header(), file.file()});
  }
  return facts;
}
std::vector<FileFacts> FactsOf(const GgufFile& file) { return {{file.header(), file.file()}}; }

absl::StatusOr<StoredTensor> OpenTensor(const Checkpoint& checkpoint, const ModelDesc& model,
                                        const std::string& name,
                                        const std::vector<int64_t>& shape) {
  return StoredTensor::Open(checkpoint, model.quantization, name, shape);
}
absl::StatusOr<StoredTensor> OpenTensor(const GgufFile& file, const ModelDesc&,
                                        const std::string& name,
                                        const std::vector<int64_t>& shape) {
  return StoredTensor::Open(file, name, shape);
}

// Weights from files. Files: a Checkpoint or a GgufFile.
template <typename Files>
class StoredSource : public WeightSource {
 public:
  static absl::StatusOr<std::unique_ptr<WeightSource>> Open(const std::string& path,
                                                            const ModelDesc& model) {
    ASSIGN_OR_RETURN(Files files, Files::Open(path));
    std::unique_ptr<StoredSource> source(new StoredSource(model, std::move(files)));
    for (const TensorSpec& spec : source->tensors_) RETURN_IF_ERROR(source->Resolve(spec));
    return source;
  }

  void ReadBf16(int tensor, int64_t row, int64_t count, bf16* out) const override {
    ForStoredRows(tensor, row, count, [&](const StoredTensor& stored, int64_t first, int64_t n) {
      stored.ReadBf16(first, n, out);
      out += n * tensors_[tensor].cols;
    });
  }

  void ReadFp32(int tensor, int64_t row, int64_t count, float* out) const override {
    ForStoredRows(tensor, row, count, [&](const StoredTensor& stored, int64_t first, int64_t n) {
      stored.ReadFp32(first, n, out);
      out += n * tensors_[tensor].cols;
    });
  }

  absl::StatusOr<uint64_t> Fingerprint(ComputePool& pool) const override {
    const int64_t n = static_cast<int64_t>(stored_.size());
    std::vector<absl::StatusOr<uint64_t>> digests(stored_.size());
    pool.For(n, [&](int64_t i, int) { digests[i] = stored_[i].Digest(); });
    uint64_t hash = HashText(model_.Canonical(), 0);
    for (int64_t i = 0; i < n; ++i) {
      RETURN_IF_ERROR(digests[i].status());
      hash = HashText(
          absl::StrFormat("%s %s %x", stored_[i].name(), stored_[i].Encoding(), *digests[i]), hash);
    }
    return hash;
  }

  // Headers, sizes and mtimes distinguish files, and the first bytes of every tensor distinguish
  // fine-tunes of one base that were unpacked with equal times.
  uint64_t Identity() const override {
    constexpr size_t kProbe = 256;
    uint64_t hash = HashText(model_.Canonical(), 1);
    for (const FileFacts& facts : FactsOf(files_)) {
      hash = XXH64(facts.header.data(), facts.header.size(), hash);
      hash = HashText(absl::StrCat(facts.file.bytes().size(), " ", facts.file.modified_ns()), hash);
    }
    for (const StoredTensor& stored : stored_) {
      const std::span<const std::byte> head = stored.Head(kProbe);
      hash = HashText(stored.Encoding(), hash);
      hash = XXH64(head.data(), head.size(), hash);
    }
    return hash;
  }

 private:
  StoredSource(const ModelDesc& model, Files files)
      : WeightSource(model), files_(std::move(files)) {}

  // fn(stored, first, n): called for rows [first, first + n) of the published tensor, run by run,
  // in the order of the engine's tensor.
  template <typename Fn>
  void ForStoredRows(int tensor, int64_t row, int64_t count, const Fn& fn) const {
    const StoredTensor& stored = stored_[places_[tensor]];
    for (const RowRange& range : tensors_[tensor].stored_ranges) {
      const int64_t n = std::min(range.count - row, count);
      if (n > 0) fn(stored, range.first + row, n);
      count -= std::max<int64_t>(n, 0);
      row = std::max<int64_t>(row - range.count, 0);
    }
  }

  absl::Status Resolve(const TensorSpec& spec) {
    const auto [place, is_new] = index_of_.try_emplace(spec.stored_name, stored_.size());
    places_.push_back(place->second);
    if (!is_new) return absl::OkStatus();
    std::vector<int64_t> shape{spec.stored_rows};
    if (!spec.is_vector) shape.push_back(spec.cols);
    ASSIGN_OR_RETURN(StoredTensor stored, OpenTensor(files_, model_, spec.stored_name, shape));
    stored_.push_back(std::move(stored));
    return absl::OkStatus();
  }

  Files files_;
  std::vector<StoredTensor> stored_;        // published tensors, each once
  std::map<std::string, size_t> index_of_;  // index into stored_ by published name
  std::vector<size_t> places_;              // (tensors) index into stored_
};

// ---- random weights (docs/MODELS.md): the same bits in any language ----

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
      out[i] = FloatToBf16(Value(first + static_cast<uint32_t>(i), salt, spec));
    }
  }

  void ReadFp32(int tensor, int64_t row, int64_t count, float* out) const override {
    // Rounds fp32 to bf16 too, so that both modes compute with the same weights.
    std::vector<bf16> rounded(static_cast<size_t>(count * tensors_[tensor].cols));
    ReadBf16(tensor, row, count, rounded.data());
    std::transform(rounded.begin(), rounded.end(), out, [](bf16 v) { return Bf16ToFloat(v); });
  }

  absl::StatusOr<uint64_t> Fingerprint(ComputePool&) const override { return Identity(); }
  uint64_t Identity() const override {
    return HashText(absl::StrCat("random weights 1 seed ", seed_, " ", model_.Canonical()), 0);
  }

 private:
  static float Value(uint32_t index, uint32_t salt, const TensorSpec& spec) {
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
    return spec.is_norm ? 1.0f - spec.norm_offset + 3.125f * value : value;
  }

  uint32_t seed_;
};

}  // namespace

WeightSource::WeightSource(const ModelDesc& model) : model_(model), tensors_(TensorsOf(model)) {
  for (size_t i = 0; i < tensors_.size(); ++i) places_[tensors_[i].name] = static_cast<int>(i);
}

int WeightSource::IndexOf(const std::string& name) const {
  const auto found = places_.find(name);
  BATON_CHECK(found != places_.end());
  return found->second;
}

absl::StatusOr<ModelDesc> ReadModelDesc(const std::string& model) {
  const auto [form, path] = ParseModelPath(model);
  if (form == ModelForm::kFolder) return ModelDesc::FromFolder(path);
  if (form == ModelForm::kGgufFile) return DescribeGgufFile(path);
  constexpr size_t kMaxConfigBytes = 1 << 20;
  ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path, kMaxConfigBytes));
  ASSIGN_OR_RETURN(ModelDesc desc, ModelDesc::FromJson(text, path));
  desc.name = absl::StrCat("random-", std::filesystem::path(path).stem().string());
  return desc;
}

absl::StatusOr<std::unique_ptr<WeightSource>> OpenWeightSource(const std::string& model,
                                                               const ModelDesc& desc,
                                                               uint64_t random_seed) {
  const auto [form, path] = ParseModelPath(model);
  if (form == ModelForm::kFolder) return StoredSource<Checkpoint>::Open(path, desc);
  if (form == ModelForm::kGgufFile) return StoredSource<GgufFile>::Open(path, desc);
  return std::make_unique<RandomSource>(desc, random_seed);
}

}  // namespace baton
