#include "engine/cpu/cpu_backend.h"

#include <algorithm>
#include <cmath>
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

class CpuBackend : public Backend {
 public:
  CpuBackend(const EngineOptions& options, LoadedModel loaded)
      : model_(std::move(loaded.desc)),
        layout_(KvLayout::For(model_, options.kv_type(), options.page_tokens)),
        max_step_tokens_(options.max_step_tokens),
        rope_(std::move(loaded.rope)),
        rope_digest_(loaded.rope_digest),
        source_(std::move(loaded.source)),
        compute_(std::move(loaded.pool)) {}

  absl::Status Load(const EngineOptions& options, void (*progress)(void*, double), void* context) {
    if (model_.head_dim % 16 != 0) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "%s: head_dim is %d; the bf16 engine needs a multiple of 16 (dtype fp32 takes any)",
          options.model, model_.head_dim));
    }
    RETURN_IF_ERROR(ChooseKernels(options.isa));
    ASSIGN_OR_RETURN(weights_, LoadCpuWeights(model_, *source_, options.cache_dir, *compute_,
                                              progress, context));
    return MapActivations();
  }

  const ModelDesc& model() const override { return model_; }
  const KvLayout& kv_layout() const override { return layout_; }
  std::string numerics_id() const override {
    return layout_.type == KvType::kInt8 ? "v1/cpu-x86/bf16/kv-int8/l2"
                                         : "v1/cpu-x86/bf16/kv-bf16/l2";
  }
  uint64_t model_fingerprint() const override {
    return weights_.file->fingerprint() ^ rope_digest_;
  }
  std::string isa() const override { return std::string(IsaName(linear_->isa())); }
  WeightMemory weight_memory() const override {
    return {weights_.file->bytes(), weights_.file->is_shared()};
  }
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
    ForRows(step_.n(), [&](int row) { source_->ReadBf16(0, step_.token(row), 1, x_.row(row)); });
  }

  void RunLayer(int layer, const CpuLayerWeights& w) {
    NormRows(x_, w.attention_norm, normed_);
    RunAttention(layer, w, Epilogue::kResidualAdd, x_);
    NormRows(x_, w.mlp_norm, normed_);
    RunMlp(w, Epilogue::kResidualAdd, x_);
  }

  // y = or += the layer's attention of normed_, as `end` says.
  void RunAttention(int layer, const CpuLayerWeights& w, Epilogue end, const Activations& y) {
    Linear(normed_, w.qkv, w.qkv_bias, Epilogue::kBf16, qkv_);
    ForRows(step_.n(), [&](int row) { RotateAndStore(layer, w, row); });
    Attend(layer);
    Linear(attended_, w.o, w.o_bias, end, y);
  }

  // y = or += the layer's MLP of normed_, as `end` says.
  void RunMlp(const CpuLayerWeights& w, Epilogue end, const Activations& y) {
    if (!w.experts.experts.empty()) {
      const bool add = end == Epilogue::kResidualAdd;
      return experts_->Run(w.experts, normed_, step_.n(), add, y, *linear_, *compute_);
    }
    Linear(normed_, w.gate_up, w.gate_up_bias, Epilogue::kSwiGlu, mlp_);
    Linear(mlp_, w.down, w.down_bias, end, y);
  }

  void LmHead() {
    const int n = step_.n_logits();
    if (n == 0) return;
    ForRows(n, [&](int i) {
      Norm(x_.row(step_.batch().logit_rows[i]), weights_.final_norm, normed_.row(i));
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
  }

  // ---- its pieces ----

  template <typename Fn>
  void ForRows(int n, const Fn& fn) {
    compute_->For((n + kRowsPerItem - 1) / kRowsPerItem, [&](int64_t item, int) {
      const int first = static_cast<int>(item) * kRowsPerItem;
      for (int row = first; row < std::min(first + kRowsPerItem, n); ++row) fn(row);
    });
  }

  void NormRows(const Activations& x, const float* weight, const Activations& out) {
    ForRows(step_.n(), [&](int row) { Norm(x.row(row), weight, out.row(row)); });
  }

  void Norm(const bf16* x, const float* weight, bf16* out) const {
    elementwise_->rms_norm(x, weight, model_.hidden, RoundUp(model_.hidden, 32),
                           static_cast<float>(model_.rms_eps), out);
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

  void NormHeads(bf16* heads, int n, const float* weight) const {
    const int d = model_.head_dim;
    for (int head = 0; head < n; ++head, heads += d) {
      elementwise_->rms_norm(heads, weight, d, d, static_cast<float>(model_.rms_eps), heads);
    }
  }

  void RotateAndStore(int layer, const CpuLayerWeights& w, int row) {
    const int d = model_.head_dim;
    const int64_t angle = static_cast<int64_t>(step_.position(row)) * (d / 2);
    bf16* const q = qkv_.row(row);
    bf16* const k = q + model_.q_width();
    const bf16* const v = k + model_.kv_width();
    if (model_.qk_norm) {
      NormHeads(q, model_.n_heads, w.q_norm);
      NormHeads(k, model_.n_kv_heads, w.k_norm);
    }
    for (int head = 0; head < model_.n_heads + model_.n_kv_heads; ++head) {  // k follows q
      elementwise_->rope(q + head * d, d, rope_.cos.data() + angle, rope_.sin.data() + angle);
    }
    std::byte* const plane = kv_->plane(step_.page(row), layer);
    for (int head = 0; head < model_.n_kv_heads; ++head) {
      elementwise_->write_kv(layout_, layer, head, k + head * d, v + head * d, plane,
                             step_.slot(row));
    }
  }

  void Attend(int layer) {
    AttentionArgs args;
    args.batch = &step_.batch();
    args.layout = &layout_;
    args.planes = kv_->planes(layer);
    args.layer = layer;
    args.n_heads = model_.n_heads;
    args.window = model_.windows[layer];
    args.scale = 1.0 / std::sqrt(static_cast<double>(model_.head_dim));
    args.q = qkv_.data;
    args.q_stride = qkv_.stride;
    args.out = attended_.data;
    args.out_stride = attended_.stride;
    attention_->Run(args, *compute_);
  }

  // ---- loading ----

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
    arena_.Ask(qkv_, rows, model_.q_width() + 2 * model_.kv_width());
    arena_.Ask(attended_, rows, model_.q_width());
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
    }
    return absl::OkStatus();
  }

  ModelDesc model_;
  KvLayout layout_;
  int max_step_tokens_;
  RopeTable rope_;
  uint64_t rope_digest_;
  std::unique_ptr<WeightSource> source_;  // embedding rows are read from it
  std::unique_ptr<ComputePool> compute_;
  std::unique_ptr<LinearKernels> linear_;
  std::unique_ptr<AttentionKernels> attention_;
  const ElementwiseKernels* elementwise_ = nullptr;
  CpuWeights weights_;
  KvPool* kv_ = nullptr;

  Arena arena_;
  Activations x_, normed_, qkv_, attended_, mlp_;
  std::optional<Experts> experts_;  // of sparse layers
  float* logits_ = nullptr;         // (max_step_tokens, vocab)
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
