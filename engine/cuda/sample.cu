// Starts the kernels of sample.cuh.
#include "engine/cuda/sample.cuh"

#include "engine/cuda/dependent_launch.h"
#include "engine/cuda/sample.h"

namespace baton {
namespace {

static_assert(kMaxSampledVocab == kMaxChunks * kChunk);

int ChunksOf(int vocab) { return (vocab + kChunk - 1) / kChunk; }
int WeightBlocksOf(int vocab) { return (vocab + kWeightBlock - 1) / kWeightBlock; }

int64_t RowBytesOf(int vocab) {
  const int64_t bytes = int64_t{kScratchHead} + ChunksOf(vocab) * int64_t{sizeof(TopKey)} +
                        int64_t{2} * WeightBlocksOf(vocab) * int64_t{sizeof(float)};
  return (bytes + 15) / 16 * 16;
}

}  // namespace

int64_t SampleScratchBytes(int max_rows, int vocab) { return max_rows * RowBytesOf(vocab); }

cudaError_t SampleRows(const float* logits, int n_rows, int vocab, const SampleRowArguments* rows,
                       void* scratch, void* results, int32_t* sampled, cudaStream_t stream) {
  constexpr int kMaxRows = 65535;  // of a grid
  if (n_rows < 1 || n_rows > kMaxRows || vocab < 1 || vocab > kMaxSampledVocab ||
      reinterpret_cast<uintptr_t>(scratch) % 16 != 0)
    return cudaErrorInvalidValue;
  const SampleWork work{logits,
                        n_rows,
                        vocab,
                        rows,
                        static_cast<uint8_t*>(scratch),
                        RowBytesOf(vocab),
                        ChunksOf(vocab),
                        WeightBlocksOf(vocab),
                        static_cast<uint64_t*>(results),
                        sampled};
  const DependentGrid chunks{work.n_chunks, kSampleThreads, 0, n_rows};
  const cudaError_t error = LaunchDependent(SampleTopKernel, chunks, stream, work);
  if (error != cudaSuccess) return error;
  return LaunchDependent(SampleTokenKernel, chunks, stream, work);
}

std::vector<KernelLaunch> SampleLaunches() {
  return {{"SampleTopKernel", kSampleThreads, 0}, {"SampleTokenKernel", kSampleThreads, 0}};
}

}  // namespace baton
