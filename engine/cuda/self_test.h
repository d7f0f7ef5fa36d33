// Test of a GPU when a model is loaded, before anything is served: kernels of products beside
// mma.sync on the model's own weights, rows of the attention alone beside the same rows in a chunk.
// Bits that differ break the promise, so such a GPU is refused. Some hundredths of a second.
//
// The device is the calling thread's.
#pragma once

#include <string>

#include <cuda_runtime_api.h>

#include "engine/cuda/model_view.h"

namespace baton {

// fault: what differs; empty: nothing. The error is one of memory or of a launch.
cudaError_t TestKernels(const ModelView& view, std::string* fault);

}  // namespace baton
