#include "engine/cuda/step_model.h"

#include <algorithm>

#include "engine/cuda/gpu_error.h"

namespace baton {
namespace {

BfRows From(BfRows rows, int first) {
  return {rows.data + int64_t{first} * rows.stride, rows.stride};
}

GemmOutput ToBf16(BfRows to, const float* bias) {
  return {.end = GemmEnd::kBf16, .bf16 = to.data, .stride = to.stride, .bias = bias};
}
GemmOutput AddTo(BfRows x, const float* bias) {
  return {.end = GemmEnd::kAdd, .bf16 = x.data, .stride = x.stride, .bias = bias};
}

}  // namespace

cudaError_t StepModel::Create(const ModelView& view, std::unique_ptr<StepModel>* made) {
  std::unique_ptr<StepModel> model(new StepModel(view));
  RETURN_IF_GPU_ERROR(model->Reserve());
  *made = std::move(model);
  return cudaSuccess;
}

StepModel::StepModel(const ModelView& view)
    : view_(view), layers_(view.layers, view.layers + view.n_layers) {
  view_.layers = nullptr;
}

StepModel::~StepModel() {
  for (void* const memory : memory_) cudaFree(memory);
}

template <typename T>
cudaError_t StepModel::Allocate(int64_t n, T** memory) {
  void* made = nullptr;
  RETURN_IF_GPU_ERROR(cudaMalloc(&made, static_cast<size_t>(n) * sizeof(T)));
  memory_.push_back(made);
  bytes_ += n * static_cast<int64_t>(sizeof(T));
  *memory = static_cast<T*>(made);
  // Zeros lie behind a row's values, and stay there.
  return cudaMemset(made, 0, static_cast<size_t>(n) * sizeof(T));
}

cudaError_t StepModel::Ask(int rows, Block* block) {
  block->x.stride = view_.hidden_stride();
  block->q.stride = view_.n_heads * view_.row();
  RETURN_IF_GPU_ERROR(Allocate(int64_t{rows} * block->x.stride, &block->x.data));
  RETURN_IF_GPU_ERROR(Allocate(int64_t{rows} * block->q.stride, &block->q.data));
  RETURN_IF_GPU_ERROR(Allocate(rows, &block->rows.tokens));
  RETURN_IF_GPU_ERROR(Allocate(rows, &block->rows.pieces));
  RETURN_IF_GPU_ERROR(Allocate(rows, &block->rows.logit_rows));
  RETURN_IF_GPU_ERROR(Allocate(rows, &block->rows.scored_rows));
  block->work.max_rows = view_.max_step_rows;
  block->work.bytes = AttentionWorkBytes(view_.max_step_rows, ShapeOf(layers_.front()));
  uint8_t* work = nullptr;
  RETURN_IF_GPU_ERROR(Allocate(block->work.bytes, &work));
  block->work.memory = work;
  return cudaSuccess;
}

cudaError_t StepModel::Reserve() {
  const int rows = view_.max_step_rows;
  RETURN_IF_GPU_ERROR(Ask(rows, &step_));
  RETURN_IF_GPU_ERROR(Ask(view_.max_slice_rows, &slice_));
  const auto ask = [&](int width, BfRows* to) {
    to->stride = (width + 63) / 64 * 64;
    return Allocate(int64_t{rows} * to->stride, &to->data);
  };
  RETURN_IF_GPU_ERROR(ask(view_.hidden, &normed_));
  RETURN_IF_GPU_ERROR(ask(view_.qkv_width(), &qkv_));
  RETURN_IF_GPU_ERROR(ask(view_.n_heads * view_.row(), &attended_));
  RETURN_IF_GPU_ERROR(ask(view_.intermediate, &mlp_));
  if (view_.parallel_mlp != 0 || view_.output_norms != 0)
    RETURN_IF_GPU_ERROR(ask(view_.hidden, &branch_));
  return cudaDeviceSynchronize();
}

AttentionShape StepModel::ShapeOf(const LayerView& layer) const {
  return {view_.n_heads, view_.n_kv_heads, view_.row(), layer.window, view_.score_scale};
}

KvPlaneView StepModel::PlaneOf(const Block& block, const LayerView& layer) const {
  return {block.kv + layer.plane_offset, view_.page_bytes, view_.page_tokens};
}

NormArguments StepModel::Of(const NormView& norm) const {
  return {norm.weight, norm.bias, view_.norm_eps, view_.hidden};
}

// --- parts of a layer

cudaError_t StepModel::EmbedRows(const Block& block, int from, int to, cudaStream_t stream) {
  return Embed(block.rows.tokens + from, to - from, view_.embedding, view_.hidden,
               view_.embedding_scale, From(block.x, from), stream);
}

cudaError_t StepModel::Project(const Block& block, int layer, int from, int to,
                               cudaStream_t stream) {
  const LayerView& w = layers_[static_cast<size_t>(layer)];
  const int n = to - from;
  RETURN_IF_GPU_ERROR(Norm(From(block.x, from), n, Of(w.attention_norm), normed_, stream));
  RETURN_IF_GPU_ERROR(Multiply(normed_.data, normed_.stride, w.qkv, ToBf16(qkv_, w.qkv_bias),
                               {n, view_.qkv_width(), view_.hidden_stride()}, stream));
  const RopeView& ropes = view_.ropes[w.ropes];
  const RotateShape shape{view_.n_heads, view_.n_kv_heads, view_.head_dim, view_.rotary_dim,
                          view_.row()};
  const RotateArguments arguments{{ropes.cos[0], ropes.cos[1]},
                                  {ropes.sin[0], ropes.sin[1]},
                                  w.q_norm,
                                  w.k_norm,
                                  view_.norm_eps};
  return RotateAndStore(block.at, block.rows.pieces, from, to, qkv_, shape, arguments,
                        PlaneOf(block, w), From(block.q, from), stream);
}

cudaError_t StepModel::AddMlp(const LayerView& w, BfRows x, int n, const NormView& norm,
                              const GemmOutput& output, cudaStream_t stream) {
  GemmOutput inner{.bf16 = mlp_.data, .stride = mlp_.stride, .bias = w.gate_up_bias};
  inner.end = view_.gate_up_end();
  RETURN_IF_GPU_ERROR(Norm(x, n, Of(norm), normed_, stream));
  RETURN_IF_GPU_ERROR(Multiply(normed_.data, normed_.stride, w.gate_up, inner,
                               {n, view_.gate_up_width(), view_.hidden_stride()}, stream));
  return Multiply(mlp_.data, mlp_.stride, w.down, output, {n, view_.hidden, view_.mlp_stride()},
                  stream);
}

cudaError_t StepModel::AddNormed(const NormView& norm, int n, BfRows x, cudaStream_t stream) {
  RETURN_IF_GPU_ERROR(Norm(branch_, n, Of(norm), branch_, stream));
  return Add(branch_, n, view_.hidden, x, stream);
}

cudaError_t StepModel::Finish(const Block& block, const AttentionRange& range, int layer,
                              cudaStream_t stream) {
  const LayerView& w = layers_[static_cast<size_t>(layer)];
  const int n = range.to - range.from;
  const BfRows x = From(block.x, range.from);
  RETURN_IF_GPU_ERROR(Attend(block.at, range, From(block.q, range.from).data, PlaneOf(block, w),
                             ShapeOf(w), block.work, attended_.data, stream));
  const auto project = [&](const GemmOutput& output) {
    return Multiply(attended_.data, attended_.stride, w.o, output,
                    {n, view_.hidden, attended_.stride}, stream);
  };
  if (view_.parallel_mlp != 0) {
    RETURN_IF_GPU_ERROR(project(ToBf16(branch_, w.o_bias)));
    RETURN_IF_GPU_ERROR(AddMlp(w, x, n, view_.mlp_norm != 0 ? w.mlp_norm : w.attention_norm,
                               AddTo(branch_, w.down_bias), stream));
    return Add(branch_, n, view_.hidden, x, stream);
  }
  if (view_.output_norms != 0) {
    RETURN_IF_GPU_ERROR(project(ToBf16(branch_, w.o_bias)));
    RETURN_IF_GPU_ERROR(AddNormed(w.attention_out_norm, n, x, stream));
    RETURN_IF_GPU_ERROR(AddMlp(w, x, n, w.mlp_norm, ToBf16(branch_, w.down_bias), stream));
    return AddNormed(w.mlp_out_norm, n, x, stream);
  }
  RETURN_IF_GPU_ERROR(project(AddTo(x, w.o_bias)));
  return AddMlp(w, x, n, w.mlp_norm, AddTo(x, w.down_bias), stream);
}

cudaError_t StepModel::Logits(BfRows x, const int32_t* rows, int n, float* logits,
                              cudaStream_t stream) {
  RETURN_IF_GPU_ERROR(NormGathered(x, rows, n, Of(view_.final_norm), normed_, stream));
  RETURN_IF_GPU_ERROR(Multiply(normed_.data, normed_.stride, view_.lm_head,
                               {.end = GemmEnd::kFp32, .fp32 = logits, .stride = view_.vocab},
                               {n, view_.vocab, view_.hidden_stride()}, stream));
  if (view_.logit_cap == 0) return cudaSuccess;
  return FinishLogits(logits, int64_t{n} * view_.vocab, view_.logit_cap, stream);
}

// --- steps

cudaError_t StepModel::Begin(const int32_t* block, const int32_t* sampled, StepCounts counts,
                             uint8_t* kv, cudaStream_t stream) {
  step_.at = block;
  step_.counts = counts;
  step_.kv = kv;
  const AttentionRange all{0, counts.n_rows, counts.n_pieces, counts.n_pieces == counts.n_rows};
  RETURN_IF_GPU_ERROR(PrepareRows(block, counts.n_rows, sampled, view_.vocab, step_.rows, stream));
  RETURN_IF_GPU_ERROR(PrepareAttention(block, all, ShapeOf(layers_.front()), step_.work, stream));
  return EmbedRows(step_, 0, counts.n_rows, stream);
}

cudaError_t StepModel::Layer(int layer, float* logits, cudaStream_t stream) {
  const StepCounts& counts = step_.counts;
  const bool is_last = layer + 1 == view_.n_layers;
  RETURN_IF_GPU_ERROR(Project(step_, layer, 0, counts.n_rows, stream));
  if (is_last && counts.n_logits + counts.n_scored == 0) return cudaSuccess;  // nobody reads it
  const AttentionRange all{0, counts.n_rows, counts.n_pieces, counts.n_pieces == counts.n_rows};
  RETURN_IF_GPU_ERROR(Finish(step_, all, layer, stream));
  if (!is_last || counts.n_logits == 0) return cudaSuccess;
  return Logits(step_.x, step_.rows.logit_rows, counts.n_logits, logits, stream);
}

cudaError_t StepModel::ScoredLogits(int from, int to, float* logits, cudaStream_t stream) {
  return Logits(step_.x, step_.rows.scored_rows + from, to - from, logits, stream);
}

// --- slices

cudaError_t StepModel::BeginSlice(const int32_t* block, StepCounts counts, uint8_t* kv,
                                  cudaStream_t stream) {
  slice_.at = block;
  slice_.counts = counts;
  slice_.kv = kv;
  return PrepareRows(block, counts.n_rows, nullptr, view_.vocab, slice_.rows, stream);
}

cudaError_t StepModel::ProjectSlice(int layer, int from, int to, cudaStream_t stream) {
  if (layer == 0) RETURN_IF_GPU_ERROR(EmbedRows(slice_, from, to, stream));
  return Project(slice_, layer, from, to, stream);
}

cudaError_t StepModel::FinishSlice(int layer, int from, int to, float* logits,
                                   cudaStream_t stream) {
  const AttentionRange part{from, to, slice_.counts.n_pieces, slice_.counts.n_rows == 1};
  RETURN_IF_GPU_ERROR(
      PrepareAttention(slice_.at, part, ShapeOf(layers_.front()), slice_.work, stream));
  RETURN_IF_GPU_ERROR(Finish(slice_, part, layer, stream));
  if (logits == nullptr) return cudaSuccess;
  return Logits(slice_.x, slice_.rows.logit_rows, slice_.counts.n_logits, logits, stream);
}

}  // namespace baton
