// Starts the kernels of rows.cuh and heads.cuh.
#include "engine/cuda/heads.cuh"

#include "engine/cuda/dependent_launch.h"
#include "engine/cuda/rows.h"

namespace baton {
namespace {

constexpr int kFewRowsOfNorm = 512;  // up to these, a block each: all of them run at once
// Blocks of heads, one head per thread, up to which all of them run at once.
constexpr int64_t kFewHeadBlocks = 528;
// Dynamic shared memory of a block: at most, and what it may have unasked. Each with room for what
// NormKernel has beside it.
constexpr int64_t kMaxSharedBytes = 227 * 1024 - 64, kFreeSharedBytes = 48 * 1024 - 64;

int64_t BlocksOf(int64_t n, int64_t of_block) { return (n + of_block - 1) / of_block; }

// Bytes of dynamic shared memory of a block: rows, and what its beginning may need to be aligned.
int64_t NormBytes(int n_rows, int width) { return 16 + int64_t{n_rows} * NormPitch(width); }

template <int kRows, bool kIsCentred>
cudaError_t LaunchNorm(const NormWork& work, cudaStream_t stream) {
  const int64_t bytes = NormBytes(kRows, work.width);
  if (bytes > kMaxSharedBytes) return cudaErrorInvalidValue;
  if (bytes > kFreeSharedBytes) {
    const cudaError_t error =
        cudaFuncSetAttribute(NormKernel<kRows, kIsCentred>,
                             cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes));
    if (error != cudaSuccess) return error;
  }
  return LaunchDependent(NormKernel<kRows, kIsCentred>,
                         {BlocksOf(work.n_rows, kRows), kRowThreads, bytes}, stream, work);
}

template <int kRows>
cudaError_t LaunchNorm(const NormWork& work, cudaStream_t stream) {
  return work.bias == nullptr ? LaunchNorm<kRows, false>(work, stream)
                              : LaunchNorm<kRows, true>(work, stream);
}

template <int kHeads, bool kIsNormed>
cudaError_t LaunchRotate(const RotateWork& work, cudaStream_t stream) {
  const int64_t n = work.n_rows * BlocksOf(work.n_heads + 2 * work.n_kv_heads, kHeads);
  return LaunchDependent(RotatePiecesKernel<kHeads, kIsNormed>,
                         {BlocksOf(n, kBlockGroups), kRowThreads}, stream, work);
}

bool IsAligned(const void* pointer, size_t bytes) {
  return reinterpret_cast<uintptr_t>(pointer) % bytes == 0;
}
bool IsGood(BfRows rows) { return rows.stride % 64 == 0 && IsAligned(rows.data, 16); }

}  // namespace

cudaError_t PrepareRows(const int32_t* block, int n_rows, const int32_t* sampled, int vocab,
                        StepRowsView rows, cudaStream_t stream) {
  if (n_rows < 1) return cudaErrorInvalidValue;
  return LaunchDependent(PrepareRowsKernel, {BlocksOf(n_rows, kRowThreads), kRowThreads}, stream,
                         block, n_rows, sampled, vocab, rows);
}

cudaError_t Embed(const int32_t* tokens, int n_rows, const uint16_t* table, int width, float scale,
                  BfRows x, cudaStream_t stream) {
  if (n_rows < 1 || width < 1 || width > x.stride || !IsGood(x) || !IsAligned(table, 16))
    return cudaErrorInvalidValue;
  const int64_t n = int64_t{n_rows} * (x.stride / kPieceValues);
  return LaunchDependent(EmbedKernel, {BlocksOf(n, kRowThreads), kRowThreads}, stream, tokens,
                         n_rows, table, width, scale, x.data, x.stride);
}

cudaError_t NormGathered(BfRows x, const int32_t* rows, int n_rows, const NormArguments& norm,
                         BfRows out, cudaStream_t stream) {
  if (n_rows < 1 || norm.width < 1 || norm.width > x.stride || norm.width > out.stride ||
      !IsGood(x) || !IsGood(out) || !IsAligned(norm.weight, 16) || !IsAligned(norm.bias, 16))
    return cudaErrorInvalidValue;
  const NormWork work{x.data,      x.stride,  rows,     n_rows,   norm.width, NormPitch(norm.width),
                      norm.weight, norm.bias, norm.eps, out.data, out.stride};
  const bool is_few = n_rows <= kFewRowsOfNorm || NormBytes(2, norm.width) > kMaxSharedBytes;
  return is_few ? LaunchNorm<1>(work, stream) : LaunchNorm<2>(work, stream);
}

cudaError_t Norm(BfRows x, int n_rows, const NormArguments& norm, BfRows out, cudaStream_t stream) {
  return NormGathered(x, nullptr, n_rows, norm, out, stream);
}

cudaError_t Add(BfRows y, int n_rows, int width, BfRows x, cudaStream_t stream) {
  if (n_rows < 1 || width < 1 || width > x.stride || width > y.stride || !IsGood(x) || !IsGood(y))
    return cudaErrorInvalidValue;
  const int64_t n = int64_t{n_rows} * BlocksOf(width, kPieceValues);
  return LaunchDependent(AddKernel, {BlocksOf(n, kRowThreads), kRowThreads}, stream, y.data,
                         y.stride, n_rows, width, x.data, x.stride);
}

cudaError_t RotateAndStore(const int32_t* block, const int32_t* pieces, int from, int to,
                           BfRows qkv, const RotateShape& shape, const RotateArguments& arguments,
                           const KvPlaneView& kv, BfRows q, cudaStream_t stream) {
  const int n_heads = shape.n_heads + 2 * shape.n_kv_heads;
  if (to <= from || shape.n_heads < 1 || shape.n_kv_heads < 1 || shape.head_dim < 1 ||
      shape.row % 64 != 0 || shape.row < shape.head_dim || shape.rotary_dim > shape.head_dim ||
      shape.rotary_dim % 2 != 0 || kv.page_tokens < 1 || qkv.stride < n_heads * shape.head_dim ||
      q.stride < shape.n_heads * shape.row || !IsGood(qkv) || !IsGood(q) ||
      !IsAligned(kv.base, 16) || kv.page_stride % 16 != 0)
    return cudaErrorInvalidValue;
  for (const float* table :
       {arguments.cos[0], arguments.cos[1], arguments.sin[0], arguments.sin[1]})
    if (!IsAligned(table, 16)) return cudaErrorInvalidValue;
  const RotateWork work{block,
                        pieces,
                        from,
                        to - from,
                        qkv.data,
                        qkv.stride,
                        q.data,
                        q.stride,
                        shape.n_heads,
                        shape.n_kv_heads,
                        shape.head_dim,
                        shape.rotary_dim,
                        shape.row,
                        {arguments.cos[0], arguments.cos[1]},
                        {arguments.sin[0], arguments.sin[1]},
                        arguments.q_norm,
                        arguments.k_norm,
                        arguments.eps,
                        kv.base,
                        kv.page_stride,
                        kv.page_tokens};
  const bool is_normed = arguments.q_norm != nullptr || arguments.k_norm != nullptr;
  if (shape.head_dim % kPieceValues != 0 || shape.rotary_dim % (2 * kPieceValues) != 0 ||
      !IsAligned(arguments.q_norm, 16) || !IsAligned(arguments.k_norm, 16)) {
    const int64_t n = int64_t{to - from} * n_heads;
    return LaunchDependent(RotateKernel, {BlocksOf(n, kBlockHeads), kRowThreads}, stream, work);
  }
  if (BlocksOf(int64_t{to - from} * n_heads, kBlockGroups) <= kFewHeadBlocks)
    return is_normed ? LaunchRotate<1, true>(work, stream) : LaunchRotate<1, false>(work, stream);
  return is_normed ? LaunchRotate<4, true>(work, stream) : LaunchRotate<4, false>(work, stream);
}

cudaError_t FinishLogits(float* logits, int64_t n, float cap, cudaStream_t stream) {
  if (n < 1) return cudaErrorInvalidValue;
  return LaunchDependent(FinishLogitsKernel,
                         {BlocksOf(n, kRowThreads * kFinishedOfThread), kRowThreads}, stream,
                         logits, n, cap);
}

std::vector<KernelLaunch> RowLaunches() {
  constexpr int kWidest = 16384;  // of the models that are served: an example
  const int few_bytes = static_cast<int>(NormBytes(1, kWidest));
  const int many_bytes = static_cast<int>(NormBytes(2, kWidest));
  return {{"PrepareRowsKernel", kRowThreads, 0},
          {"EmbedKernel", kRowThreads, 0},
          {"AddKernel", kRowThreads, 0},
          {"NormKernel<1, false>", kRowThreads, few_bytes},
          {"NormKernel<1, true>", kRowThreads, few_bytes},
          {"NormKernel<2, false>", kRowThreads, many_bytes},
          {"NormKernel<2, true>", kRowThreads, many_bytes},
          {"RotateKernel", kRowThreads, 0},
          {"RotatePiecesKernel<1, false>", kRowThreads, 0},
          {"RotatePiecesKernel<1, true>", kRowThreads, 0},
          {"RotatePiecesKernel<4, false>", kRowThreads, 0},
          {"RotatePiecesKernel<4, true>", kRowThreads, 0},
          {"FinishLogitsKernel", kRowThreads, 0}};
}

}  // namespace baton
