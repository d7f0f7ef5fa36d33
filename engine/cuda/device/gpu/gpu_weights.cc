#include "engine/cuda/device/gpu/gpu_weights.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/check.h"

namespace baton {
namespace {

constexpr int kMaxHeadDim = 128;
constexpr int kMaxVocab = 1 << 18;  // of sampling
constexpr int64_t kInTurns = 8;     // outputs of gate, then of up

int64_t RoundUp(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

// One output of a matrix: a row of a tensor; tensor -1: zeros.
struct SourceRow {
  int tensor = -1;
  int64_t row = 0;
};

absl::StatusOr<MlpKind> MlpOf(const ModelDesc& model) {
  if (model.gated_mlp && model.activation == Activation::kSilu) return MlpKind::kSwiGlu;
  if (model.gated_mlp && model.activation == Activation::kGeluTanh) return MlpKind::kGeGlu;
  if (!model.gated_mlp && model.activation == Activation::kGelu) return MlpKind::kGelu;
  return absl::UnimplementedError("this activation");
}

}  // namespace

absl::Status CheckGpuComputes(const ModelDesc& model, const EngineOptions& options) {
  const auto refuse = [&](const std::string& what) {
    return absl::UnimplementedError(
        absl::StrFormat("the model %s needs %s, which GPUs do not compute yet; use --device cpu",
                        model.name, what));
  };
  if (options.dtype != "auto" && options.dtype != "bf16") {
    return absl::UnimplementedError(absl::StrFormat(
        "model.dtype: GPUs compute in bf16 alone, not in %s; use --dtype bf16", options.dtype));
  }
  if (options.kv_dtype != "bf16") {
    return absl::UnimplementedError(absl::StrFormat(
        "kv.dtype: a GPU's KV is bf16, not %s; use --kv-dtype bf16", options.kv_dtype));
  }
  if (model.latent.rank > 0) return refuse("latent attention");
  if (model.experts.n > 0) return refuse("experts");
  if (model.score_cap > 0) return refuse("a soft cap of attention scores");
  if (model.head_dim > kMaxHeadDim)
    return refuse(absl::StrFormat("heads of %d values (at most %d)", model.head_dim, kMaxHeadDim));
  if (model.vocab > kMaxVocab)
    return refuse(absl::StrFormat("a vocabulary of %d (at most %d)", model.vocab, kMaxVocab));
  if (KvLayout::For(model, KvType::kBf16Rows, options.page_tokens).planes_apart())
    return refuse("windows in some layers and not in others");
  if (!MlpOf(model).ok())
    return refuse("an activation other than SiLU, GELU by tanh or plain GELU");
  return absl::OkStatus();
}

// Reads and uploads: two halves of pinned memory, one of which is filled while the other is copied.
class GpuWeights::Loader {
 public:
  Loader(GpuWeights& to, const LoadedModel& model, void (*progress)(void*, double), void* context)
      : to_(to),
        device_(to.device_),
        model_(model),
        desc_(model.desc),
        source_(*model.source),
        progress_(progress),
        progress_context_(context),
        stream_(device_.NewStream("weights")) {
    for (Half& half : halves_) half.end = device_.NewEvent();
    for (const TensorSpec& tensor : source_.tensors()) total_ += tensor.rows;
  }
  ~Loader() {
    for (Half& half : halves_) {
      device_.Synchronize(half.end);
      if (half.at != nullptr) device_.Free(half.at);
    }
  }
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  absl::Status Run(const KvLayout& layout) {
    for (Half& half : halves_) {
      ASSIGN_OR_RETURN(half.at, device_.AllocatePinned(kHalfBytes, "loading weights"));
      RETURN_IF_ERROR(device_.Record(half.end, stream_));
    }
    ModelView& view = to_.view_;
    FillShape(layout, &view);
    RETURN_IF_ERROR(Matrix(Whole("embed"), desc_.hidden, &view.embedding));
    view.lm_head = view.embedding;
    if (!desc_.tied_embeddings)
      RETURN_IF_ERROR(Matrix(Whole("lm_head"), desc_.hidden, &view.lm_head));
    RETURN_IF_ERROR(Norm("final_norm", &view.final_norm));
    RETURN_IF_ERROR(Ropes(&view));
    to_.layers_.resize(static_cast<size_t>(desc_.n_layers));
    for (int layer = 0; layer < desc_.n_layers; ++layer) {
      LayerView& w = to_.layers_[static_cast<size_t>(layer)];
      w.plane_offset = layout.planes[static_cast<size_t>(layer)].offset;
      w.window = layout.planes[static_cast<size_t>(layer)].has_window
                     ? desc_.windows[static_cast<size_t>(layer)]
                     : 0;
      w.ropes = desc_.window_rope && desc_.windows[static_cast<size_t>(layer)] > 0 ? 1 : 0;
      RETURN_IF_ERROR(Layer(absl::StrCat("layers.", layer, "."), &w));
    }
    view.layers = to_.layers_.data();
    for (Half& half : halves_) device_.Synchronize(half.end);
    if (const auto why = device_.lost()) return absl::UnavailableError(*why);
    if (progress_ != nullptr) progress_(progress_context_, 1.0);
    return absl::OkStatus();
  }

 private:
  static constexpr int64_t kHalfBytes = int64_t{64} << 20;
  struct Half {
    std::byte* at = nullptr;
    DeviceEvent end{};
  };

  void FillShape(const KvLayout& layout, ModelView* view) const {
    view->n_layers = desc_.n_layers;
    view->hidden = desc_.hidden;
    view->n_heads = desc_.n_heads;
    view->n_kv_heads = desc_.n_kv_heads;
    view->head_dim = desc_.head_dim;
    view->rotary_dim = desc_.rotary_dim;
    view->intermediate = desc_.intermediate;
    view->vocab = desc_.vocab;
    view->mlp = *MlpOf(desc_);
    view->parallel_mlp = desc_.parallel_mlp ? 1 : 0;
    view->mlp_norm = desc_.mlp_norm ? 1 : 0;
    view->output_norms = desc_.output_norms ? 1 : 0;
    view->norm_eps = static_cast<float>(desc_.norm_eps);
    view->embedding_scale = Bf16ToFloat(FloatToBf16(static_cast<float>(desc_.embedding_scale)));
    view->score_scale = static_cast<float>(desc_.score_scale);
    view->logit_cap = static_cast<float>(desc_.logit_cap);
    view->page_tokens = layout.page_tokens;
    view->page_bytes = layout.page_bytes;
  }

  void Append(const std::string& tensor, std::vector<SourceRow>* rows) const {
    const int index = source_.IndexOf(tensor);
    for (int64_t row = 0; row < source_.tensors()[static_cast<size_t>(index)].rows; ++row)
      rows->push_back({index, row});
  }
  std::vector<SourceRow> Whole(const std::string& tensor) const {
    std::vector<SourceRow> rows;
    Append(tensor, &rows);
    return rows;
  }
  std::vector<SourceRow> Stacked(const std::string& layer, const std::string& end) const {
    std::vector<SourceRow> rows;
    for (const char* const name : {"q", "k", "v"}) Append(layer + name + end, &rows);
    return rows;
  }
  // Rows of gate and up in turns, zeros behind the last of each; up alone if the MLP is not gated.
  std::vector<SourceRow> GateUp(const std::string& layer, const std::string& end) const {
    const std::vector<SourceRow> up = Whole(layer + "up" + end);
    if (!desc_.gated_mlp) return up;
    const std::vector<SourceRow> gate = Whole(layer + "gate" + end);
    std::vector<SourceRow> rows;
    const auto n = static_cast<int64_t>(up.size());
    for (int64_t first = 0; first < n; first += kInTurns) {
      for (const std::vector<SourceRow>* const side : {&gate, &up}) {
        for (int64_t row = first; row < first + kInTurns; ++row)
          rows.push_back(row < n ? (*side)[static_cast<size_t>(row)] : SourceRow{});
      }
    }
    return rows;
  }

  absl::Status Layer(const std::string& name, LayerView* w) {
    RETURN_IF_ERROR(Norm(name + "attention_norm", &w->attention_norm));
    RETURN_IF_ERROR(Matrix(Stacked(name, ""), desc_.hidden, &w->qkv));
    if (desc_.qkv_bias) RETURN_IF_ERROR(Vector(Stacked(name, ".bias"), 0, &w->qkv_bias));
    if (desc_.qk_norm) {
      RETURN_IF_ERROR(NormWeight(name + "q_norm", &w->q_norm));
      RETURN_IF_ERROR(NormWeight(name + "k_norm", &w->k_norm));
    }
    RETURN_IF_ERROR(Heads(Whole(name + "o"), &w->o));
    if (desc_.o_bias) RETURN_IF_ERROR(Vector(Whole(name + "o.bias"), 0, &w->o_bias));
    if (desc_.output_norms) {
      RETURN_IF_ERROR(Norm(name + "attention_out_norm", &w->attention_out_norm));
      RETURN_IF_ERROR(Norm(name + "mlp_out_norm", &w->mlp_out_norm));
    }
    if (desc_.mlp_norm) RETURN_IF_ERROR(Norm(name + "mlp_norm", &w->mlp_norm));
    RETURN_IF_ERROR(Matrix(GateUp(name, ""), desc_.hidden, &w->gate_up));
    RETURN_IF_ERROR(Matrix(Whole(name + "down"), desc_.intermediate, &w->down));
    if (!desc_.mlp_bias) return absl::OkStatus();
    RETURN_IF_ERROR(Vector(GateUp(name, ".bias"), 0, &w->gate_up_bias));
    return Vector(Whole(name + "down.bias"), 0, &w->down_bias);
  }

  absl::Status Matrix(const std::vector<SourceRow>& rows, int64_t k, const uint16_t** to) {
    return Upload(rows, k, k, RoundUp(k, 64), to);
  }
  // Inputs of each head begin at a multiple of the width that a head has in the activations.
  absl::Status Heads(const std::vector<SourceRow>& rows, const uint16_t** to) {
    const int64_t width = RoundUp(desc_.head_dim, 64);
    return Upload(rows, int64_t{desc_.n_heads} * desc_.head_dim, desc_.head_dim, width, to);
  }

  // k inputs in groups of `group`, each of which is filled up to `width` with zeros.
  absl::Status Upload(const std::vector<SourceRow>& rows, int64_t k, int64_t group, int64_t width,
                      const uint16_t** to) {
    const int64_t stride = k / group * width;
    const auto n = static_cast<int64_t>(rows.size());
    ASSIGN_OR_RETURN(std::byte* const memory, Allocate(n * stride * 2));
    *to = reinterpret_cast<const uint16_t*>(memory);
    const int64_t at_once = std::max<int64_t>(1, kHalfBytes / (stride * 2));
    BATON_CHECK(stride * 2 <= kHalfBytes);
    for (int64_t first = 0; first < n; first += at_once) {
      const int64_t count = std::min(at_once, n - first);
      Half& half = NextHalf();
      auto* const out = reinterpret_cast<bf16*>(half.at);
      model_.pool->For(count, [&](int64_t i, int) {
        ReadRow(rows[static_cast<size_t>(first + i)], k, group, width, out + i * stride);
      });
      RETURN_IF_ERROR(
          device_.Copy(stream_, memory + first * stride * 2, half.at, count * stride * 2));
      RETURN_IF_ERROR(device_.Record(half.end, stream_));
      Progress(count);
    }
    return absl::OkStatus();
  }

  void ReadRow(const SourceRow& row, int64_t k, int64_t group, int64_t width, bf16* out) const {
    std::fill(out, out + k / group * width, bf16{0});
    if (row.tensor < 0) return;
    if (group == k) return source_.ReadBf16(row.tensor, row.row, 1, out);
    std::vector<bf16> values(static_cast<size_t>(k));
    source_.ReadBf16(row.tensor, row.row, 1, values.data());
    for (int64_t i = 0; i < k / group; ++i)
      std::copy_n(values.data() + i * group, group, out + i * width);
  }

  // Values rounded to bf16, plus `offset`.
  absl::Status Vector(const std::vector<SourceRow>& rows, float offset, const float** to) {
    std::vector<float> values;
    for (const SourceRow& row : rows) {
      bf16 value{0};
      if (row.tensor >= 0) source_.ReadBf16(row.tensor, row.row, 1, &value);
      values.push_back(Bf16ToFloat(value) + offset);
    }
    return Numbers(values, to);
  }
  absl::Status NormWeight(const std::string& name, const float** to) {
    const auto index = static_cast<size_t>(source_.IndexOf(name));
    return Vector(Whole(name), source_.tensors()[index].norm_offset, to);
  }
  absl::Status Norm(const std::string& name, NormView* to) {
    RETURN_IF_ERROR(NormWeight(name, &to->weight));
    return desc_.layer_norm ? Vector(Whole(name + ".bias"), 0, &to->bias) : absl::OkStatus();
  }

  absl::Status Numbers(std::span<const float> values, const float** to) {
    const auto bytes = static_cast<int64_t>(values.size_bytes());
    ASSIGN_OR_RETURN(std::byte* const memory, Allocate(bytes));
    *to = reinterpret_cast<const float*>(memory);
    for (int64_t at = 0; at < bytes; at += kHalfBytes) {
      const int64_t count = std::min(kHalfBytes, bytes - at);
      Half& half = NextHalf();
      std::memcpy(half.at, reinterpret_cast<const std::byte*>(values.data()) + at,
                  static_cast<size_t>(count));
      RETURN_IF_ERROR(device_.Copy(stream_, memory + at, half.at, count));
      RETURN_IF_ERROR(device_.Record(half.end, stream_));
    }
    return absl::OkStatus();
  }

  absl::Status Ropes(ModelView* view) {
    for (int table = 0; table < 2; ++table) {
      const auto has_table = [&](int window) {
        return (desc_.window_rope && window > 0) == (table == 1);
      };
      const auto found = std::find_if(desc_.windows.begin(), desc_.windows.end(), has_table);
      if (found == desc_.windows.end()) continue;
      const auto layer = static_cast<int>(found - desc_.windows.begin());
      const RopeDesc& rope = table == 1 ? *desc_.window_rope : desc_.rope;
      const int n_short = rope.ShortRangeTokens() > 0
                              ? std::min(rope.ShortRangeTokens(), desc_.max_positions)
                              : desc_.max_positions;
      RopeView& to = view->ropes[table];
      RETURN_IF_ERROR(Rope(layer, RopeRange::kShort, n_short, &to));
      to.cos[1] = to.cos[0];
      to.sin[1] = to.sin[0];
      if (n_short < desc_.max_positions)
        RETURN_IF_ERROR(Rope(layer, RopeRange::kLong, desc_.max_positions, &to));
    }
    return absl::OkStatus();
  }
  absl::Status Rope(int layer, RopeRange range, int n_positions, RopeView* to) {
    const int pairs = desc_.rotary_dim / 2;
    std::vector<float> cos, sin;
    for (int position = 0; position < n_positions; ++position) {
      const RopeTables::Angles angles = model_.ropes.At(layer, range, position);
      cos.insert(cos.end(), angles.cos, angles.cos + pairs);
      sin.insert(sin.end(), angles.sin, angles.sin + pairs);
    }
    const int index = range == RopeRange::kLong ? 1 : 0;
    RETURN_IF_ERROR(Numbers(cos, &to->cos[index]));
    return Numbers(sin, &to->sin[index]);
  }

  absl::StatusOr<std::byte*> Allocate(int64_t bytes) {
    ASSIGN_OR_RETURN(std::byte* const memory, device_.Allocate(bytes, "weights"));
    to_.memory_.push_back(memory);
    to_.bytes_ += bytes;
    return memory;
  }
  Half& NextHalf() {
    Half& half = halves_[next_];
    next_ = 1 - next_;
    device_.Synchronize(half.end);
    return half;
  }
  void Progress(int64_t rows) {
    done_ += rows;
    if (progress_ == nullptr) return;
    progress_(progress_context_,
              std::min(1.0, static_cast<double>(done_) / static_cast<double>(total_)));
  }

  GpuWeights& to_;
  Device& device_;
  const LoadedModel& model_;
  const ModelDesc& desc_;
  const WeightSource& source_;
  void (*const progress_)(void*, double);
  void* const progress_context_;
  const DeviceStream stream_;
  Half halves_[2];
  int next_ = 0;
  int64_t done_ = 0, total_ = 0;  // rows
};

absl::StatusOr<std::unique_ptr<GpuWeights>> GpuWeights::Load(Device& device,
                                                             const LoadedModel& model,
                                                             const KvLayout& layout,
                                                             void (*progress)(void*, double),
                                                             void* progress_context) {
  std::unique_ptr<GpuWeights> weights(new GpuWeights(device));
  Loader loader(*weights, model, progress, progress_context);
  RETURN_IF_ERROR(loader.Run(layout));
  return weights;
}

GpuWeights::~GpuWeights() {
  for (std::byte* const memory : memory_) device_.Free(memory);
}

}  // namespace baton
