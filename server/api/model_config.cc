#include "server/api/model_config.h"

namespace baton {

void DeclareModel(ModelConfig* config, Settings* settings) {
  settings->Text("model.path", &config->path,
                 "folder, .gguf file, hub id in the local cache (org/name, org/name@revision), or "
                 "random:FILE");
  settings->Text("model.name", &config->name, "model id in the API; empty = name of the folder");
  settings->Text("model.hf_cache", &config->hf_cache,
                 "Hugging Face hub cache; empty = ~/.cache/huggingface/hub");
  settings->Int("model.max_context", &config->max_context, 0, 1 << 24,
                "tokens of prompt and output; 0 = the model's own");
}

}  // namespace baton
