// Converts a checkpoint with float weights to one with integer weights: `baton quantize`. The
// linear layers become int8 (a scale per output) or int4 (a scale per group of inputs), with
// exactly the integers and scales that --dtype int8 or int4 computes when it packs the original:
// the new checkpoint, loaded with that dtype and group, is the same model bit by bit. Embedding, LM
// head, routers, the matrices between latents and heads, norms and biases stay unchanged.
//
// Format: compressed-tensors (github.com/vllm-project/compressed-tensors), "int-quantized" and
// "pack-quantized", symmetric, scales in fp32. An int4 matrix whose inputs the group does not
// divide is stored in groups of 64 or 32 that share its scales, or stays as it is where even 32
// does not divide its inputs. Runs on the calling thread, with a compute pool of its own.
#pragma once

#include <string>

#include "common/status.h"
#include "engine/cpu/linear/weight_format.h"

namespace baton {

struct QuantizeOptions {
  std::string model;    // folder in Hugging Face layout
  std::string out;      // folder that does not exist yet, or is empty
  WeightFormat format;  // int8 or int4
  int threads = 0;      // 0: as ComputeThreads (step/backend.h)
};

// NotFound: the model or a tensor is missing. InvalidArgument: a GGUF file, a model that is not
// supported, NaN or infinite values. FailedPrecondition: the model is quantised already.
// AlreadyExists: `out` is not empty. Unavailable: `out` cannot be written. After an error `out` may
// hold files, but no weights. progress(progress_context, fraction) runs on the calling thread; may
// be null.
absl::Status QuantizeCheckpoint(const QuantizeOptions& options, void (*progress)(void*, double),
                                void* progress_context);

}  // namespace baton
