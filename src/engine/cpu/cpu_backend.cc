#include "engine/cpu/cpu_backend.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_format.h"
#include "common/check.h"
#include "engine/cpu/activations.h"
#include "engine/cpu/attention.h"
#include "engine/cpu/cpu_weights.h"
#include "engine/cpu/elementwise.h"
#include "engine/cpu/experts.h"
#include "engine/cpu/linear.h"
#include "engine/cpu/step_rows.h"

namespace baton {
namespace {

// Rows of one element-wise work item: a group of the KV layout, whose cache lines sixteen tokens
// share.
constexpr int kRowsPerItem = 16;

// The LM head of an int4 model is int8: its errors reach the tokens directly.
WeightFormats FormatsOf(const EngineOptions& options) {
  constexpr WeightFormat kInt8{WeightType::kInt8, 0};
  if (options.dtype == "int8") return {kInt8, kInt8};
  if (options.dtype == "int4") return {{WeightType::kInt4, options.int4_group}, kInt8};
  return {};
}

class CpuBackend : public Backend {
 public:
  CpuBackend(const EngineOptions& options, LoadedModel loaded)
      : model_(std::move(loaded.desc)),
        activation_(ActivationOf(model_)),
        layout_(KvLayout::For(model_, options.kv_type(), options.page_tokens)),
        formats_(FormatsOf(options)),
        max_step_tokens_(options.max_step_tokens),
        ropes_(std::move(loaded.ropes)),
        rope_digest_(loaded.rope_digest),
        source_(std::move(loaded.source)),
        compute_(std::move(loaded.pool)) {}

  absl::Status Load(const EngineOptions& options, void (*progress)(void*, double), void* context) {
    RETURN_IF_ERROR(CheckWidths(options.model));
    RETURN_IF_ERROR(ChooseKernels(options.isa));
    ASSIGN_OR_RETURN(weights_, LoadCpuWeights(model_, *source_, formats_, options.cache_dir,
                                              *compute_, progress, context));
    return MapActivations();
  }

  const ModelDesc& model() const override { return model_; }
  const KvLayout& kv_layout() const override { return layout_; }
  std::string numerics_id() const override {
    return absl::StrFormat("v1/cpu-x86/%s/kv-%s/l2", formats_.layers.Name(),
                           layout_.type == KvType::kInt8 ? "int8" : "bf16");
  }
  uint64_t model_fingerprint() const override {
    return weights_.file->fingerprint() ^ rope_digest_;
  }
  std::string isa() const override { return std::string(IsaName(linear_->isa())); }
  WeightMemory weight_memory() const override {
    return {weights_.file->bytes(), weights_.file->is_shared()};
  }
  ComputePool* compute_pool() override { return compute_.get(); }
  std::span<const float> logits(int i) const override {
    CHECK(i >= 0 && i < step_.n_logits() && next_layer_ == model_.n_layers);
    return {logits_ + static_cast<int64_t>(i) * model_.vocab, static_cast<size_t>(model_.vocab)};
  }

  void SetPool(KvPool* pool) override {
    CHECK(pool->layout().layout_id() == layout_.layout_id());
    kv_ = pool;
  }

  void Begin(const StepBatch& batch) override {
    CHECK(kv_ != nullptr && batch.n_tokens() > 0 && batch.n_tokens() <= max_step_tokens_);
    step_.Assign(batch, *kv_, model_.vocab, model_.max_positions);
    next_layer_ = 0;
  }

  void RunLayers(int from, int to) override {
    CHECK(from == next_layer_ && from <= to && to <= model_.n_layers);
    if (from == 0 && to > 0) Embed();
    for (int layer = from; layer < to; ++layer) RunLayer(layer, weights_.layers[layer]);
    next_layer_ = to;
    if (to == model_.n_layers) LmHead();
  }

 private:
  // ---- the forward pass: x is the residual stream (tokens, hidden), bf16 ----

  void Embed() {
    const float scale =
        Bf16ToFloat(FloatToBf16(static_cast<float>(model_.embedding_scale)));  // 1 changes nothing
    ForRows(step_.n(), [&](int row) {
      source_->ReadBf16(0, step_.token(row), 1, x_.row(row));
      if (scale != 1.0f) elementwise_->scale(scale, model_.hidden, x_.row(row));
    });
  }

  void RunLayer(int layer, const CpuLayerWeights& w) {
    if (model_.parallel_mlp) return RunParallelLayer(layer, w);
    if (model_.output_norms) return RunLayerWithOutputNorms(layer, w);
    NormRows(x_, w.attention_norm, normed_);
    RunAttention(layer, w, Epilogue::kResidualAdd, x_);
    NormRows(x_, w.mlp_norm, normed_);
    RunMlp(w, Epilogue::kResidualAdd, x_);
  }

  // x + (attention + MLP), both of the same x.
  void RunParallelLayer(int layer, const CpuLayerWeights& w) {
    NormRows(x_, w.attention_norm, normed_);
    RunAttention(layer, w, Epilogue::kBf16, branch_);
    if (model_.mlp_norm) NormRows(x_, w.mlp_norm, normed_);
    RunMlp(w, Epilogue::kResidualAdd, branch_);
    ForRows(step_.n(), [&](int row) { AddBranch(row); });
  }

  // What attention and MLP give is normed before it is added.
  void RunLayerWithOutputNorms(int layer, const CpuLayerWeights& w) {
    NormRows(x_, w.attention_norm, normed_);
    RunAttention(layer, w, Epilogue::kBf16, branch_);
    AddNormedBranch(w.attention_out_norm);
    NormRows(x_, w.mlp_norm, normed_);
    RunMlp(w, Epilogue::kBf16, branch_);
    AddNormedBranch(w.mlp_out_norm);
  }

  // y = or += the layer's attention of normed_, as `end` says.
  void RunAttention(int layer, const CpuLayerWeights& w, Epilogue end, const Activations& y) {
    if (model_.latent.rank > 0) return RunLatentAttention(layer, w, end, y);
    Linear(normed_, w.qkv, w.qkv_bias, Epilogue::kBf16, qkv_);
    ForRows(step_.n(), [&](int row) { RotateAndStore(layer, w, row); });
    Attend(layer, qkv_);
    Linear(attended_, w.o, w.o_bias, end, y);
  }

  // The same in the absorbed form (latent_desc.h): queries go to the latent's side, values back.
  void RunLatentAttention(int layer, const CpuLayerWeights& w, Epilogue end, const Activations& y) {
    Linear(normed_, w.qkv, nullptr, Epilogue::kBf16, qkv_);
    linear_->RunAll(QueriesToLatents(w.latent, step_.n()), *compute_);
    ForRows(step_.n(), [&](int row) { RotateAndStoreLatent(layer, w.latent, row); });
    Attend(layer, moved_);
    linear_->RunAll(LatentsToValues(w.latent, step_.n()), *compute_);
    Linear(values_, w.o, nullptr, end, y);
  }

  // y = or += the layer's MLP of normed_, as `end` says.
  void RunMlp(const CpuLayerWeights& w, Epilogue end, const Activations& y) {
    if (!w.experts.experts.empty()) {
      const bool add = end == Epilogue::kResidualAdd;
      return experts_->Run(w.experts, normed_, step_.n(), add, y, *linear_, *compute_);
    }
    Linear(normed_, w.gate_up, w.gate_up_bias, activation_, mlp_);
    Linear(mlp_, w.down, w.down_bias, end, y);
  }

  void LmHead() {
    const int n = step_.n_logits();
    if (n == 0) return;
    ForRows(n, [&](int i) {
      Norm(x_.row(step_.batch().logit_rows[i]), weights_.final_norm, model_.hidden, normed_.row(i));
    });
    LinearArgs args;
    args.x = normed_.data;
    args.x_stride = normed_.stride;
    args.rows = n;
    args.weights = weights_.lm_head;
    args.epilogue = Epilogue::kFp32;
    args.y_fp32 = logits_;
    args.y_stride = model_.vocab;
    linear_->Run(args, *compute_);
    if (model_.logit_cap > 0) CapLogits(n * static_cast<int64_t>(model_.vocab));
  }

  // ---- its pieces ----

  template <typename Fn>
  void ForRows(int n, const Fn& fn) {
    compute_->For((n + kRowsPerItem - 1) / kRowsPerItem, [&](int64_t item, int) {
      const int first = static_cast<int>(item) * kRowsPerItem;
      for (int row = first; row < std::min(first + kRowsPerItem, n); ++row) fn(row);
    });
  }

  void NormRows(const Activations& x, const NormWeights& w, const Activations& out) {
    ForRows(step_.n(), [&](int row) { Norm(x.row(row), w, model_.hidden, out.row(row)); });
  }

  // n values, zeros behind them up to whole 32-k groups. out may be x.
  void Norm(const bf16* x, const NormWeights& w, int n, bf16* out) const {
    const int64_t n_padded = RoundUp(n, 32);
    const float eps = static_cast<float>(model_.norm_eps);
    if (model_.layer_norm) {
      elementwise_->layer_norm(x, w.weight, w.bias, n, n_padded, eps, out);
    } else {
      elementwise_->rms_norm(x, w.weight, n, n_padded, eps, out);
    }
  }

  void AddBranch(int row) const { elementwise_->add(branch_.row(row), model_.hidden, x_.row(row)); }

  void AddNormedBranch(const NormWeights& w) {
    ForRows(step_.n(), [&](int row) {
      Norm(branch_.row(row), w, model_.hidden, branch_.row(row));
      AddBranch(row);
    });
  }

  void CapLogits(int64_t n) {
    constexpr int64_t kItem = 4096;
    compute_->For((n + kItem - 1) / kItem, [&](int64_t item, int) {
      const int64_t first = item * kItem;
      elementwise_->soft_cap(static_cast<float>(model_.logit_cap), std::min(kItem, n - first),
                             logits_ + first);
    });
  }

  void Linear(const Activations& x, const PackedWeights& w, const float* bias, Epilogue epilogue,
              const Activations& y) {
    LinearArgs args;
    args.x = x.data;
    args.x_stride = x.stride;
    args.rows = step_.n();
    args.weights = w;
    args.bias = bias;
    args.epilogue = epilogue;
    args.y = y.data;
    args.y_stride = y.stride;
    if (epilogue == Epilogue::kResidualAdd) {
      args.residual = y.data;
      args.residual_stride = y.stride;
    }
    linear_->Run(args, *compute_);
  }

  std::span<const LinearArgs> QueriesToLatents(const LatentWeights& w, int rows) {
    const LatentDesc& d = model_.latent;
    return LayersOfHeads(w.key_up, rows, qkv_, d.query_dim(), moved_, d.key_dim());
  }
  std::span<const LinearArgs> LatentsToValues(const LatentWeights& w, int rows) {
    const LatentDesc& d = model_.latent;
    return LayersOfHeads(w.value_up, rows, attended_, d.rank, values_, d.value_dim);
  }

  // Columns of every head, x_width apart in x and y_width in y, by its own matrix.
  std::span<const LinearArgs> LayersOfHeads(const std::vector<PackedWeights>& heads, int rows,
                                            const Activations& x, int64_t x_width,
                                            const Activations& y, int64_t y_width) {
    head_layers_.clear();
    for (const PackedWeights& w : heads) {
      const int64_t head = static_cast<int64_t>(head_layers_.size());
      LinearArgs& args = head_layers_.emplace_back();
      args.x = x.data + head * x_width;
      args.x_stride = x.stride;
      args.rows = rows;
      args.weights = w;
      args.y = y.data + head * y_width;
      args.y_stride = y.stride;
    }
    return head_layers_;
  }

  void RotateAndStoreLatent(int layer, const LatentWeights& w, int row) {
    const LatentDesc& d = model_.latent;
    const RopeTables::Angles angles = ropes_.At(layer, step_.rope(row), step_.position(row));
    for (int head = 0; head < model_.n_heads; ++head) {
      const bf16* const from = qkv_.row(row) + head * d.query_dim() + d.plain_dim;
      bf16* const to = moved_.row(row) + head * d.key_dim() + d.rank;
      std::copy_n(from, d.rotated_dim, to);
      elementwise_->rope(to, d.rotated_dim, angles.cos, angles.sin);
    }
    bf16* const key = qkv_.row(row) + model_.q_width();
    elementwise_->rms_norm(key, w.norm.weight, d.rank, d.rank, kLatentNormEps, key);
    elementwise_->rope(key + d.rank, d.rotated_dim, angles.cos, angles.sin);
    elementwise_->write_kv(layout_, layer, 0, key, nullptr, kv_->plane(step_.page(row), layer),
                           step_.slot(row));
  }

  void NormHeads(bf16* heads, int n, const NormWeights& w) const {
    const int d = model_.head_dim;
    for (int head = 0; head < n; ++head, heads += d) {
      elementwise_->rms_norm(heads, w.weight, d, d, static_cast<float>(model_.norm_eps), heads);
    }
  }

  void RotateAndStore(int layer, const CpuLayerWeights& w, int row) {
    const int d = model_.head_dim;
    const RopeTables::Angles angles = ropes_.At(layer, step_.rope(row), step_.position(row));
    bf16* const q = qkv_.row(row);
    bf16* const k = q + model_.q_width();
    const bf16* const v = k + model_.kv_width();
    if (model_.qk_norm) {
      NormHeads(q, model_.n_heads, w.q_norm);
      NormHeads(k, model_.n_kv_heads, w.k_norm);
    }
    for (int head = 0; head < model_.n_heads + model_.n_kv_heads; ++head) {  // k follows q
      elementwise_->rope(q + head * d, model_.rotary_dim, angles.cos, angles.sin);
    }
    std::byte* const plane = kv_->plane(step_.page(row), layer);
    for (int head = 0; head < model_.n_kv_heads; ++head) {
      elementwise_->write_kv(layout_, layer, head, k + head * d, v + head * d, plane,
                             step_.slot(row));
    }
  }

  void Attend(int layer, const Activations& q) {
    AttentionArgs args;
    args.batch = layout_.planes[layer].has_window ? &step_.windowed_batch() : &step_.batch();
    args.layout = &layout_;
    args.planes = kv_->planes(layer);
    args.layer = layer;
    args.n_heads = model_.n_heads;
    args.window = model_.windows[layer];
    args.scale = model_.score_scale;
    args.soft_cap = model_.score_cap;
    args.q = q.data;
    args.q_stride = q.stride;
    args.out = attended_.data;
    args.out_stride = attended_.stride;
    attention_->Run(args, *compute_);
  }

  // ---- loading ----

  // What the kernels can cut into their tiles.
  absl::Status CheckWidths(const std::string& name) const {
    const auto check = [&](const char* field, int width, int unit) {
      return width % unit == 0 ? absl::OkStatus()
                               : absl::InvalidArgumentError(
                                     absl::StrFormat("%s: %s is %d; the bf16 engine needs a "
                                                     "multiple of %d (dtype fp32 takes any)",
                                                     name, field, width, unit));
    };
    if (model_.latent.rank == 0) return check("head_dim", model_.head_dim, 16);
    RETURN_IF_ERROR(check("qk_rope_head_dim", model_.latent.rotated_dim, 16));
    RETURN_IF_ERROR(check("qk_nope_head_dim", model_.latent.plain_dim, 32));
    return check("kv_lora_rank", model_.latent.rank, 32);
  }

  absl::Status ChooseKernels(const std::string& isa) {
    if (isa == "auto") {
      ASSIGN_OR_RETURN(linear_, MakeFastestLinearKernels(*compute_));
    } else {
      ASSIGN_OR_RETURN(const Isa path, ParseIsa(isa));
      RETURN_IF_ERROR(CheckIsaSupported(path));
      ASSIGN_OR_RETURN(linear_, MakeLinearKernels(path));
    }
    attention_ = MakeAttentionKernels(linear_->isa());
    elementwise_ = &GetElementwiseKernels(linear_->isa());
    return absl::OkStatus();
  }

  absl::Status MapActivations() {
    const int64_t rows = max_step_tokens_;
    arena_.Ask(x_, rows, model_.hidden);
    arena_.Ask(normed_, rows, model_.hidden);
    if (model_.parallel_mlp || model_.output_norms) arena_.Ask(branch_, rows, model_.hidden);
    if (model_.latent.rank > 0) {
      const LatentDesc& latent = model_.latent;
      arena_.Ask(qkv_, rows, model_.q_width() + latent.key_dim());
      arena_.Ask(moved_, rows, model_.n_heads * latent.key_dim());
      arena_.Ask(attended_, rows, model_.n_heads * latent.rank);
      arena_.Ask(values_, rows, model_.attended_width());
    } else {
      arena_.Ask(qkv_, rows, model_.q_width() + 2 * model_.kv_width());
      arena_.Ask(attended_, rows, model_.attended_width());
    }
    arena_.Ask(mlp_, rows, model_.intermediate);
    if (model_.experts.n > 0) {
      experts_.emplace(model_.experts, model_.hidden, max_step_tokens_, arena_);
    }
    arena_.Ask(logits_, rows * model_.vocab);
    if (!arena_.Map()) {
      return absl::ResourceExhaustedError(absl::StrFormat(
          "no memory for %d bytes of activations; lower max_step_tokens", arena_.bytes()));
    }
    for (const CpuLayerWeights& w : weights_.layers) {
      if (!w.experts.experts.empty()) experts_->Reserve(w.experts, *linear_, *compute_);
      if (model_.latent.rank == 0) continue;
      linear_->Reserve(QueriesToLatents(w.latent, max_step_tokens_), *compute_);
      linear_->Reserve(LatentsToValues(w.latent, max_step_tokens_), *compute_);
    }
    return absl::OkStatus();
  }

  static Epilogue ActivationOf(const ModelDesc& model) {
    if (model.activation == Activation::kSilu) return Epilogue::kSwiGlu;
    return model.activation == Activation::kGelu ? Epilogue::kGelu : Epilogue::kGeGlu;
  }

  ModelDesc model_;
  Epilogue activation_;  // of the MLP
  KvLayout layout_;
  WeightFormats formats_;
  int max_step_tokens_;
  RopeTables ropes_;
  uint64_t rope_digest_;
  std::unique_ptr<WeightSource> source_;  // embedding rows are read from it
  std::unique_ptr<ComputePool> compute_;
  std::unique_ptr<LinearKernels> linear_;
  std::unique_ptr<AttentionKernels> attention_;
  const ElementwiseKernels* elementwise_ = nullptr;
  CpuWeights weights_;
  KvPool* kv_ = nullptr;

  Arena arena_;
  Activations x_, normed_, branch_, qkv_, attended_, mlp_;
  Activations moved_, values_;           // of latent attention: queries, what it gives
  std::vector<LinearArgs> head_layers_;  // and room for its heads
  std::optional<Experts> experts_;       // of sparse layers
  float* logits_ = nullptr;              // (max_step_tokens, vocab)
  StepRows step_;
  int next_layer_ = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Backend>> LoadCpuBackend(const EngineOptions& options,
                                                        LoadedModel loaded,
                                                        void (*progress)(void*, double),
                                                        void* progress_context) {
  auto backend = std::make_unique<CpuBackend>(options, std::move(loaded));
  RETURN_IF_ERROR(backend->Load(options, progress, progress_context));
  return backend;
}

}  // namespace baton
