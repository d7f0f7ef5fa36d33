// Makes tensor maps. The driver's function is found by the runtime, so that nothing links the
// driver. Valid while a stream is captured: it only computes. Any thread.
#pragma once

#include <cstdint>
#include <cstring>

#include <cudaTypedefs.h>
#include <cuda_runtime_api.h>

#include "engine/cuda/tensor_map.h"

namespace baton {

// A matrix of rows of k bf16, `stride` values from one row to the next. Its address is a multiple
// of 16, `stride` of 8, k of 64.
struct MappedMatrix {
  const uint16_t* values;
  int rows;
  int k;
  int stride;
};

inline PFN_cuTensorMapEncodeTiled_v12000 TensorMapEncoder() {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult result;
  const cudaError_t error = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function,
                                                             12000, cudaEnableDefault, &result);
  if (error != cudaSuccess || result != cudaDriverEntryPointSuccess) return nullptr;
  return reinterpret_cast<PFN_cuTensorMapEncodeTiled_v12000>(function);
}

// The matrix as (k / 64, rows, 64), of which a box has `columns` times `rows` times 64 values. In
// shared memory each column of a box is a tile as SwizzledTile describes it, if its address is a
// multiple of 1024. With one column, k is told as one dimension: boxes begin anywhere.
inline cudaError_t EncodeBoxes(const MappedMatrix& matrix, int rows, int columns, TensorMap* map) {
  static const PFN_cuTensorMapEncodeTiled_v12000 encode = TensorMapEncoder();
  if (encode == nullptr) return cudaErrorNotSupported;
  const bool is_flat = columns == 1;
  const cuuint64_t row_bytes = static_cast<cuuint64_t>(matrix.stride) * 2;
  const cuuint64_t n_rows = static_cast<cuuint64_t>(matrix.rows);
  const cuuint64_t sizes[3] = {is_flat ? static_cast<cuuint64_t>(matrix.k) : 64, n_rows,
                               static_cast<cuuint64_t>(matrix.k / 64)};
  const cuuint64_t strides[2] = {row_bytes, 128};
  const cuuint32_t box[3] = {64, static_cast<cuuint32_t>(rows), static_cast<cuuint32_t>(columns)};
  const cuuint32_t steps[3] = {1, 1, 1};
  CUtensorMap encoded;
  const CUresult result =
      encode(&encoded, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, is_flat ? 2 : 3,
             const_cast<uint16_t*>(matrix.values), sizes, strides, box, steps,
             CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
             CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) return cudaErrorInvalidValue;
  static_assert(sizeof encoded == sizeof *map);
  std::memcpy(map, &encoded, sizeof *map);
  return cudaSuccess;
}

}  // namespace baton
