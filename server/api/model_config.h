// Which model is served, and under which name. Plain data; set at the start of the process.
#pragma once

#include <string>
#include <vector>

#include "common/settings.h"

namespace baton {

struct ModelConfig {
  std::string path;      // as given; once resolved (ResolveModel) a folder, a file or random:FILE
  std::string name;      // ids in the API, separated by commas; empty = name of the folder
  std::string hf_cache;  // hub cache folder; empty = ~/.cache/huggingface/hub
  int max_context = 0;   // tokens of prompt and output; 0 = the model's own
};

// The names that model.name lists, each once; the first one is in answers and metrics.
std::vector<std::string> ServedNames(const std::string& name);

// model.path, name, hf_cache, max_context.
void DeclareModel(ModelConfig* config, Settings* settings);

}  // namespace baton
