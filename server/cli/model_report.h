// Reports what is supported of a model's files and what is not, by the name of the architecture,
// field, tensor, type or file: for `baton doctor MODEL`. Reads no values of tensors.
#pragma once

#include <string>
#include <vector>

namespace baton {

struct ModelFinding {
  enum class Mark { kGood, kNote, kBad };
  Mark mark = Mark::kGood;
  std::string name;  // "architecture", "type Q4_K", "tokenizer", ...
  std::string text;
};

// path: any folder or file, or random:<config.json>. Without a bad finding the model can be loaded,
// unless values are not finite or widths not the engine's.
std::vector<ModelFinding> InspectModel(const std::string& path);

}  // namespace baton
