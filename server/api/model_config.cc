#include "server/api/model_config.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

namespace baton {

std::vector<std::string> ServedNames(const std::string& name) {
  std::vector<std::string> names;
  for (const absl::string_view part : absl::StrSplit(name, ',')) {
    std::string one(absl::StripAsciiWhitespace(part));
    if (!one.empty() && std::find(names.begin(), names.end(), one) == names.end())
      names.push_back(std::move(one));
  }
  if (names.empty()) names.emplace_back();
  return names;
}

void DeclareModel(ModelConfig* config, Settings* settings) {
  settings->Text("model.path", &config->path,
                 "folder, .gguf file, hub id in the local cache (org/name, org/name@revision), or "
                 "random:FILE");
  settings->Text("model.name", &config->name,
                 "model id in the API, or several separated by commas, of which the first is in "
                 "answers; empty = name of the folder");
  settings->Text("model.hf_cache", &config->hf_cache,
                 "Hugging Face hub cache; empty = ~/.cache/huggingface/hub");
  settings->Int("model.max_context", &config->max_context, 0, 1 << 24,
                "tokens of prompt and output; 0 = the model's own");
}

}  // namespace baton
