// What the quantization_config of a config.json says: how the quantised tensors of the checkpoint
// store their values. Which tensors are quantised, the tensors themselves say (a module that is
// not has an ordinary "weight"), so lists of modules to quantise or to leave out are not needed.
// How activations or the KV cache were to be quantised is not followed: the engine computes in its
// own precision.
// Sources of the fields: github.com/huggingface/transformers
// src/transformers/utils/quantization_config.py; github.com/ModelCloud/GPTQModel and
// github.com/casper-hansen/AutoAWQ, quantize configs; github.com/vllm-project/compressed-tensors
// src/compressed_tensors/quantization/quant_{config,scheme,args}.py.
#pragma once

#include <boost/json/fwd.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "common/status.h"

namespace baton {

// How the codes of a tensor lie; quantized_tensor.h has the bits.
enum class CodeLayout {
  kGptq,    // int32 words of codes along the inputs, transposed
  kAwq,     // int32 words of 4-bit codes along the outputs, interleaved, transposed
  kPacked,  // int32 words of codes along the inputs
  kInt8,    // an int8 each
  kFp8,     // an e4m3 floating point number each
};

// One way to store a matrix [outputs, inputs]: codes, and a scale for every `block_rows` outputs
// and `group` inputs.
struct QuantScheme {
  CodeLayout layout = CodeLayout::kGptq;
  int bits = 4;
  int64_t block_rows = 1;  // 0: all
  int64_t group = 0;       // 0: all
  bool has_zeros = false;  // zero points are stored
  bool zeros_less_one = false;
  bool needs_group_index = false;  // the group of each input is stored (activation order)
};

struct QuantizationDesc {
  // Any of these; empty: not quantised. The tensors tell several apart.
  std::vector<QuantScheme> schemes;
};

// Of a whole config.json: quantization_config, or compression_config as older checkpoints call it.
// Errors name `origin`, field, value and what is supported.
absl::StatusOr<QuantizationDesc> ReadQuantization(const boost::json::object& config,
                                                  const std::string& origin);

}  // namespace baton
