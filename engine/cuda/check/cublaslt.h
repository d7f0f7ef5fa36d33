// The part of cuBLASLt that the check uses, loaded on demand: its header is only in a wheel of 421
// MB, and a machine without it must do. Numbers are those of cuBLASLt 13 (cublasLt.h); another
// major version is refused. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <cuda_runtime_api.h>

#include "engine/cuda/gemm.h"

namespace baton {

// An algorithm as the library describes it.
struct LtAlgorithm {
  uint64_t data[8] = {};  // cublasLtMatmulAlgo_t
  size_t workspace_bytes = 0;
  int32_t id = 0;
  uint32_t tile = 0;
  uint32_t stages = 0;
  int32_t split_k = 0;     // raw: 1 is none, -2 is stream-K
  uint32_t reduction = 0;  // 0 is none
  uint32_t swizzle = 0;
  uint32_t custom = 0;
  uint16_t inner_shape = 0;
  uint16_t cluster = 0;
  uint64_t implementation = 0;

  std::string Description() const;
};

class CublasLt {
 public:
  // Returns null, and why in `reason`.
  static std::unique_ptr<CublasLt> Load(const std::string& library_dir, std::string* reason);
  ~CublasLt();
  CublasLt(const CublasLt&) = delete;
  CublasLt& operator=(const CublasLt&) = delete;

  size_t version() const { return version_; }  // 130100 for 13.1.0

  // Returns what its heuristic names first, at most `max_count`, without any preference: asked for
  // certain implementations it names none that is made for Hopper.
  std::vector<LtAlgorithm> Algorithms(GemmShape shape, bool is_output_bf16, int max_count);

  // C = A * B^T into fp32 or bf16, as GemmByMma has it. False: the library refused.
  bool Multiply(const LtAlgorithm& algorithm, const uint16_t* a, const uint16_t* b, void* c,
                GemmShape shape, bool is_output_bf16, cudaStream_t stream);

 private:
  struct Functions;
  struct Problem;

  CublasLt();

  std::unique_ptr<Functions> functions_;
  size_t version_ = 0;
  void* handle_ = nullptr;
  void* workspace_ = nullptr;
};

}  // namespace baton
