// Starts the kernels of attention_chunk.cuh.
#include "engine/cuda/attention_chunk.cuh"

#include "engine/cuda/attention_chunk.h"

namespace baton {
namespace {

template <int kRow, int kWarps>
cudaError_t Launch(const AttentionPass& pass, int n_tiles, cudaStream_t stream) {
  constexpr int kBytes = kChunkSharedBytes<kRow, kWarps>;
  const cudaError_t error = cudaFuncSetAttribute(
      AttendChunkKernel<kRow, kWarps>, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  if (error != cudaSuccess) return error;
  const dim3 grid(n_tiles, pass.n_kv_heads * pass.head_blocks);
  AttendChunkKernel<kRow, kWarps><<<grid, kWarps * 32, kBytes, stream>>>(pass);
  return cudaGetLastError();
}

}  // namespace

cudaError_t AttendChunks(const AttentionPass& pass, int row, int n_tiles, cudaStream_t stream) {
  if (pass.chunk_rows == 64)
    return row == 64 ? Launch<64, 4>(pass, n_tiles, stream) : Launch<128, 4>(pass, n_tiles, stream);
  return row == 64 ? Launch<64, 8>(pass, n_tiles, stream) : Launch<128, 8>(pass, n_tiles, stream);
}

std::vector<KernelLaunch> ChunkLaunches() {
  return {{"AttendChunkKernel<64, 4>", 128, kChunkSharedBytes<64, 4>},
          {"AttendChunkKernel<64, 8>", 256, kChunkSharedBytes<64, 8>},
          {"AttendChunkKernel<128, 4>", 128, kChunkSharedBytes<128, 4>},
          {"AttendChunkKernel<128, 8>", 256, kChunkSharedBytes<128, 8>}};
}

}  // namespace baton
