// How a kernel is started: what its object file does not say, for the table of resources
// (engine/cuda/resources.txt).
#pragma once

namespace baton {

struct KernelLaunch {
  const char* kernel;  // as in "GemmTmaWgmmaKernel<2, 256>"
  int threads;         // of a block
  int shared_bytes;    // dynamic, of a block
};

}  // namespace baton
