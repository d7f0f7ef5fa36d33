#include "engine/cpu/cpu_backend.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "common/check.h"
#include "engine/cpu/activations.h"
#include "engine/cpu/cpu_model.h"
#include "engine/cpu/forward_pass.h"
#include "engine/cpu/step_rows.h"
#include "engine/slice_progress.h"

namespace baton {
namespace {

class CpuBackend : public Backend {
 public:
  CpuBackend(const EngineOptions& options, LoadedModel loaded)
      : max_step_tokens_(options.max_step_tokens),
        max_slice_tokens_(options.max_slice_tokens),
        model_(options, std::move(loaded)),
        pass_(model_, max_step_tokens_, arena_) {}

  absl::Status Load(const EngineOptions& options, void (*progress)(void*, double), void* context) {
    RETURN_IF_ERROR(model_.Load(options, progress, context));
    pass_.Ask(step_.rows, max_step_tokens_, arena_);
    arena_.Ask(step_.logits, int64_t{max_step_tokens_} * desc().vocab);
    pass_.Ask(slice_.rows, max_slice_tokens_, arena_);
    arena_.Ask(slice_.logits, desc().vocab);
    if (!arena_.Map()) {
      return absl::ResourceExhaustedError(
          absl::StrFormat("no memory for %d bytes of activations; lower max_step_tokens or "
                          "max_slice_tokens",
                          arena_.bytes()));
    }
    pass_.Reserve();
    return absl::OkStatus();
  }

  const ModelDesc& model() const override { return desc(); }
  const KvLayout& kv_layout() const override { return model_.layout; }
  std::string numerics_id() const override {
    return absl::StrFormat("v1/cpu-x86/%s/kv-%s/l2", model_.formats.layers.Name(),
                           model_.layout.type == KvType::kInt8 ? "int8" : "bf16");
  }
  uint64_t model_fingerprint() const override {
    return model_.weights.file->fingerprint() ^ model_.rope_digest;
  }
  std::string isa() const override { return std::string(IsaName(model_.linear->isa())); }
  WeightMemory weight_memory() const override {
    return {model_.weights.file->bytes(), model_.weights.file->is_shared()};
  }
  ComputePool* compute_pool() override { return model_.compute.get(); }

  void SetPool(KvPool* pool) override {
    CHECK(pool->layout().layout_id() == model_.layout.layout_id());
    kv_ = pool;
    pass_.SetPool(pool);
  }

  // ---- steps ----

  void Begin(const StepBatch& batch) override {
    CHECK(kv_ != nullptr && batch.n_tokens() > 0 && batch.n_tokens() <= max_step_tokens_);
    step_.batch.Assign(batch, *kv_, desc().vocab, desc().max_positions);
    next_layer_ = 0;
  }

  void RunLayers(int from, int to) override {
    CHECK(from == next_layer_ && from <= to && to <= desc().n_layers);
    const StepRows& batch = step_.batch;
    if (from == 0 && to > 0) pass_.Embed(batch, 0, batch.n(), step_.rows);
    for (int layer = from; layer < to; ++layer) {
      pass_.Project(layer, batch, 0, batch.n(), step_.rows);
      if (layer + 1 < desc().n_layers) {
        AttendAndFinish(layer, batch.attention_batch(), batch.n(), step_.rows);
      } else {
        RunLogitRows(layer);
      }
    }
    next_layer_ = to;
  }

  std::span<const float> logits(int i) const override {
    CHECK(i >= 0 && i < step_.batch.n_logits() && next_layer_ == desc().n_layers);
    return LogitsAt(step_.logits + static_cast<int64_t>(i) * desc().vocab);
  }

  // ---- slices ----

  void BeginSlice(const StepBatch& batch) override {
    CHECK(kv_ != nullptr && batch.n_pieces() == 1 && batch.n_tokens() <= max_slice_tokens_);
    slice_.batch.Assign(batch, *kv_, desc().vocab, desc().max_positions);
    CHECK(batch.logit_rows.size() <= 1);
    CHECK(batch.logit_rows.empty() || batch.logit_rows[0] == batch.n_tokens() - 1);
    progress_.Begin(desc().n_layers, batch.n_tokens(), max_step_tokens_, !batch.logit_rows.empty());
  }

  void ProjectSlice(int layer, int from, int to) override {
    progress_.Project(layer, from, to);
    const RowActivations rows = slice_.rows.From(from);
    if (layer == 0) pass_.Embed(slice_.batch, from, to - from, rows);
    pass_.Project(layer, slice_.batch, from, to - from, rows);
  }

  void AttendSlice(int layer, int from, int to, int end_key) override {
    progress_.Attend(layer, from, to);
    CHECK(end_key % kSliceKeys == 0);
  }

  void FinishSlice(int layer, int from, int to) override {
    progress_.Finish(layer, from, to);
    const bool is_last = layer + 1 == desc().n_layers;
    if (is_last && !progress_.IsLogitRow(to)) return;
    if (is_last) from = to - 1;
    chosen_.Clear();
    chosen_.Add(slice_.batch, from, to);
    AttendAndFinish(layer, chosen_.batch(), to - from, slice_.rows.From(from));
    if (is_last) pass_.LmHead(1, slice_.rows.From(from).x, slice_.logits);
  }

  std::span<const float> slice_logits() const override {
    CHECK(progress_.has_logits());
    return LogitsAt(slice_.logits);
  }

 private:
  // A step or a slice, and what is computed of it.
  struct Computed {
    StepRows batch;
    RowActivations rows;
    float* logits = nullptr;
  };

  const ModelDesc& desc() const { return model_.desc; }
  std::span<const float> LogitsAt(const float* logits) const {
    return {logits, static_cast<size_t>(desc().vocab)};
  }

  void AttendAndFinish(int layer, const AttentionBatch& batch, int n, const RowActivations& rows) {
    pass_.Attend(layer, batch, rows.queries);
    pass_.Finish(layer, n, rows.x);
  }

  // The step's last layer is for its logits: rows without are done when their K and V are written.
  // The others move to the front.
  void RunLogitRows(int layer) {
    const auto& [x, queries] = step_.rows;
    chosen_.Clear();
    for (const int32_t row : step_.batch.batch().logit_rows) {
      const int to = chosen_.n();
      chosen_.Add(step_.batch, row, row + 1);
      if (row == to) continue;
      std::copy_n(x.row(row), x.stride, x.row(to));
      std::copy_n(queries.row(row), queries.stride, queries.row(to));
    }
    if (chosen_.n() == 0) return;
    AttendAndFinish(layer, chosen_.batch(), chosen_.n(), step_.rows);
    pass_.LmHead(chosen_.n(), x, step_.logits);
  }

  int max_step_tokens_, max_slice_tokens_;
  CpuModel model_;
  Arena arena_;
  ForwardPass pass_;
  KvPool* kv_ = nullptr;

  Computed step_, slice_;
  int next_layer_ = 0;      // of the step
  SliceProgress progress_;  // of the slice
  ChosenRows chosen_;       // of either
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
