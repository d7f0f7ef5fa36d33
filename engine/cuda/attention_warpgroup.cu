// Starts the kernels of attention_warpgroup.cuh.
#include "engine/cuda/attention_warpgroup.cuh"

#include "engine/cuda/attention_warpgroup.h"
#include "engine/cuda/dependent_launch.h"
#include "engine/cuda/tensor_map_encoding.h"

namespace baton {
namespace {

// Pages as (page, plane, token, value): planes are the keys of each KV head, then the values. A box
// has 64 values of a plane's tokens.
cudaError_t EncodePages(const AttentionPass& pass, int row, TensorMap* map) {
  static const PFN_cuTensorMapEncodeTiled_v12000 encode = TensorMapEncoder();
  if (encode == nullptr) return cudaErrorNotSupported;
  constexpr cuuint64_t kPages = 1 << 28;  // more than there are: nobody asks for those beyond
  const cuuint64_t page_tokens = cuuint64_t{1} << pass.page_shift;
  const cuuint64_t row_bytes = static_cast<cuuint64_t>(row) * 2;
  const cuuint64_t sizes[4] = {static_cast<cuuint64_t>(row), page_tokens,
                               static_cast<cuuint64_t>(pass.n_kv_heads) * 2, kPages};
  const cuuint64_t strides[3] = {row_bytes, row_bytes * page_tokens,
                                 static_cast<cuuint64_t>(pass.page_stride)};
  const cuuint32_t box[4] = {64, static_cast<cuuint32_t>(page_tokens), 1, 1};
  const cuuint32_t steps[4] = {1, 1, 1, 1};
  CUtensorMap encoded;
  const CUresult result =
      encode(&encoded, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 4, const_cast<uint8_t*>(pass.pages), sizes,
             strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
             CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) return cudaErrorInvalidValue;
  static_assert(sizeof encoded == sizeof *map);
  std::memcpy(map, &encoded, sizeof *map);
  return cudaSuccess;
}

template <int kRow, int kGroups>
cudaError_t Launch(const AttentionPass& pass, int n_tiles, cudaStream_t stream) {
  using Tile = WarpgroupTile<kRow, kGroups>;
  TensorMap map;
  cudaError_t error = EncodePages(pass, kRow, &map);
  if (error == cudaSuccess)
    error = cudaFuncSetAttribute(AttendWgmmaKernel<kRow, kGroups>,
                                 cudaFuncAttributeMaxDynamicSharedMemorySize, Tile::kSharedBytes);
  if (error != cudaSuccess) return error;
  const int n_blocks = pass.n_kv_heads * pass.head_blocks;
  return LaunchDependent(AttendWgmmaKernel<kRow, kGroups>,
                         {n_tiles, Tile::kThreads, Tile::kSharedBytes, n_blocks}, stream, map,
                         pass);
}

template <int kRow, int kGroups>
KernelLaunch LaunchOf(const char* name) {
  using Tile = WarpgroupTile<kRow, kGroups>;
  return {name, Tile::kThreads, Tile::kSharedBytes};
}

}  // namespace

cudaError_t AttendByWarpgroups(const AttentionPass& pass, int row, int n_tiles,
                               cudaStream_t stream) {
  if (pass.chunk_rows == 64)
    return row == 64 ? Launch<64, 1>(pass, n_tiles, stream) : Launch<128, 1>(pass, n_tiles, stream);
  return row == 64 ? Launch<64, 2>(pass, n_tiles, stream) : Launch<128, 2>(pass, n_tiles, stream);
}

std::vector<KernelLaunch> WarpgroupLaunches() {
  return {LaunchOf<64, 1>("AttendWgmmaKernel<64, 1>"), LaunchOf<64, 2>("AttendWgmmaKernel<64, 2>"),
          LaunchOf<128, 1>("AttendWgmmaKernel<128, 1>"),
          LaunchOf<128, 2>("AttendWgmmaKernel<128, 2>")};
}

}  // namespace baton
