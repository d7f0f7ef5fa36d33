// Reads the description of a model from the metadata of a GGUF file: the fields of a config.json
// under other names, and a few facts that only the tensors show. A key or tensor that would change
// the computation and is not supported is refused by name, so a file that is served computes what
// it was made for (docs/MODELS.md). Source of the keys: github.com/ggml-org/ggml docs/gguf.md,
// github.com/ggml-org/llama.cpp gguf-py/gguf/constants.py. Pure functions, any thread.
#pragma once

#include <string>

#include "common/status.h"
#include "engine/checkpoint/gguf.h"
#include "engine/model/model_desc.h"

namespace baton {

// "llama, qwen2, qwen3"
std::string SupportedGgufArchitectures();

// The result does not point into the file. InvalidArgument names file, key or tensor, and what is
// supported.
absl::StatusOr<ModelDesc> DescribeGguf(const GgufFile& file);
// Opens the file too: also the errors of GgufFile::Open.
absl::StatusOr<ModelDesc> DescribeGgufFile(const std::string& path);

}  // namespace baton
