// Sampling on the GPU, bit for bit the host's (engine/sampling/sampler.h), of rows that no
// parameter changes and that no filter cuts: temperature alone, or the greatest logit. Functions
// put work into a stream of the calling thread's device and return the launch's error.
#pragma once

#include <cstdint>
#include <vector>

#include <cuda_runtime_api.h>

#include "engine/cuda/kernel_launch.h"
#include "engine/cuda/sample_row.h"

namespace baton {

// logits: (n_rows, vocab) fp32, vocab at most kMaxSampledVocab. results, sampled, scratch: memory
// of the GPU; rows: (n_rows) pinned memory of the host, or of the GPU, that no kernel writes: it is
// read before the kernels before it have ended. sampled: (n_rows) the tokens again, alone; may be
// null.
inline constexpr int kMaxSampledVocab = 1 << 18;
int64_t SampleScratchBytes(int max_rows, int vocab);
cudaError_t SampleRows(const float* logits, int n_rows, int vocab, const SampleRowArguments* rows,
                       void* scratch, void* results, int32_t* sampled, cudaStream_t stream);

std::vector<KernelLaunch> SampleLaunches();

}  // namespace baton
