#include "engine/cpu/forward_pass.h"

#include <algorithm>

#include "common/check.h"
#include "engine/threads/phase_clock.h"

namespace baton {
namespace {

// Max rows of one element-wise work item: a group of the KV layout, because sixteen tokens share
// its cache lines.
constexpr int kMaxItemRows = 16;

Epilogue ActivationOf(const ModelDesc& desc) {
  if (desc.activation == Activation::kSilu) return Epilogue::kSwiGlu;
  return desc.activation == Activation::kGelu ? Epilogue::kGelu : Epilogue::kGeGlu;
}

}  // namespace

ForwardPass::ForwardPass(CpuModel& model, int max_rows, Arena& arena)
    : m_(model), desc_(model.desc), activation_(ActivationOf(model.desc)), max_rows_(max_rows) {
  const LatentDesc& latent = desc_.latent;
  const bool is_latent = latent.rank > 0;
  if (desc_.parallel_mlp || desc_.output_norms) arena.Ask(branch_, max_rows, desc_.hidden);
  arena.Ask(attended_, max_rows, is_latent ? desc_.n_heads * latent.rank : desc_.attended_width());
  if (is_latent) {
    arena.Ask(projected_, max_rows, desc_.q_width() + latent.key_dim());
    if (latent.query_rank > 0) {
      arena.Ask(latents_, max_rows, latent.query_rank + latent.key_dim());
    }
    arena.Ask(values_, max_rows, desc_.attended_width());
    head_layers_.reserve(static_cast<size_t>(desc_.n_heads));
  }
  arena.Ask(mlp_, max_rows, desc_.intermediate);
  if (desc_.experts.n > 0) experts_.emplace(desc_.experts, desc_.hidden, max_rows, arena);
}

void ForwardPass::Ask(RowActivations& to, int rows, Arena& arena) const {
  arena.Ask(to.x, rows, desc_.hidden);
  arena.Ask(to.queries, rows,
            desc_.latent.rank > 0 ? desc_.n_heads * desc_.latent.key_dim()
                                  : desc_.q_width() + 2 * desc_.kv_width());
}

void ForwardPass::Ask(PartialSoftmax& to, int rows, Arena& arena) const {
  to.n_heads = desc_.n_heads;
  for (int layer = 0; layer < desc_.n_layers; ++layer) {
    to.out_stride = std::max(to.out_stride, to.n_heads * int64_t{m_.layout.shape(layer).value_dim});
  }
  arena.Ask(to.max, rows * to.n_heads);
  arena.Ask(to.sum, rows * to.n_heads);
  arena.Ask(to.out, rows * to.out_stride);
}

void ForwardPass::Reserve() {
  for (const CpuLayerWeights& w : m_.weights.layers) {
    if (!w.experts.experts.empty()) experts_->Reserve(w.experts, *m_.linear, *m_.compute);
    if (desc_.latent.rank == 0) continue;
    m_.linear->Reserve(QueriesToLatents(w.latent, max_rows_, attended_), *m_.compute);
    m_.linear->Reserve(LatentsToValues(w.latent, max_rows_), *m_.compute);
  }
}

// ---- the forward pass ----

void ForwardPass::Embed(const StepRows& step, int first, int n, const RowActivations& a) {
  const PhaseScope phase(m_.compute->clock(), Phase::kEmbed);
  const float scale =
      // A factor of 1 changes nothing.
      Bf16ToFloat(FloatToBf16(static_cast<float>(desc_.embedding_scale)));
  ForRows(n, [&](int row) {
    m_.source->ReadBf16(0, step.token(first + row), 1, a.x.row(row));
    if (scale != 1.0f) m_.elementwise->scale(scale, desc_.hidden, a.x.row(row));
  });
}

void ForwardPass::Project(int layer, const StepRows& step, int first, int n,
                          const RowActivations& a) {
  const CpuLayerWeights& w = m_.weights.layers[layer];
  if (desc_.latent.rank > 0) return ProjectLatent(layer, step, first, n, a);
  Linear(Phase::kQkv, n, a.x, NormOf(w.attention_norm), w.qkv, w.qkv_bias, Epilogue::kBf16,
         a.queries);
  const PhaseScope phase(m_.compute->clock(), Phase::kRope);
  ForRows(n, [&](int row) { RotateAndStore(layer, step, first + row, a.queries.row(row)); });
}

// The absorbed form (latent_desc.h): projects queries to the latent; AddAttention projects the
// results back to the heads' values.
void ForwardPass::ProjectLatent(int layer, const StepRows& step, int first, int n,
                                const RowActivations& a) {
  const CpuLayerWeights& w = m_.weights.layers[layer];
  const int query_rank = desc_.latent.query_rank;
  const Activations& keys = query_rank > 0 ? latents_ : projected_;
  Linear(Phase::kQkv, n, a.x, NormOf(w.attention_norm), w.qkv, nullptr, Epilogue::kBf16, keys);
  if (query_rank > 0) {
    RowNorm norm = NormOf(w.latent.query_norm);
    norm.n = norm.n_padded = query_rank;  // a multiple of 32
    norm.eps = kLatentNormEps;
    Linear(Phase::kQkv, n, latents_, norm, w.latent.query_up, nullptr, Epilogue::kBf16, projected_);
  }
  RunHeads(QueriesToLatents(w.latent, n, a.queries));
  const int first_key = query_rank > 0 ? query_rank : desc_.q_width();
  const PhaseScope phase(m_.compute->clock(), Phase::kRope);
  ForRows(n, [&](int row) {
    RotateAndStoreLatent(layer, step, first + row, projected_.row(row), keys.row(row) + first_key,
                         a.queries.row(row));
  });
}

void ForwardPass::Attend(int layer, const AttentionBatch& batch, const RowActivations& a,
                         KeyRange keys, int first_row) {
  const PhaseScope phase(m_.compute->clock(), Phase::kAttention);
  AttentionArgs args;
  args.batch = &batch.of(m_.layout.planes[layer].has_window);
  args.layout = &m_.layout;
  args.planes = kv_.planes(layer);
  args.layer = layer;
  args.n_heads = desc_.n_heads;
  args.window = desc_.windows[layer];
  args.scale = desc_.score_scale;
  args.soft_cap = desc_.score_cap;
  args.q = a.queries.data;
  args.q_stride = a.queries.stride;
  args.out = attended_.row(first_row);
  args.out_stride = attended_.stride;
  args.keys = keys;
  args.kept = a.kept;
  m_.attention->Run(args, *m_.compute);
}

void ForwardPass::Finish(int layer, int n, const Activations& x) {
  const CpuLayerWeights& w = m_.weights.layers[layer];
  if (desc_.parallel_mlp) {  // x + (attention + MLP), both of the same x
    AddAttention(w, n, Epilogue::kBf16, branch_);
    AddMlp(w, n, x, desc_.mlp_norm ? w.mlp_norm : w.attention_norm, Epilogue::kResidualAdd,
           branch_);
    const PhaseScope phase(m_.compute->clock(), Phase::kPack);
    ForRows(n, [&](int row) { m_.elementwise->add(branch_.row(row), desc_.hidden, x.row(row)); });
  } else if (desc_.output_norms) {  // the outputs of attention and MLP are normed before they are
                                    // added
    AddAttention(w, n, Epilogue::kBf16, branch_);
    AddNormedBranch(w.attention_out_norm, n, x);
    AddMlp(w, n, x, w.mlp_norm, Epilogue::kBf16, branch_);
    AddNormedBranch(w.mlp_out_norm, n, x);
  } else {
    AddAttention(w, n, Epilogue::kResidualAdd, x);
    AddMlp(w, n, x, w.mlp_norm, Epilogue::kResidualAdd, x);
  }
}

// y = or += the output projection of attended_, as `end` says.
void ForwardPass::AddAttention(const CpuLayerWeights& w, int n, Epilogue end,
                               const Activations& y) {
  if (desc_.latent.rank == 0) {
    return Linear(Phase::kOutput, n, attended_, {}, w.o, w.o_bias, end, y);
  }
  RunHeads(LatentsToValues(w.latent, n));
  Linear(Phase::kOutput, n, values_, {}, w.o, nullptr, end, y);
}

// y = or += the layer's MLP of the norms of x, as `end` says. y may be x.
void ForwardPass::AddMlp(const CpuLayerWeights& w, int n, const Activations& x,
                         const NormWeights& norm, Epilogue end, const Activations& y) {
  const RowNorm row_norm = NormOf(norm);
  if (!w.experts.experts.empty()) {
    const PhaseScope phase(m_.compute->clock(), Phase::kExperts);
    const bool add = end == Epilogue::kResidualAdd;
    return experts_->Run(w.experts, x, row_norm, n, add, y, *m_.linear, *m_.compute);
  }
  Linear(Phase::kGateUp, n, x, row_norm, w.gate_up, w.gate_up_bias, activation_, mlp_);
  Linear(Phase::kDown, n, mlp_, {}, w.down, w.down_bias, end, y);
}

void ForwardPass::LmHead(std::span<const int32_t> rows, const Activations& x, float* logits) {
  if (rows.empty()) return;
  const PhaseScope phase(m_.compute->clock(), Phase::kHead);
  LinearArgs args;
  args.x_stride = x.stride;
  args.norm = NormOf(m_.weights.final_norm);
  args.weights = m_.weights.lm_head;
  args.epilogue = Epilogue::kFp32;
  args.y_stride = desc_.vocab;
  for (size_t i = 0, end = 0; i < rows.size(); i = end) {
    do {
      ++end;
    } while (end < rows.size() && rows[end] == rows[end - 1] + 1);
    args.x = x.row(rows[i]);
    args.rows = static_cast<int>(end - i);
    args.y_fp32 = logits + static_cast<int64_t>(i) * desc_.vocab;
    m_.linear->Run(args, *m_.compute);
  }
  if (desc_.logit_cap > 0) CapLogits(static_cast<int64_t>(rows.size()) * desc_.vocab, logits);
}

// ---- pieces of the forward pass ----

template <typename Fn>
void ForwardPass::ForRows(int n, const Fn& fn) {
  // Rows of a batch are shared out evenly.
  const int members = m_.compute->n_threads();
  const int item_rows = std::clamp((n + members - 1) / members, 1, kMaxItemRows);
  m_.compute->For((n + item_rows - 1) / item_rows, [&](int64_t item, int) {
    const int first = static_cast<int>(item) * item_rows;
    for (int row = first; row < std::min(first + item_rows, n); ++row) fn(row);
  });
}

RowNorm ForwardPass::NormOf(const NormWeights& w) const {
  RowNorm norm;
  norm.apply = desc_.layer_norm ? m_.elementwise->apply_layer_norm : m_.elementwise->apply_rms_norm;
  norm.weight = w.weight;
  norm.bias = w.bias;
  norm.n = desc_.hidden;
  norm.n_padded = RoundUp(desc_.hidden, 32);
  norm.eps = static_cast<float>(desc_.norm_eps);
  return norm;
}

void ForwardPass::AddNormedBranch(const NormWeights& w, int n, const Activations& x) {
  const PhaseScope phase(m_.compute->clock(), Phase::kPack);
  const RowNorm norm = NormOf(w);
  ForRows(n, [&](int row) {
    norm.apply(norm, branch_.row(row), branch_.row(row));
    m_.elementwise->add(branch_.row(row), desc_.hidden, x.row(row));
  });
}

void ForwardPass::CapLogits(int64_t n, float* logits) {
  constexpr int64_t kItem = 4096;
  m_.compute->For((n + kItem - 1) / kItem, [&](int64_t item, int) {
    const int64_t first = item * kItem;
    m_.elementwise->soft_cap(static_cast<float>(desc_.logit_cap), std::min(kItem, n - first),
                             logits + first);
  });
}

void ForwardPass::Linear(Phase phase, int n, const Activations& x, const RowNorm& norm,
                         const PackedWeights& w, const float* bias, Epilogue epilogue,
                         const Activations& y) {
  LinearArgs args;
  args.x = x.data;
  args.x_stride = x.stride;
  args.norm = norm;
  args.rows = n;
  args.weights = w;
  args.bias = bias;
  args.epilogue = epilogue;
  args.y = y.data;
  args.y_stride = y.stride;
  if (epilogue == Epilogue::kResidualAdd) {
    args.residual = y.data;
    args.residual_stride = y.stride;
  }
  const PhaseScope scope(m_.compute->clock(), phase);
  m_.linear->Run(args, *m_.compute);
}

void ForwardPass::RunHeads(std::span<const LinearArgs> heads) {
  const PhaseScope phase(m_.compute->clock(), Phase::kLatent);
  m_.linear->RunAll(heads, *m_.compute);
}

std::span<const LinearArgs> ForwardPass::QueriesToLatents(const LatentWeights& w, int n,
                                                          const Activations& moved) {
  const LatentDesc& d = desc_.latent;
  return LayersOfHeads(w.key_up, n, projected_, d.query_dim(), moved, d.key_dim());
}

std::span<const LinearArgs> ForwardPass::LatentsToValues(const LatentWeights& w, int n) {
  const LatentDesc& d = desc_.latent;
  return LayersOfHeads(w.value_up, n, attended_, d.rank, values_, d.value_dim);
}

// Linear layers of all heads: each head's columns, x_width apart in x and y_width in y, by its own
// matrix.
std::span<const LinearArgs> ForwardPass::LayersOfHeads(const std::vector<PackedWeights>& heads,
                                                       int n, const Activations& x, int64_t x_width,
                                                       const Activations& y, int64_t y_width) {
  head_layers_.clear();
  for (const PackedWeights& w : heads) {
    const int64_t head = static_cast<int64_t>(head_layers_.size());
    LinearArgs& args = head_layers_.emplace_back();
    args.x = x.data + head * x_width;
    args.x_stride = x.stride;
    args.rows = n;
    args.weights = w;
    args.y = y.data + head * y_width;
    args.y_stride = y.stride;
  }
  return head_layers_;
}

void ForwardPass::RotateAndStore(int layer, const StepRows& step, int row, bf16* qkv) {
  const CpuLayerWeights& w = m_.weights.layers[layer];
  const int d = desc_.head_dim;
  const RopeTables::Angles angles = m_.ropes.At(layer, step.rope(row), step.position(row));
  bf16* const k = qkv + desc_.q_width();
  const bf16* const v = k + desc_.kv_width();
  if (desc_.qk_norm) {
    NormHeads(qkv, desc_.n_heads, w.q_norm);
    NormHeads(k, desc_.n_kv_heads, w.k_norm);
  }
  for (int head = 0; head < desc_.n_heads + desc_.n_kv_heads; ++head) {  // k follows q
    m_.elementwise->rope(qkv + head * d, desc_.rotary_dim, angles.cos, angles.sin);
  }
  std::byte* const plane = kv_.plane(step.page(row), layer);
  for (int head = 0; head < desc_.n_kv_heads; ++head) {
    m_.elementwise->write_kv(m_.layout, layer, head, k + head * d, v + head * d, plane,
                             step.slot(row));
  }
}

void ForwardPass::RotateAndStoreLatent(int layer, const StepRows& step, int row,
                                       const bf16* queries, bf16* key, bf16* moved) {
  const NormWeights& norm = m_.weights.layers[layer].latent.norm;
  const LatentDesc& d = desc_.latent;
  const RopeTables::Angles angles = m_.ropes.At(layer, step.rope(row), step.position(row));
  for (int head = 0; head < desc_.n_heads; ++head) {
    const bf16* const from = queries + head * d.query_dim() + d.plain_dim;
    bf16* const to = moved + head * d.key_dim() + d.rank;
    std::copy_n(from, d.rotated_dim, to);
    m_.elementwise->rope(to, d.rotated_dim, angles.cos, angles.sin);
  }
  m_.elementwise->rms_norm(key, norm.weight, d.rank, d.rank, kLatentNormEps, key);
  m_.elementwise->rope(key + d.rank, d.rotated_dim, angles.cos, angles.sin);
  m_.elementwise->write_kv(m_.layout, layer, 0, key, nullptr, kv_.plane(step.page(row), layer),
                           step.slot(row));
}

void ForwardPass::NormHeads(bf16* heads, int n, const NormWeights& w) const {
  const int d = desc_.head_dim;
  for (int head = 0; head < n; ++head, heads += d) {
    m_.elementwise->rms_norm(heads, w.weight, d, d, static_cast<float>(desc_.norm_eps), heads);
  }
}

}  // namespace baton
