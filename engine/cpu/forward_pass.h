// The forward pass of numerics v1 on x86. A layer has three parts, project, attend and finish. A
// step runs them one after the other; a slice (backend.h) runs each part over row ranges of its
// choice. Fields of ModelDesc distinguish the families. Results that one part leaves for the next
// are in the caller's RowActivations; all other buffers are shared by all callers. Engine thread;
// allocates nothing.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "engine/cpu/activations.h"
#include "engine/cpu/cpu_model.h"
#include "engine/cpu/experts.h"
#include "engine/cpu/step_rows.h"
#include "engine/kv/kv_pages.h"
#include "engine/threads/phase_clock.h"

namespace baton {

// Rows of a step or slice between two parts of a layer.
struct RowActivations {
  Activations x;  // (rows, hidden) the residual stream
  // (rows, q_width + 2 * kv_width) queries after rope, followed by keys and values; for latent
  // attention (rows, n_heads * key_dim), queries only.
  Activations queries;
  PartialSoftmax kept;  // (rows) slices only: partial softmax over the keys attended so far
  RowActivations From(int row) const {
    return {{x.row(row), x.stride}, {queries.row(row), queries.stride}, kept.From(row)};
  }
};

class ForwardPass {
 public:
  // Requests buffers for parts of at most max_rows rows from the arena. `model` and `arena` outlive
  // this object.
  ForwardPass(CpuModel& model, int max_rows, Arena& arena);
  // Requests the caller's own buffers for `rows` rows from the arena.
  void Ask(RowActivations& to, int rows, Arena& arena) const;
  void Ask(PartialSoftmax& to, int rows, Arena& arena) const;
  // Reserves scratch in the kernels; called once, when the arena is mapped.
  void Reserve();
  // Sets the pages that Project writes and Attend reads; called before the first Project.
  void SetPages(const KvPages& pages) { kv_ = pages; }

  // Embeddings of rows [first, first + n) of a step; a.x begins with row `first`.
  void Embed(const StepRows& step, int first, int n, const RowActivations& a);
  // For rows [first, first + n): norm, queries, keys and values; K and V are written to the pages.
  void Project(int layer, const StepRows& step, int first, int n, const RowActivations& a);
  // Attention of a batch's rows over the keys in `keys`. Results of rows that have finished wait
  // for Finish in rows from first_row on.
  void Attend(int layer, const AttentionBatch& batch, const RowActivations& a, KeyRange keys = {},
              int first_row = 0);
  // Output projection and MLP of n attended rows, added to x.
  void Finish(int layer, int n, const Activations& x);
  // logits (rows, vocab) of these rows of x, ascending. Adjacent ones are computed together.
  void LmHead(std::span<const int32_t> rows, const Activations& x, float* logits);

 private:
  void ProjectLatent(int layer, const StepRows& step, int first, int n, const RowActivations& a);
  void AddAttention(const CpuLayerWeights& w, int n, Epilogue end, const Activations& y);
  void AddMlp(const CpuLayerWeights& w, int n, const Activations& x, const NormWeights& norm,
              Epilogue end, const Activations& y);
  void AddNormedBranch(const NormWeights& w, int n, const Activations& x);
  void RotateAndStore(int layer, const StepRows& step, int row, bf16* qkv);
  void RotateAndStoreLatent(int layer, const StepRows& step, int row, const bf16* queries,
                            bf16* key, bf16* moved);
  void NormHeads(bf16* heads, int n, const NormWeights& w) const;
  RowNorm NormOf(const NormWeights& w) const;
  void CapLogits(int64_t n, float* logits);
  // A linear layer on x, or on the norms of the rows of x.
  void Linear(Phase phase, int n, const Activations& x, const RowNorm& norm, const PackedWeights& w,
              const float* bias, Epilogue epilogue, const Activations& y);
  // Linear layers of latent attention, made by QueriesToLatents or LatentsToValues.
  void RunHeads(std::span<const LinearArgs> heads);
  std::span<const LinearArgs> QueriesToLatents(const LatentWeights& w, int n,
                                               const Activations& moved);
  std::span<const LinearArgs> LatentsToValues(const LatentWeights& w, int n);
  std::span<const LinearArgs> LayersOfHeads(const std::vector<PackedWeights>& heads, int n,
                                            const Activations& x, int64_t x_width,
                                            const Activations& y, int64_t y_width);
  template <typename Fn>
  void ForRows(int n, const Fn& fn);

  CpuModel& m_;
  const ModelDesc& desc_;
  Epilogue activation_;  // activation of the MLP
  int max_rows_;
  KvPages kv_;
  Activations branch_;    // (max_rows, hidden) output of attention or MLP before it is added to x
  Activations attended_;  // (max_rows, attended_width); latent attention: (.., n_heads * rank)
  Activations mlp_;       // (max_rows, intermediate)
  // Latent attention, (max_rows, ...): queries, and keys if they are not stored behind the queries'
  // latents; outputs of the attention; latents of queries and keys.
  Activations projected_, values_, latents_;
  std::vector<LinearArgs> head_layers_;  // scratch for the linear layers of the heads
  std::optional<Experts> experts_;       // only if the model has sparse layers
};

}  // namespace baton
