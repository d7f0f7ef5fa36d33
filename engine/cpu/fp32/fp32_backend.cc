#include "engine/cpu/fp32/fp32_backend.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "engine/cpu/fp32/fp32_mlp.h"
#include "engine/cpu/fp32/fp32_weights.h"
#include "engine/cpu/rival_slices.h"
#include "engine/cpu/step_rows.h"
#include "engine/step/host_backend.h"
#include "engine/step/slice_progress.h"
#include "engine/threads/phase_clock.h"

namespace baton {
namespace {

class Fp32Backend : public HostBackend, public RivalSlices {
 public:
  Fp32Backend(const EngineOptions& options, LoadedModel loaded, uint64_t fingerprint)
      : model_(std::move(loaded.desc)),
        layout_(KvLayout::For(model_, KvType::kFp32, options.page_tokens)),
        limits_(options.limits),
        ropes_(std::move(loaded.ropes)),
        compute_(std::move(loaded.pool)),
        fingerprint_(fingerprint ^ loaded.rope_digest),
        weights_(*loaded.source, *compute_),
        mlp_(model_, weights_),
        scores_(compute_->n_threads()) {}

  const ModelDesc& model() const override { return model_; }
  const KvLayout& kv_layout() const override { return layout_; }
  std::string numerics_id() const override { return "plain/cpu-x86/fp32/kv-fp32"; }
  uint64_t model_fingerprint() const override { return fingerprint_; }
  std::string isa() const override { return "plain"; }
  StepLimits limits() const override { return limits_; }
  WeightMemory weight_memory() const override { return {weights_.bytes(), false}; }
  ComputePool* compute_pool() override { return compute_.get(); }
  void SetPages(const KvPages& pages) override {
    BATON_CHECK(pages.layout->layout_id() == layout_.layout_id());
    kv_ = pages;
  }

  // ---- steps ----

  void Begin(const StepBatch& batch) override {
    BATON_CHECK(batch.n_tokens() <= limits_.max_step_tokens);
    Begin(batch, step_);
    next_layer_ = 0;
  }

  void RunLayers(int from, int to) override {
    BATON_CHECK(from == next_layer_ && from <= to && to <= model_.n_layers);
    for (int layer = from; layer < to; ++layer) {
      Project(layer, step_, Range(0, step_.batch.n()));
      if (layer + 1 < model_.n_layers) {
        Finish(layer, step_, Range(0, step_.batch.n()));
      } else {
        FinishLogitRows(step_);
      }
    }
    next_layer_ = to;
  }

  std::span<const float> logits(int i) const override {
    BATON_CHECK(i >= 0 && i < step_.batch.n_logits() && next_layer_ == model_.n_layers);
    return {step_.logits.row(i), static_cast<size_t>(model_.vocab)};
  }

  std::span<const float> ScoredLogits(int from, int to) override {
    step_.batch.CheckScored(from, to, kScoredAtOnce);
    BATON_CHECK(next_layer_ == model_.n_layers);
    Matrix rows;
    rows.Resize(to - from, model_.hidden);
    step_.scored.Read(Range(from, to), rows);
    LmHead(rows, scored_logits_);
    return scored_logits_.data;
  }

  // ---- slices ----

  void BeginSlice(const StepBatch& batch) override {
    BATON_CHECK(batch.n_tokens() <= limits_.max_slice_tokens);
    Begin(batch, slice_);
    BATON_CHECK(batch.logit_rows.size() <= 1 && batch.scored_rows.empty());
    BATON_CHECK(batch.logit_rows.empty() || batch.logit_rows[0] == batch.n_tokens() - 1);
    progress_.Begin(model_.n_layers, batch.n_tokens(), limits_.max_step_tokens,
                    !batch.logit_rows.empty());
  }
  void ProjectSlice(int layer, int from, int to) override {
    progress_.Project(layer, from, to);
    Project(layer, slice_, Range(from, to));
  }
  // Computes nothing early: rows attend all their keys when they are finished.
  void AttendSlice(int layer, int from, int to, int end_key) override {
    progress_.Attend(layer, from, to);
    BATON_CHECK(end_key % kSliceKeys == 0);
  }
  void FinishSlice(int layer, int from, int to) override {
    progress_.Finish(layer, from, to);
    if (layer + 1 < model_.n_layers) return Finish(layer, slice_, Range(from, to));
    if (progress_.IsLogitRow(to)) FinishLogitRows(slice_);
  }
  std::span<const float> slice_logits() const override {
    BATON_CHECK(progress_.has_logits());
    return {slice_.logits.row(0), static_cast<size_t>(model_.vocab)};
  }

  // ---- rivals ----

  void AttendKeys(int layer, int from, int to, int first_key, int end_key) override {
    progress_.Attend(layer, from, to);
    BATON_CHECK(first_key % kSliceKeys == 0 && end_key % kSliceKeys == 0);
    Choose(slice_, Range(from, to));
    slice_.queries.Read(chosen_, q_);
    slice_.kept.Read(chosen_, kept_);
    MeetKeys(layer, first_key, end_key);
    slice_.kept.Write(chosen_, kept_);
    std::fill(slice_.is_kept.begin() + from, slice_.is_kept.begin() + to, true);
  }
  int64_t residual_bytes() const override { return model_.hidden * int64_t{sizeof(float)}; }
  void ReadResidual(int from, int to, std::span<std::byte> out) const override {
    progress_.CheckRows(from, to);
    BATON_CHECK(static_cast<int64_t>(out.size()) == (to - from) * residual_bytes());
    std::memcpy(out.data(), slice_.x.row(from), out.size());
  }
  void SetResidual(int layer, int from, int to, std::span<const std::byte> in) override {
    progress_.CheckRows(from, to);
    progress_.StartAt(layer);
    BATON_CHECK(static_cast<int64_t>(in.size()) == (to - from) * residual_bytes());
    std::memcpy(slice_.x.row(from), in.data(), in.size());
  }

 private:
  // A step or a slice, with its activations. The other matrices belong to the rows that are
  // computed at the moment: chosen_ of rows_.
  struct Computed {
    StepRows batch;
    Matrix x, queries;          // for all rows, between the parts of a layer
    Matrix kept;                // per head of rows with is_kept: max, sum, weighted values
    std::vector<bool> is_kept;  // rows that attended keys before they are finished
    Matrix logits;
    Matrix scored;  // scored rows after the final norm
  };

  void Begin(const StepBatch& batch, Computed& c) {
    BATON_CHECK(kv_.base != nullptr && batch.n_tokens() > 0);
    c.batch.Assign(batch, kv_, model_.vocab, model_.max_positions);
    c.x.Resize(c.batch.n(), model_.hidden);
    c.queries.Resize(c.batch.n(), model_.n_heads * layout_.shape(0).key_dim);
    c.kept.Resize(c.batch.n(), KeptWidth());
    c.is_kept.assign(c.batch.n(), false);
    c.logits.Resize(c.batch.n_logits(), model_.vocab);
  }

  static std::vector<int32_t> Range(int from, int to) {
    std::vector<int32_t> rows(to - from);
    std::iota(rows.begin(), rows.end(), from);
    return rows;
  }

  // Makes room for these rows of a step or slice.
  void Choose(const Computed& c, std::vector<int32_t> rows) {
    rows_ = &c.batch;
    chosen_ = std::move(rows);
    const int64_t n = static_cast<int64_t>(chosen_.size());
    const KvShape& shape = layout_.shape(0);
    x_.Resize(n, model_.hidden);
    normed_.Resize(n, model_.hidden);
    branch_.Resize(n, model_.hidden);
    attention_.Resize(n, model_.hidden);
    q_.Resize(n, model_.n_heads * shape.key_dim);
    k_.Resize(n, shape.heads * shape.key_dim);
    v_.Resize(n, shape.heads * shape.value_dim);
    kept_.Resize(n, KeptWidth());
    attended_.Resize(n, model_.n_heads * shape.value_dim);
    if (model_.latent.rank > 0) {
      projected_.Resize(n, model_.q_width());
      values_.Resize(n, model_.attended_width());
      query_latents_.Resize(n, model_.latent.query_rank);
    }
  }

  // Computes norm, queries, keys and values.
  void Project(int layer, Computed& c, std::vector<int32_t> rows) {
    Choose(c, std::move(rows));
    layer == 0 ? Embed() : c.x.Read(chosen_, x_);
    const std::string l = absl::StrCat("layers.", layer, ".");
    Norm(x_, l + "attention_norm", normed_);
    model_.latent.rank > 0 ? ProjectLatent(layer, l) : ProjectHeads(layer, l);
    c.x.Write(chosen_, x_);
    c.queries.Write(chosen_, q_);
    Clear(kept_);
    c.kept.Write(chosen_, kept_);
    for (const int32_t row : chosen_) c.is_kept[row] = false;
  }

  void Embed() {
    const std::vector<float>& embedding = weights_.At("embed");
    for (int row = 0; row < x_.rows(); ++row) {
      std::copy_n(embedding.data() + int64_t{rows_->token(chosen_[row])} * model_.hidden,
                  model_.hidden, x_.row(row));
    }
    for (float& value : x_.data) value *= static_cast<float>(model_.embedding_scale);
  }

  // Computes the rest of the layer for the same rows.
  void Finish(int layer, Computed& c, std::vector<int32_t> rows) {
    Choose(c, std::move(rows));
    c.x.Read(chosen_, x_);
    c.queries.Read(chosen_, q_);
    c.kept.Read(chosen_, kept_);
    MeetKeys(layer, 0, std::numeric_limits<int>::max(), &c.is_kept);
    TakeAttended(layer);
    const std::string l = absl::StrCat("layers.", layer, ".");
    ProjectOutput(l, branch_);
    if (model_.output_norms) Norm(branch_, l + "attention_out_norm", branch_);
    if (model_.parallel_mlp) std::swap(branch_, attention_);  // added below, with the MLP
    if (!model_.parallel_mlp) Add(branch_, x_);
    Norm(x_, l + (model_.mlp_norm ? "mlp_norm" : "attention_norm"), normed_);
    mlp_.Run(layer, normed_, branch_);
    if (model_.output_norms) Norm(branch_, l + "mlp_out_norm", branch_);
    if (model_.parallel_mlp) Add(attention_, branch_);
    Add(branch_, x_);
    c.x.Write(chosen_, x_);
  }

  // Finishes the last layer for rows whose logits are wanted, and computes the logits.
  void FinishLogitRows(Computed& c) {
    if (c.batch.n_logits() > 0) {
      FinishRows(c, c.batch.batch().logit_rows);
      LmHead(x_, c.logits);
    }
    if (c.batch.n_scored() > 0) {
      FinishRows(c, c.batch.batch().scored_rows);
      c.scored = x_;
    }
  }
  void FinishRows(Computed& c, std::span<const int32_t> rows) {
    Finish(model_.n_layers - 1, c, {rows.begin(), rows.end()});
    Norm(x_, "final_norm", x_);
  }
  void LmHead(const Matrix& rows, Matrix& logits) {
    logits.Resize(rows.rows(), model_.vocab);
    weights_.Linear(rows, model_.tied_embeddings ? "embed" : "lm_head", logits);
    for (float& logit : logits.data) logit = SoftCap(logit, model_.logit_cap);
  }

  void ProjectHeads(int layer, const std::string& l) {
    weights_.Linear(normed_, l + "q", q_);
    weights_.Linear(normed_, l + "k", k_);
    weights_.Linear(normed_, l + "v", v_);
    if (model_.qk_norm) {
      NormHeads(q_, l + "q_norm");
      NormHeads(k_, l + "k_norm");
    }
    const PhaseScope phase(compute_->clock(), Phase::kRope);
    for (int row = 0; row < x_.rows(); ++row) RotateAndStore(layer, row);
  }

  // Projects in the absorbed form (latent_desc.h).
  void ProjectLatent(int layer, const std::string& l) {
    const LatentDesc& d = model_.latent;
    if (d.query_rank > 0) {
      weights_.Linear(normed_, l + "query_latent", query_latents_);
      const std::vector<float>& query_norm = weights_.At(l + "query_latent_norm");
      for (int64_t row = 0; row < x_.rows(); ++row) {
        NormRow(query_latents_.row(row), query_norm, kLatentNormEps, query_latents_.row(row));
      }
    }
    weights_.Linear(d.query_rank > 0 ? query_latents_ : normed_, l + "q", projected_);
    weights_.Linear(normed_, l + "latent", k_);
    const std::vector<float>&norm = weights_.At(l + "latent_norm"),
          &key_up = weights_.At(l + "key_up");
    ForRows([&](int row) {
      const RopeTables::Angles angles = AnglesOf(layer, row);
      for (int head = 0; head < model_.n_heads; ++head) {
        MoveQuery(projected_.row(row) + head * d.query_dim(),
                  key_up.data() + static_cast<int64_t>(head) * d.plain_dim * d.rank, angles,
                  q_.row(row) + head * d.key_dim());
      }
      NormRow(k_.row(row), norm, kLatentNormEps, k_.row(row));
      Rotate(k_.row(row) + d.rank, angles);
      std::copy_n(k_.row(row), d.key_dim(), KRow(layer, 0, PageOfRow(row), SlotOfRow(row)));
    });
  }

  // y = the output projection of attended_.
  void ProjectOutput(const std::string& l, Matrix& y) {
    if (model_.latent.rank == 0) return weights_.Linear(attended_, l + "o", y);
    const LatentDesc& d = model_.latent;
    const std::vector<float>& value_up = weights_.At(l + "value_up");
    ForRows([&](int row) {
      for (int i = 0; i < model_.attended_width(); ++i) {
        values_.row(row)[i] = Dot(attended_.row(row) + i / d.value_dim * d.rank,
                                  value_up.data() + static_cast<int64_t>(i) * d.rank, d.rank);
      }
    });
    weights_.Linear(values_, l + "o", y);
  }

  // Projects a head's query to the latent. key_up: (plain_dim, rank).
  void MoveQuery(const float* query, const float* key_up, const RopeTables::Angles& angles,
                 float* moved) const {
    const LatentDesc& d = model_.latent;
    std::fill_n(moved, d.rank, 0.0f);
    for (int i = 0; i < d.plain_dim; ++i, key_up += d.rank) {
      for (int j = 0; j < d.rank; ++j) moved[j] += query[i] * key_up[j];
    }
    std::copy_n(query + d.plain_dim, d.rotated_dim, moved + d.rank);
    Rotate(moved + d.rank, angles);
  }

  template <typename Fn>
  void ForRows(const Fn& fn) {
    compute_->For(x_.rows(), [&](int64_t row, int) { fn(static_cast<int>(row)); });
  }

  void Norm(const Matrix& x, const std::string& weight_name, Matrix& out) {
    NormRows(x.data, weight_name, out.data);
  }

  // Norms every head of every row separately.
  void NormHeads(Matrix& x, const std::string& weight_name) {
    NormRows(x.data, weight_name, x.data);
  }

  // Norms rows as wide as the weight; out may be x.
  void NormRows(const std::vector<float>& x, const std::string& name,
                std::vector<float>& out) const {
    const PhaseScope phase(compute_->clock(), Phase::kPack);
    const std::vector<float>& weight = weights_.At(name);
    const float* const bias = model_.layer_norm ? weights_.At(name + ".bias").data() : nullptr;
    const size_t n = weight.size();
    for (size_t begin = 0; begin < x.size(); begin += n) {
      std::copy_n(x.data() + begin, n, out.data() + begin);
      if (model_.layer_norm) Centre(out.data() + begin, n);
      NormRow(out.data() + begin, weight, static_cast<float>(model_.norm_eps), out.data() + begin);
      for (size_t i = 0; bias != nullptr && i < n; ++i) out[begin + i] += bias[i];
    }
  }

  // Position and page of a chosen row.
  int PositionOf(int row) const { return rows_->position(chosen_[row]); }
  int32_t PageOfRow(int row) const { return rows_->page(chosen_[row]); }
  int SlotOfRow(int row) const { return rows_->slot(chosen_[row]); }
  RopeTables::Angles AnglesOf(int layer, int row) const {
    return ropes_.At(layer, rows_->rope(chosen_[row]), PositionOf(row));
  }

  float* KRow(int layer, int head, int32_t page, int slot) const {
    return reinterpret_cast<float*>(kv_.plane(page, layer) + layout_.KOffset(layer, head)) +
           slot * layout_.shape(layer).key_dim_padded();
  }
  float* VRow(int layer, int head, int32_t page, int slot) const {
    if (layout_.shape(layer).values_in_keys) return KRow(layer, head, page, slot);
    return reinterpret_cast<float*>(kv_.plane(page, layer) + layout_.VOffset(layer, head)) +
           slot * layout_.shape(layer).value_dim;
  }

  void Rotate(float* head, const RopeTables::Angles& angles) const {
    const int half = model_.rotary_dim / 2;
    for (int i = 0; i < half; ++i) {
      const float a = head[i], b = head[i + half];
      head[i] = a * angles.cos[i] - b * angles.sin[i];
      head[i + half] = b * angles.cos[i] + a * angles.sin[i];
    }
  }

  void RotateAndStore(int layer, int row) {
    const int d = model_.head_dim;
    const RopeTables::Angles angles = AnglesOf(layer, row);
    for (int head = 0; head < model_.n_heads; ++head) Rotate(q_.row(row) + head * d, angles);
    for (int head = 0; head < model_.n_kv_heads; ++head) {
      Rotate(k_.row(row) + head * d, angles);
      std::copy_n(k_.row(row) + head * d, d, KRow(layer, head, PageOfRow(row), SlotOfRow(row)));
      std::copy_n(v_.row(row) + head * d, d, VRow(layer, head, PageOfRow(row), SlotOfRow(row)));
    }
  }

  int64_t KeptWidth() const { return model_.n_heads * int64_t{2 + layout_.shape(0).value_dim}; }

  void Clear(Matrix& kept) const {
    const int width = 2 + layout_.shape(0).value_dim;
    std::fill(kept.data.begin(), kept.data.end(), 0.0f);
    for (size_t i = 0; i < kept.data.size(); i += width) {
      kept.data[i] = -std::numeric_limits<float>::infinity();
    }
  }

  // The chosen rows, except those of `but`, attend the visible keys of [first, end).
  void MeetKeys(int layer, int first, int end, const std::vector<bool>* but = nullptr) {
    const PhaseScope phase(compute_->clock(), Phase::kAttention);
    compute_->For(x_.rows() * model_.n_heads, [&](int64_t item, int member) {
      const int row = static_cast<int>(item / model_.n_heads);
      if (but != nullptr && (*but)[chosen_[row]]) return;
      MeetKeys(layer, row, static_cast<int>(item % model_.n_heads), first, end, scores_[member]);
    });
  }

  void MeetKeys(int layer, int row, int head, int first, int end, std::vector<float>& scores) {
    const KvShape& shape = layout_.shape(layer);
    const int kv_head = head / (model_.n_heads / shape.heads);
    const int n_keys = PositionOf(row) + 1, page_tokens = layout_.page_tokens;
    const int window = model_.windows[layer];
    first = std::max(first, window == 0 ? 0 : n_keys - window);
    end = std::min(end, n_keys);
    if (first >= end) return;
    const int32_t* pages = rows_->pages_of_piece(rows_->piece(chosen_[row]));
    const float scale = static_cast<float>(model_.score_scale);
    const float* q = q_.row(row) + head * shape.key_dim;
    scores.resize(n_keys);
    for (int key = first; key < end; ++key) {
      const float* k = KRow(layer, kv_head, pages[key / page_tokens], key % page_tokens);
      scores[key] = SoftCap(scale * Dot(q, k, shape.key_dim), model_.score_cap);
    }
    float* const kept = kept_.row(row) + head * (2 + shape.value_dim);
    float &max = kept[0], &sum = kept[1], *const out = kept + 2;
    const float new_max =
        std::max(max, *std::max_element(scores.begin() + first, scores.begin() + end));
    const float rescale = std::exp(max - new_max);  // 0 before the first keys
    max = new_max;
    sum *= rescale;
    for (int key = first; key < end; ++key) sum += scores[key] = std::exp(scores[key] - new_max);
    for (int i = 0; i < shape.value_dim; ++i) out[i] *= rescale;
    for (int key = first; key < end; ++key) {
      const float* v = VRow(layer, kv_head, pages[key / page_tokens], key % page_tokens);
      for (int i = 0; i < shape.value_dim; ++i) out[i] += scores[key] * v[i];
    }
  }

  // attended_ = the weighted values of the chosen rows, divided by their sums.
  void TakeAttended(int layer) {
    const int n_values = layout_.shape(layer).value_dim;
    ForRows([&](int row) {
      for (int head = 0; head < model_.n_heads; ++head) {
        const float* const kept = kept_.row(row) + head * (2 + n_values);
        float* const out = attended_.row(row) + head * n_values;
        for (int i = 0; i < n_values; ++i) out[i] = kept[2 + i] / kept[1];
      }
    });
  }

  ModelDesc model_;
  KvLayout layout_;
  const StepLimits limits_;
  RopeTables ropes_;
  std::unique_ptr<ComputePool> compute_;
  uint64_t fingerprint_;
  Fp32Weights weights_;
  Fp32Mlp mlp_;
  KvPages kv_;

  Computed step_, slice_;
  int next_layer_ = 0;      // next layer of the step
  SliceProgress progress_;  // progress of the slice

  const StepRows* rows_ = nullptr;
  std::vector<int32_t> chosen_;
  Matrix x_, normed_, branch_, attention_, q_, k_, v_, kept_, attended_;
  Matrix scored_logits_;
  Matrix projected_, values_, query_latents_;  // latent attention only
  std::vector<std::vector<float>> scores_;     // (threads)
};

}  // namespace

absl::StatusOr<std::unique_ptr<Backend>> LoadFp32Backend(const EngineOptions& options,
                                                         LoadedModel loaded,
                                                         void (*progress)(void*, double),
                                                         void* progress_context) {
  ASSIGN_OR_RETURN(const uint64_t fingerprint, loaded.source->Fingerprint(*loaded.pool));
  auto backend = std::make_unique<Fp32Backend>(options, std::move(loaded), fingerprint);
  if (progress != nullptr) progress(progress_context, 1.0);
  return backend;
}

}  // namespace baton
