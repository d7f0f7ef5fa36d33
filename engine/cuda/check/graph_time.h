// Times of short work as a step has it: repeated in a graph, so that no launch of the host counts.
// One thread.
#pragma once

#include <functional>

#include "engine/cuda/check/gpu.h"

namespace baton {

// Returns the microseconds of one run of `submit`, which puts work into the stream, among
// `in_a_row` runs of one graph.
inline double MicrosInGraph(const Stream& stream, int in_a_row,
                            const std::function<void()>& submit) {
  cudaGraph_t graph;
  cudaGraphExec_t executable;
  GPU_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  for (int i = 0; i < in_a_row; ++i) submit();
  GPU_CHECK(cudaStreamEndCapture(stream, &graph));
  GPU_CHECK(cudaGraphInstantiate(&executable, graph, 0));
  const double micros =
      MedianMicros(stream, 5, [&] { GPU_CHECK(cudaGraphLaunch(executable, stream)); });
  GPU_CHECK(cudaGraphExecDestroy(executable));
  GPU_CHECK(cudaGraphDestroy(graph));
  return micros / in_a_row;
}

}  // namespace baton
