// What the name of a model stands for, once it is resolved: the one place that knows the forms.
// Pure but for a look at the file system: any thread.
#pragma once

#include <string>

namespace baton {

enum class ModelForm {
  kFolder,    // in Hugging Face layout
  kGgufFile,  // one file with everything
  kRandom,    // a config.json alone: weights are drawn
};

struct ModelPath {
  ModelForm form = ModelForm::kFolder;
  std::string path;  // the folder, the GGUF file or the config.json
};

// "random:<config.json>", a file that exists (GGUF), else a folder, whether it exists or not.
ModelPath ParseModelPath(const std::string& model);

// The name of the model whose config.json that is.
std::string RandomModelName(const std::string& config);

}  // namespace baton
