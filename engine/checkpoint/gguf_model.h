// What the metadata of a GGUF file say of a model: the fields of a config.json by other names, and
// a few that only the tensors tell. What would change the computation and is not built is refused
// by its key or tensor, so a file that is served computes what it was made for. Source of the keys:
// github.com/ggml-org/ggml docs/gguf.md, github.com/ggml-org/llama.cpp gguf-py/gguf/constants.py.
#pragma once

#include <string>

#include "common/status.h"
#include "engine/checkpoint/gguf.h"
#include "engine/model/model_desc.h"

namespace baton {

// "llama, qwen2, qwen3"
std::string SupportedGgufArchitectures();

// Errors name file, key or tensor, and what is supported.
absl::StatusOr<ModelDesc> DescribeGguf(const GgufFile& file);
absl::StatusOr<ModelDesc> DescribeGgufFile(const std::string& path);

}  // namespace baton
