#include "engine/cpu/cpu_backend.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/str_format.h"
#include "common/check.h"
#include "engine/cpu/activations.h"
#include "engine/cpu/cpu_model.h"
#include "engine/cpu/forward_pass.h"
#include "engine/cpu/rival_slices.h"
#include "engine/cpu/step_rows.h"
#include "engine/step/host_backend.h"
#include "engine/step/slice_progress.h"

namespace baton {
namespace {

// Number of attended keys of a row that needs no more.
constexpr int kAllKeys = std::numeric_limits<int>::max() / kSliceKeys * kSliceKeys;

constexpr int32_t kFirstRow[] = {0};

class CpuBackend : public HostBackend, public RivalSlices {
 public:
  CpuBackend(const EngineOptions& options, LoadedModel loaded, CpuKernels kernels)
      : limits_(options.limits),
        model_(options, std::move(loaded), std::move(kernels)),
        pass_(model_, limits_.max_step_tokens, arena_) {}

  absl::Status Load(const EngineOptions& options, void (*progress)(void*, double), void* context) {
    RETURN_IF_ERROR(model_.Load(options, progress, context));
    pass_.Ask(step_.rows, limits_.max_step_tokens, arena_);
    arena_.Ask(step_.logits, int64_t{limits_.max_step_tokens} * desc().vocab);
    pass_.Ask(slice_.rows, limits_.max_slice_tokens, arena_);
    pass_.Ask(slice_.rows.kept, limits_.max_slice_tokens, arena_);
    met_.reserve(static_cast<size_t>(limits_.max_slice_tokens));
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
  StepLimits limits() const override { return limits_; }
  WeightMemory weight_memory() const override {
    return {model_.weights.file->bytes(), model_.weights.file->is_shared()};
  }
  ComputePool* compute_pool() override { return model_.compute.get(); }

  void SetPages(const KvPages& pages) override {
    BATON_CHECK(pages.layout->layout_id() == model_.layout.layout_id());
    kv_ = pages;
    pass_.SetPages(pages);
  }

  // ---- steps ----

  void Begin(const StepBatch& batch) override {
    BATON_CHECK(kv_.base != nullptr && batch.n_tokens() > 0 &&
                batch.n_tokens() <= limits_.max_step_tokens);
    step_.batch.Assign(batch, kv_, desc().vocab, desc().max_positions);
    next_layer_ = 0;
  }

  void RunLayers(int from, int to) override {
    BATON_CHECK(from == next_layer_ && from <= to && to <= desc().n_layers);
    const StepRows& batch = step_.batch;
    if (from == 0 && to > 0) pass_.Embed(batch, 0, batch.n(), step_.rows);
    for (int layer = from; layer < to; ++layer) {
      pass_.Project(layer, batch, 0, batch.n(), step_.rows);
      if (layer + 1 < desc().n_layers) {
        pass_.Attend(layer, batch.attention_batch(), step_.rows);
        pass_.Finish(layer, batch.n(), step_.rows.x);
      } else {
        RunLogitRows(layer);
      }
    }
    next_layer_ = to;
  }

  std::span<const float> logits(int i) const override {
    BATON_CHECK(i >= 0 && i < step_.batch.n_logits() && next_layer_ == desc().n_layers);
    const auto width = static_cast<size_t>(desc().vocab);
    return {step_.logits + static_cast<size_t>(i) * width, width};
  }

  // Behind those of the rows with logits: there is room for all rows of a step.
  std::span<const float> ScoredLogits(int from, int to) override {
    step_.batch.CheckScored(from, to, kScoredAtOnce);
    BATON_CHECK(next_layer_ == desc().n_layers);
    float* const out = step_.logits + int64_t{step_.batch.n_logits()} * desc().vocab;
    pass_.LmHead(std::span(scored_at_).subspan(from, to - from), step_.rows.x, out);
    return {out, static_cast<size_t>(to - from) * desc().vocab};
  }

  // ---- slices ----

  void BeginSlice(const StepBatch& batch) override {
    BATON_CHECK(kv_.base != nullptr && batch.n_tokens() <= limits_.max_slice_tokens);
    slice_.batch.Assign(batch, kv_, desc().vocab, desc().max_positions);
    BATON_CHECK(batch.logit_rows.size() <= 1 && batch.scored_rows.empty());
    BATON_CHECK(batch.logit_rows.empty() || batch.logit_rows[0] == batch.n_tokens() - 1);
    met_.resize(batch.tokens.size());
    progress_.Begin(desc().n_layers, batch.n_tokens(), limits_.max_step_tokens,
                    !batch.logit_rows.empty());
  }

  void ProjectSlice(int layer, int from, int to) override {
    progress_.Project(layer, from, to);
    const RowActivations rows = slice_.rows.From(from);
    if (layer == 0) pass_.Embed(slice_.batch, from, to - from, rows);
    pass_.Project(layer, slice_.batch, from, to - from, rows);
    std::fill(met_.begin() + from, met_.begin() + to, 0);
  }

  void AttendSlice(int layer, int from, int to, int end_key) override {
    progress_.Attend(layer, from, to);
    BATON_CHECK(end_key % kSliceKeys == 0);
    if (KeepRowsOfUse(layer, to, &from)) KeepKeys(layer, from, to, end_key);
  }

  void FinishSlice(int layer, int from, int to) override {
    progress_.Finish(layer, from, to);
    if (!KeepRowsOfUse(layer, to, &from)) return;
    FinishKeys(layer, from, to);
    const Activations& x = slice_.rows.From(from).x;
    pass_.Finish(layer, to - from, x);
    if (layer + 1 == desc().n_layers) pass_.LmHead(kFirstRow, x, slice_.logits);
  }

  std::span<const float> slice_logits() const override {
    BATON_CHECK(progress_.has_logits());
    return {slice_.logits, static_cast<size_t>(desc().vocab)};
  }

  // ---- rivals ----

  void AttendKeys(int layer, int from, int to, int first_key, int end_key) override {
    progress_.Attend(layer, from, to);
    BATON_CHECK(first_key % kSliceKeys == 0 && end_key % kSliceKeys == 0);
    if (!KeepRowsOfUse(layer, to, &from)) return;
    ForRuns(from, to, [&](int first, int end, int met) {
      Attend(layer, first, end, {first_key, end_key, met > 0, false}, 0);
    });
    std::fill(met_.begin() + from, met_.begin() + to, kAllKeys);
  }

  int64_t residual_bytes() const override { return desc().hidden * int64_t{sizeof(bf16)}; }
  void ReadResidual(int from, int to, std::span<std::byte> out) const override {
    progress_.CheckRows(from, to);
    BATON_CHECK(static_cast<int64_t>(out.size()) == (to - from) * residual_bytes());
    for (int row = from; row < to; ++row) {
      std::memcpy(out.data() + (row - from) * residual_bytes(), slice_.rows.x.row(row),
                  static_cast<size_t>(residual_bytes()));
    }
  }
  void SetResidual(int layer, int from, int to, std::span<const std::byte> in) override {
    progress_.CheckRows(from, to);
    progress_.StartAt(layer);
    BATON_CHECK(static_cast<int64_t>(in.size()) == (to - from) * residual_bytes());
    for (int row = from; row < to; ++row) {
      std::memcpy(slice_.rows.x.row(row), in.data() + (row - from) * residual_bytes(),
                  static_cast<size_t>(residual_bytes()));
    }
  }

 private:
  // A step or a slice, with its activations.
  struct Computed {
    StepRows batch;
    RowActivations rows;
    float* logits = nullptr;
  };

  const ModelDesc& desc() const { return model_.desc; }

  // In the last layer only a row with logits is needed: returns false if rows [*from, to) do not
  // contain it, else sets *from to that row.
  bool KeepRowsOfUse(int layer, int to, int* from) const {
    if (layer + 1 < desc().n_layers) return true;
    *from = to - 1;
    return progress_.IsLogitRow(to);
  }

  // Calls run(first, end, met) for each run [first, end) of rows that have attended the same number
  // of keys.
  template <typename Run>
  void ForRuns(int from, int to, const Run& run) {
    while (from < to) {
      const int met = met_[from];
      int end = from;
      while (end < to && met_[end] == met) ++end;
      run(from, end, met);
      from = end;
    }
  }

  // Rows [from, to) of the slice attend the keys before end_key that they have not attended; the
  // state is kept.
  void KeepKeys(int layer, int from, int to, int end_key) {
    ForRuns(from, to, [&](int first, int end, int met) {
      if (met >= end_key) return;
      Attend(layer, first, end, {met, end_key, met > 0, false}, 0);
      std::fill(met_.begin() + first, met_.begin() + end, end_key);
    });
  }

  // Attends the remaining keys; the results wait for ForwardPass::Finish.
  void FinishKeys(int layer, int from, int to) {
    ForRuns(from, to, [&](int first, int end, int met) {
      Attend(layer, first, end, {met, KeyRange{}.end, met > 0, true}, first - from);
    });
  }

  void Attend(int layer, int from, int to, const KeyRange& keys, int first_row) {
    chosen_.Clear();
    chosen_.Add(slice_.batch, from, to);
    pass_.Attend(layer, chosen_.batch(), slice_.rows.From(from), keys, first_row);
  }

  // The last layer of a step is computed for logits only: other rows are done when their K and V
  // are written. Rows with logits and scored rows move to the front, in their order.
  void RunLogitRows(int layer) {
    const Activations &x = step_.rows.x, &queries = step_.rows.queries;
    chosen_.Clear();
    logits_at_.clear();
    scored_at_.clear();
    const std::span<const int32_t> with_logits = step_.batch.batch().logit_rows;
    const std::span<const int32_t> scored = step_.batch.batch().scored_rows;
    while (logits_at_.size() < with_logits.size() || scored_at_.size() < scored.size()) {
      const bool is_scored = logits_at_.size() == with_logits.size() ||
                             (scored_at_.size() < scored.size() &&
                              scored[scored_at_.size()] < with_logits[logits_at_.size()]);
      std::vector<int32_t>& at = is_scored ? scored_at_ : logits_at_;
      const int32_t row = is_scored ? scored[at.size()] : with_logits[at.size()];
      const int to = chosen_.n();
      at.push_back(to);
      chosen_.Add(step_.batch, row, row + 1);
      if (row == to) continue;
      std::copy_n(x.row(row), x.stride, x.row(to));
      std::copy_n(queries.row(row), queries.stride, queries.row(to));
    }
    if (chosen_.n() == 0) return;
    pass_.Attend(layer, chosen_.batch(), step_.rows);
    pass_.Finish(layer, chosen_.n(), x);
    pass_.LmHead(logits_at_, x, step_.logits);
  }

  const StepLimits limits_;
  CpuModel model_;
  Arena arena_;
  ForwardPass pass_;
  KvPages kv_;

  Computed step_, slice_;
  int next_layer_ = 0;      // next layer of the step
  SliceProgress progress_;  // progress of the slice
  std::vector<int> met_;    // keys that each row of the slice has attended in this layer
  ChosenRows chosen_;       // scratch for step and slice
  // Where x has the rows with logits and the scored rows, once the step is done.
  std::vector<int32_t> logits_at_, scored_at_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Backend>> LoadCpuBackend(const EngineOptions& options,
                                                        LoadedModel loaded, CpuKernels kernels,
                                                        void (*progress)(void*, double),
                                                        void* progress_context) {
  auto backend = std::make_unique<CpuBackend>(options, std::move(loaded), std::move(kernels));
  RETURN_IF_ERROR(backend->Load(options, progress, progress_context));
  return backend;
}

}  // namespace baton
