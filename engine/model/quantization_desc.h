// The quantization_config of a config.json: how the quantised tensors of the checkpoint store their
// values. The tensors themselves show which of them are quantised (other modules have an ordinary
// "weight"), so lists of modules to quantise or to leave out are not read. Settings for quantised
// activations or KV cache are ignored: the engine computes in its own precision. Plain values; the
// function is pure, any thread.
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

// Order of a tensor's codes; quantized_tensor.h describes the bits.
enum class CodeLayout {
  kGptq,    // int32 words of codes along the inputs, transposed
  kAwq,     // int32 words of 4-bit codes along the outputs, interleaved, transposed
  kPacked,  // int32 words of codes along the inputs
  kInt8,    // one int8 per code
  kFp8,     // one e4m3 floating point number per code
};

// One way to store a matrix [outputs, inputs]: codes, and a scale for every `block_rows` outputs
// and `group` inputs.
struct QuantScheme {
  CodeLayout layout = CodeLayout::kGptq;
  int bits = 4;
  int64_t block_rows = 1;  // outputs of one scale; 0: all
  int64_t group = 0;       // inputs of one scale; 0: all
  bool has_zeros = false;  // zero points are stored
  bool zeros_less_one = false;
  bool needs_group_index = false;  // the group of each input is stored (activation order)
};

struct QuantizationDesc {
  // Any of these schemes may occur (the tensors show which); empty: not quantised.
  std::vector<QuantScheme> schemes;
};

// Reads quantization_config of a whole config.json (compression_config in older checkpoints).
// InvalidArgument names `origin`, field, value and what is supported.
absl::StatusOr<QuantizationDesc> ReadQuantization(const boost::json::object& config,
                                                  const std::string& origin);

}  // namespace baton
