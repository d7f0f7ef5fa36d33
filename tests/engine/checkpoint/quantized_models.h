// A small llama model stored in every quantised format, and the same model unquantised.
#pragma once

#include <catch2/catch.hpp>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tests/engine/checkpoint/quantized_checkpoint.h"

namespace baton {

// Sizes that groups of 64, blocks of 128 and tiles do not all divide.
inline const std::string kModel = R"(
  "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 192,
  "num_hidden_layers": 2, "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 32,
  "intermediate_size": 320, "vocab_size": 160, "max_position_embeddings": 256,
  "tie_word_embeddings": false)";

inline std::string ConfigWith(const std::string& quantization) {
  return "{" + kModel +
         (quantization.empty() ? "" : ",\n\"quantization_config\": " + quantization) + "}";
}

// A way to store a matrix, and its entry in config.json.
struct Format {
  std::string name;
  std::string config;  // quantization_config
  GridShape grid;
  std::function<void(const std::string& module, const Grid& grid, FileTensors& out)> add;
  bool is_fp8 = false;
};

inline std::string Gptq(int bits, int64_t group, const std::string& more = "") {
  return absl::StrFormat(R"({"quant_method": "gptq", "bits": %d, "group_size": %d%s})", bits, group,
                         more);
}

inline std::string CompressedTensors(const std::string& format, const std::string& weights) {
  return absl::StrFormat(
      R"({"quant_method": "compressed-tensors", "format": "%s", "ignore": ["lm_head"],
          "kv_cache_scheme": null, "quantization_status": "compressed", "config_groups": {"group_0":
          {"targets": ["Linear"], "input_activations": null, "weights": {%s}}}})",
      format, weights);
}

inline std::vector<Format> AllFormats() {
  const auto gptq = [](bool is_v1) {
    return [is_v1](const std::string& module, const Grid& grid, FileTensors& out) {
      AddGptq(module, grid, is_v1, out);
    };
  };
  const auto fp8 = [](const std::string& scale) {
    return [scale](const std::string& module, const Grid& grid, FileTensors& out) {
      AddFp8(module, grid, scale, out);
    };
  };
  const auto shape = [](int bits, int64_t block_rows, int64_t group, bool is_signed, bool has_zeros,
                        bool has_index, const std::string& scale_dtype) {
    return GridShape{bits, block_rows, group, is_signed, has_zeros, has_index, scale_dtype};
  };
  const std::string int4 = R"("num_bits": 4, "type": "int", )", int8 = R"("num_bits": 8, )";
  const std::string fp8_weights = R"("num_bits": 8, "type": "float", "symmetric": true, )";
  return {
      {"gptq", Gptq(4, 32), shape(4, 1, 32, false, true, false, "F16"), gptq(true)},
      {"gptq v2", Gptq(4, 64, R"(, "checkpoint_format": "gptq_v2", "sym": false)"),
       shape(4, 1, 64, false, true, false, "F16"), gptq(false)},
      {"gptq 8 bits, one group", Gptq(8, -1, R"(, "sym": true, "checkpoint_format": "gptq")"),
       shape(8, 1, 0, false, true, false, "BF16"), gptq(true)},
      {"gptq 2 bits", Gptq(2, 16), shape(2, 1, 16, false, false, false, "F16"), gptq(true)},
      {"gptq in activation order", Gptq(4, 32, R"(, "desc_act": true, "sym": false)"),
       shape(4, 1, 32, false, true, true, "F16"), gptq(true)},
      {"awq",
       R"({"quant_method": "awq", "bits": 4, "group_size": 64, "version": "GEMM",
           "zero_point": true, "modules_to_not_convert": null})",
       shape(4, 1, 64, false, true, false, "F16"), AddAwq},
      {"awq, one group", R"({"quant_method": "awq", "bits": 4, "group_size": -1})",
       shape(4, 1, 0, false, true, false, "BF16"), AddAwq},
      {"packed int4",
       CompressedTensors("pack-quantized",
                         int4 + R"("symmetric": true, "strategy": "group", "group_size": 32)"),
       shape(4, 1, 32, true, false, false, "BF16"), AddPacked},
      {"packed int4 with zero points",
       CompressedTensors("pack-quantized",
                         int4 + R"("symmetric": false, "strategy": "group", "group_size": 64)"),
       shape(4, 1, 64, true, true, false, "BF16"), AddPacked},
      {"packed int4 in activation order",
       CompressedTensors("pack-quantized", int4 + R"("strategy": "group", "group_size": 32,
                                                     "symmetric": false, "actorder": "group")"),
       shape(4, 1, 32, true, true, true, "F32"), AddPacked},
      {"packed int8", CompressedTensors("pack-quantized", int8 + R"("strategy": "channel")"),
       shape(8, 1, 0, true, false, false, "F16"), AddPacked},
      {"int8 per channel",
       CompressedTensors("int-quantized", int8 + R"("type": "int", "strategy": "channel")"),
       shape(8, 1, 0, true, false, false, "BF16"), AddInt8},
      {"int8 per tensor", CompressedTensors("int-quantized", int8 + R"("strategy": "tensor")"),
       shape(8, 0, 0, true, false, false, "F32"), AddInt8},
      {"int8 in groups with zero points",
       CompressedTensors("naive-quantized",
                         int8 + R"("strategy": "group", "group_size": 16, "symmetric": false)"),
       shape(8, 1, 16, true, true, false, "F32"), AddInt8},
      {"fp8 per tensor",
       CompressedTensors("float-quantized", fp8_weights + R"("strategy": "tensor")"),
       shape(8, 0, 0, true, false, false, "BF16"), fp8("weight_scale"), true},
      {"fp8 per channel",
       CompressedTensors("float-quantized", fp8_weights + R"("strategy": "channel")"),
       shape(8, 1, 0, true, false, false, "F32"), fp8("weight_scale"), true},
      {"fp8 in blocks",
       R"({"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic",
           "weight_block_size": [128, 128]})",
       shape(8, 128, 128, true, false, false, "F32"), fp8("weight_scale_inv"), true},
      {"fp8, one scale", R"({"quant_method": "fp8", "activation_scheme": "static"})",
       shape(8, 0, 0, true, false, false, "F32"), fp8("weight_scale"), true},
  };
}

inline Format FormatCalled(const std::string& name) {
  for (const Format& format : AllFormats()) {
    if (format.name == name) return format;
  }
  FAIL(name);
  return {};
}

inline std::vector<float> ValuesOf(const FileTensor& fp32) {
  std::vector<float> values(fp32.bytes.size() / sizeof(float));
  std::memcpy(values.data(), fp32.bytes.data(), fp32.bytes.size());
  return values;
}

// Returns whether the tensor is a linear layer of the model's layers, except their routers.
inline bool IsLinear(const std::string& name, const FileTensor& tensor) {
  const bool is_of_layer =
      name.find(".layers.") != std::string::npos || name.find(".h.") != std::string::npos;
  return tensor.shape.size() == 2 && is_of_layer && !name.ends_with("gate.weight");
}

// A model with every linear layer except the LM head quantised, and the same values as fp32.
struct Twins {
  FileTensors quantised, plain;
};

inline Twins MakeTwins(const Format& format, FileTensors tensors) {
  Twins twins{tensors, std::move(tensors)};
  uint32_t seed = 1;
  for (auto& [name, tensor] : twins.plain) {
    if (!IsLinear(name, tensor)) continue;
    const auto make = format.is_fp8 ? MakeFp8Grid : MakeGrid;
    const Grid grid = make(ValuesOf(tensor), tensor.shape[0], tensor.shape[1], format.grid, seed++);
    twins.quantised.erase(name);
    format.add(name.substr(0, name.rfind('.')), grid, twins.quantised);
    tensor = Fp32Tensor(tensor.shape, format.is_fp8 ? Fp8Values(grid) : GridValues(grid));
  }
  return twins;
}

inline FileTensors PlainModel() {
  const TempFolder folder;
  folder.Write("c.json", ConfigWith(""));
  return RandomCheckpoint(folder.file("c.json"), 7);
}

}  // namespace baton
