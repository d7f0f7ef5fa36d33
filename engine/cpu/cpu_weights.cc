#include "engine/cpu/cpu_weights.h"

#include <xxhash.h>

#include <algorithm>
#include <atomic>
#include <set>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "engine/cpu/linear/weight_quantizer.h"

namespace baton {
namespace {

constexpr int64_t kBlock = 16;         // outputs of a packed block
constexpr int64_t kBlocksPerItem = 8;  // blocks one thread packs at a time
constexpr uint64_t kPackVersion = 2;   // raise when the meaning of an entry's bytes changes

// Consecutive rows of one tensor; tensor -1 = rows of zeros.
struct Rows {
  int tensor;
  int64_t first;
  int64_t count;
};

// Source of the rows of one matrix (or of the elements of one vector).
class Recipe {
 public:
  void Append(int tensor, int64_t first, int64_t count) {
    begins_.push_back(rows_);
    parts_.push_back({tensor, first, count});
    rows_ += count;
  }
  // Appends columns of some rows of one tensor of `width` columns, instead of rows.
  void AppendTransposed(int tensor, int64_t first, int64_t width) {
    Append(tensor, first, width);
    is_transposed_ = true;
  }
  int64_t rows() const { return rows_; }

  // Reads rows [first, first + count), zeros beyond the last; `cols` values each, bf16 or fp32.
  template <typename Value>
  void Read(const WeightSource& source, int64_t first, int64_t count, int64_t cols,
            Value* out) const {
    std::fill(out, out + count * cols, Value{0});
    const int64_t end = std::min(first + count, rows_);
    if (is_transposed_) return ReadColumns(source, first, end, cols, out);
    size_t part = std::upper_bound(begins_.begin(), begins_.end(), first) - begins_.begin() - 1;
    for (int64_t row = first; row < end; ++part) {
      const int64_t skip = row - begins_[part];
      const int64_t n = std::min(parts_[part].count - skip, end - row);
      if (parts_[part].tensor >= 0) {
        ReadRows(source, parts_[part].tensor, parts_[part].first + skip, n,
                 out + (row - first) * cols);
      }
      row += n;
    }
  }

 private:
  template <typename Value>
  void ReadColumns(const WeightSource& source, int64_t first, int64_t end, int64_t cols,
                   Value* out) const {
    std::vector<Value> stored(static_cast<size_t>(cols * rows_));
    ReadRows(source, parts_[0].tensor, parts_[0].first, cols, stored.data());
    for (int64_t row = first; row < end; ++row) {
      for (int64_t i = 0; i < cols; ++i) *out++ = stored[i * rows_ + row];
    }
  }
  static void ReadRows(const WeightSource& source, int tensor, int64_t row, int64_t n, bf16* out) {
    source.ReadBf16(tensor, row, n, out);
  }
  static void ReadRows(const WeightSource& source, int tensor, int64_t row, int64_t n, float* out) {
    source.ReadFp32(tensor, row, n, out);
  }

  std::vector<Rows> parts_;
  std::vector<int64_t> begins_;  // (parts) first row of each part
  int64_t rows_ = 0;
  bool is_transposed_ = false;
};

// Every entry of the file in order, with its recipe.
class Plan {
 public:
  Plan(const ModelDesc& model, const WeightSource& source, const WeightFormats& formats)
      : model_(model), source_(source), formats_(formats) {
    // Largest first, so that no thread works on it alone at the end.
    AddMatrix("lm_head", formats.lm_head, model.hidden,
              Whole(model.tied_embeddings ? "embed" : "lm_head"));
    AddNorm("final_norm");
    for (int layer = 0; layer < model.n_layers; ++layer) AddLayer(layer);
  }

  const std::vector<WeightsEntry>& entries() const { return entries_; }
  const std::vector<WeightFormat>& format_of() const { return format_of_; }

  void Pack(std::span<std::byte* const> data, ComputePool& pool, void (*progress)(void*, double),
            void* progress_context) const {
    struct Item {
      size_t entry;
      int64_t first_block;
    };
    std::vector<Item> items;
    for (size_t i = 0; i < entries_.size(); ++i) {
      const int64_t blocks = entries_[i].k == 0 ? 1 : RoundUp(entries_[i].n, kBlock) / kBlock;
      for (int64_t b = 0; b < blocks; b += kBlocksPerItem) items.push_back({i, b});
    }
    std::atomic<int64_t> done = 0;
    const int64_t n = static_cast<int64_t>(items.size());
    pool.For(n, [&](int64_t i, int member) {
      PackItem(items[i].entry, items[i].first_block, data[items[i].entry]);
      const int64_t count = done.fetch_add(1, std::memory_order_relaxed) + 1;
      if (member == 0 && progress != nullptr && count % 16 == 0) {
        progress(progress_context, static_cast<double>(count) / static_cast<double>(n));
      }
    });
  }

 private:
  void AddMatrix(const std::string& name, WeightFormat format, int64_t k, Recipe recipe) {
    const int64_t n = recipe.rows();
    entries_.push_back({name, n, k, PackedWeights::Bytes(n, k, format)});
    format_of_.push_back(format);
    recipes_.push_back(std::move(recipe));
    offsets_.push_back(0.0f);
  }
  // Adds a vector, rounded to bf16 like activations, or as stored.
  void AddVector(const std::string& name, Recipe recipe, bool keeps_fp32 = false) {
    const int64_t n = recipe.rows();
    if (keeps_fp32) fp32_vectors_.insert(entries_.size());
    entries_.push_back({name, n, 0, n * static_cast<int64_t>(sizeof(float))});
    format_of_.emplace_back();
    recipes_.push_back(std::move(recipe));
    offsets_.push_back(0.0f);
  }

  Recipe Whole(const std::string& tensor) const { return Stacked({tensor}); }
  Recipe Stacked(const std::vector<std::string>& tensors) const {
    Recipe recipe;
    for (const std::string& name : tensors) {
      const int index = source_.IndexOf(name);
      recipe.Append(index, 0, source_.tensors()[index].rows);
    }
    return recipe;
  }
  // Rows of both tensors in turns of 16; zeros fill the last block of each.
  Recipe Alternating(const std::string& first, const std::string& second) const {
    const int sides[2] = {source_.IndexOf(first), source_.IndexOf(second)};
    const int64_t rows = source_.tensors()[sides[0]].rows;
    Recipe recipe;
    for (int64_t row = 0; row < rows; row += kBlock) {
      const int64_t count = std::min(kBlock, rows - row);
      for (const int tensor : sides) {
        recipe.Append(tensor, row, count);
        if (count < kBlock) recipe.Append(-1, 0, kBlock - count);
      }
    }
    return recipe;
  }

  void AddLayer(int layer) {
    const std::string l = absl::StrCat("layers.", layer, ".");
    AddNorm(l + "attention_norm");
    if (model_.latent.rank > 0) {
      AddLatent(l);
    } else {
      AddMatrix(l + "qkv", formats_.layers, model_.hidden, Stacked({l + "q", l + "k", l + "v"}));
    }
    if (model_.qkv_bias) {
      AddVector(l + "qkv.bias", Stacked({l + "q.bias", l + "k.bias", l + "v.bias"}));
    }
    if (model_.qk_norm) {
      AddNorm(l + "q_norm");
      AddNorm(l + "k_norm");
    }
    AddMatrix(l + "o", formats_.layers, model_.attended_width(), Whole(l + "o"));
    if (model_.o_bias) AddVector(l + "o.bias", Whole(l + "o.bias"));
    if (model_.output_norms) AddNorm(l + "attention_out_norm");
    if (model_.mlp_norm) AddNorm(l + "mlp_norm");
    if (model_.experts.is_sparse(layer)) return AddExperts(l);
    AddMlp(l, model_.intermediate);
    if (model_.mlp_bias) {
      AddVector(l + "gate_up.bias", GateUp(l, ".bias"));
      AddVector(l + "down.bias", Whole(l + "down.bias"));
    }
    if (model_.output_norms) AddNorm(l + "mlp_out_norm");
  }

  void AddLatent(const std::string& l) {
    const LatentDesc& latent = model_.latent;
    const bool is_deep = latent.query_rank > 0;
    AddMatrix(l + "qkv", formats_.layers, model_.hidden,
              Stacked({l + (is_deep ? "query_latent" : "q"), l + "latent"}));
    if (is_deep) {
      AddNorm(l + "query_latent_norm");
      AddMatrix(l + "query_up", formats_.layers, latent.query_rank, Whole(l + "q"));
    }
    AddNorm(l + "latent_norm");
    const int keys = source_.IndexOf(l + "key_up"), values = source_.IndexOf(l + "value_up");
    for (int head = 0; head < model_.n_heads; ++head) {
      Recipe key, value;
      key.AppendTransposed(keys, head * latent.plain_dim, latent.rank);
      value.Append(values, head * latent.value_dim, latent.value_dim);
      AddMatrix(absl::StrCat(l, "key_up.", head), WeightFormat{}, latent.plain_dim, std::move(key));
      AddMatrix(absl::StrCat(l, "value_up.", head), WeightFormat{}, latent.rank, std::move(value));
    }
  }

  void AddMlp(const std::string& l, int64_t width) {
    AddMatrix(l + "gate_up", formats_.layers, model_.hidden, GateUp(l, ""));
    AddMatrix(l + "down", formats_.layers, width, Whole(l + "down"));
  }
  // The weights or (`end`) the biases of gate and up, or of up alone if the MLP is not gated.
  Recipe GateUp(const std::string& l, const std::string& end) const {
    return model_.gated_mlp ? Alternating(l + "gate" + end, l + "up" + end) : Whole(l + "up" + end);
  }

  void AddExperts(const std::string& l) {
    const ExpertsDesc& experts = model_.experts;
    std::vector<std::string> router{l + "router"};
    if (experts.shared_gate) router.push_back(l + "shared_gate");
    AddMatrix(l + "router", WeightFormat{}, model_.hidden, Stacked(router));
    if (experts.corrected) AddVector(l + "correction", Whole(l + "correction"), true);
    if (experts.shared_intermediate > 0) AddMlp(l + "shared.", experts.shared_intermediate);
    for (int i = 0; i < experts.n; ++i) {
      AddMlp(absl::StrCat(l, "experts.", i, "."), experts.intermediate);
    }
  }

  void AddNorm(const std::string& name) {
    AddVector(name, Whole(name));
    offsets_.back() = source_.tensors()[source_.IndexOf(name)].norm_offset;
    if (model_.layer_norm) AddVector(name + ".bias", Whole(name + ".bias"));
  }

  void PackItem(size_t index, int64_t first_block, std::byte* data) const {
    const WeightsEntry& entry = entries_[index];
    if (entry.k == 0) {
      if (fp32_vectors_.contains(index)) {
        return recipes_[index].Read(source_, 0, entry.n, 1, reinterpret_cast<float*>(data));
      }
      std::vector<bf16> values(static_cast<size_t>(entry.n));
      recipes_[index].Read(source_, 0, entry.n, 1, values.data());
      std::transform(values.begin(), values.end(), reinterpret_cast<float*>(data),
                     [&](bf16 v) { return Bf16ToFloat(v) + offsets_[index]; });
      return;
    }
    const WeightFormat format = format_of_[index];
    const int64_t blocks = RoundUp(entry.n, kBlock) / kBlock;
    for (int64_t b = first_block; b < std::min(first_block + kBlocksPerItem, blocks); ++b) {
      std::byte* const packed = data + b * format.BlockBytes(entry.k);
      if (format.type == WeightType::kBf16) {
        PackBf16(index, b, packed);
      } else {
        PackIntegers(index, b, packed);
      }
    }
  }
  void PackBf16(size_t index, int64_t block, std::byte* packed) const {
    const int64_t k = entries_[index].k;
    std::vector<bf16> rows(static_cast<size_t>(kBlock * k));
    recipes_[index].Read(source_, block * kBlock, kBlock, k, rows.data());
    PackBlock(rows.data(), kBlock, k, 0, reinterpret_cast<bf16*>(packed));
  }
  void PackIntegers(size_t index, int64_t block, std::byte* packed) const {
    const int64_t k = entries_[index].k;
    const WeightFormat format = format_of_[index];
    std::vector<float> rows(static_cast<size_t>(kBlock * k));
    recipes_[index].Read(source_, block * kBlock, kBlock, k, rows.data());
    std::vector<int8_t> values(rows.size());
    std::vector<float> scales(static_cast<size_t>(kBlock * format.Groups(k)));
    for (int64_t i = 0; i < kBlock; ++i) {
      QuantizeOutput(&rows[i * k], k, format, &values[i * k], &scales[i * format.Groups(k)]);
    }
    PackIntegerBlock(values.data(), scales.data(), kBlock, k, format, packed);
  }

  const ModelDesc& model_;
  const WeightSource& source_;
  const WeightFormats formats_;
  std::vector<WeightsEntry> entries_;
  std::vector<WeightFormat> format_of_;  // (entries) format of matrices
  std::vector<Recipe> recipes_;          // (entries)
  std::vector<float> offsets_;           // (entries) added to the values of a vector
  std::set<size_t> fp32_vectors_;        // entries that are not rounded
};

// Reads the entries back by name.
class EntryIndex {
 public:
  EntryIndex(const Plan& plan, const WeightsFile& file) : plan_(plan), file_(file) {
    const std::vector<WeightsEntry>& entries = plan.entries();
    for (size_t i = 0; i < entries.size(); ++i) places_[entries[i].name] = static_cast<int>(i);
  }

  PackedWeights Matrix(const std::string& name) const {
    const auto found = places_.find(name);
    BATON_CHECK(found != places_.end());
    const WeightsEntry& entry = plan_.entries()[found->second];
    return {file_.entry(found->second), entry.n, entry.k, plan_.format_of()[found->second]};
  }
  // Null if there is no such entry.
  const float* Vector(const std::string& name) const {
    const auto found = places_.find(name);
    return found == places_.end() ? nullptr
                                  : reinterpret_cast<const float*>(file_.entry(found->second));
  }
  NormWeights Norm(const std::string& name) const { return {Vector(name), Vector(name + ".bias")}; }

 private:
  const Plan& plan_;
  const WeightsFile& file_;
  absl::flat_hash_map<std::string, int> places_;
};

ExpertWeights ExpertOf(const EntryIndex& index, const std::string& name) {
  return {index.Matrix(name + "gate_up"), index.Matrix(name + "down")};
}

ExpertsWeights ExpertsOf(const EntryIndex& index, const ExpertsDesc& desc,
                         const std::string& layer) {
  ExpertsWeights w;
  w.router = index.Matrix(layer + "router");
  w.corrections = index.Vector(layer + "correction");
  for (int i = 0; i < desc.n; ++i) {
    w.experts.push_back(ExpertOf(index, absl::StrCat(layer, "experts.", i, ".")));
  }
  if (desc.shared_intermediate > 0) w.shared = ExpertOf(index, layer + "shared.");
  return w;
}

LatentWeights LatentOf(const EntryIndex& index, const ModelDesc& model, const std::string& layer) {
  LatentWeights w;
  w.norm = index.Norm(layer + "latent_norm");
  if (model.latent.query_rank > 0) {
    w.query_norm = index.Norm(layer + "query_latent_norm");
    w.query_up = index.Matrix(layer + "query_up");
  }
  for (int head = 0; head < model.n_heads; ++head) {
    w.key_up.push_back(index.Matrix(absl::StrCat(layer, "key_up.", head)));
    w.value_up.push_back(index.Matrix(absl::StrCat(layer, "value_up.", head)));
  }
  return w;
}

CpuLayerWeights LayerOf(const EntryIndex& index, const ModelDesc& model, int layer) {
  const std::string name = absl::StrCat("layers.", layer, ".");
  CpuLayerWeights w;
  w.attention_norm = index.Norm(name + "attention_norm");
  w.mlp_norm = index.Norm(name + "mlp_norm");
  w.attention_out_norm = index.Norm(name + "attention_out_norm");
  w.mlp_out_norm = index.Norm(name + "mlp_out_norm");
  w.q_norm = index.Norm(name + "q_norm");
  w.k_norm = index.Norm(name + "k_norm");
  w.qkv = index.Matrix(name + "qkv");
  w.o = index.Matrix(name + "o");
  if (model.latent.rank > 0) w.latent = LatentOf(index, model, name);
  w.qkv_bias = index.Vector(name + "qkv.bias");
  w.o_bias = index.Vector(name + "o.bias");
  if (model.experts.is_sparse(layer)) {
    w.experts = ExpertsOf(index, model.experts, name);
    return w;
  }
  w.gate_up = index.Matrix(name + "gate_up");
  w.down = index.Matrix(name + "down");
  w.gate_up_bias = index.Vector(name + "gate_up.bias");
  w.down_bias = index.Vector(name + "down.bias");
  return w;
}

}  // namespace

absl::StatusOr<CpuWeights> LoadCpuWeights(const ModelDesc& model, const WeightSource& source,
                                          const WeightFormats& formats, const CacheOptions& cache,
                                          ComputePool& pool, void (*progress)(void*, double),
                                          void* progress_context) {
  const Plan plan(model, source, formats);
  const uint64_t identity[2] = {source.Identity(), kPackVersion};
  const std::string name = formats.Name();
  const uint64_t key = XXH64(name.data(), name.size(), XXH64(identity, sizeof(identity), 0));
  CpuWeights weights;
  const auto fill = [&](std::span<std::byte* const> data) -> absl::StatusOr<uint64_t> {
    ASSIGN_OR_RETURN(const uint64_t fingerprint, source.Fingerprint(pool));  // checks the values
    plan.Pack(data, pool, progress, progress_context);
    return fingerprint;
  };
  ASSIGN_OR_RETURN(weights.file, WeightsFile::Load(plan.entries(), key, cache, pool, fill));
  if (progress != nullptr) progress(progress_context, 1.0);
  const EntryIndex index(plan, *weights.file);
  weights.lm_head = index.Matrix("lm_head");
  weights.final_norm = index.Norm("final_norm");
  for (int layer = 0; layer < model.n_layers; ++layer) {
    weights.layers.push_back(LayerOf(index, model, layer));
  }
  return weights;
}

}  // namespace baton
