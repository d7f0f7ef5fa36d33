// Configs of models for tests: the oracle's, and a small valid config with one field changed.
#pragma once

#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "engine/model/model_desc.h"

namespace baton {

inline const std::string kModels = std::string(BATON_TEST_DATA) + "/models/";

inline std::string ReadAll(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Returns a valid config with `field` replaced by the JSON text `value`, or removed where it is
// empty.
inline std::string ConfigWith(const std::string& field, const std::string& value) {
  const std::vector<std::pair<std::string, std::string>> good = {
      {"architectures", "[\"LlamaForCausalLM\"]"},
      {"hidden_size", "64"},
      {"num_hidden_layers", "2"},
      {"num_attention_heads", "4"},
      {"num_key_value_heads", "2"},
      {"intermediate_size", "128"},
      {"vocab_size", "100"},
      {"max_position_embeddings", "256"},
  };
  std::string text;
  bool is_replaced = false;
  const auto add = [&](const std::string& name, const std::string& json) {
    if (!json.empty()) text += (text.empty() ? "" : ", ") + ("\"" + name + "\": " + json);
  };
  for (const auto& [name, json] : good) {
    add(name, name == field ? value : json);
    is_replaced |= name == field;
  }
  if (!is_replaced) add(field, value);
  return "{" + text + "}";
}

inline std::string ErrorOf(const std::string& config) {
  const absl::StatusOr<ModelDesc> model = ModelDesc::FromJson(config, "dir/config.json");
  return model.ok() ? "" : std::string(model.status().message());
}

}  // namespace baton
