// Tells the form of a resolved model name: the one place that knows the forms. Reads nothing but
// the file system's directory entries: any thread.
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

// Returns "random:<config>", which ParseModelPath reads back. config: path of a config.json.
std::string RandomModelName(const std::string& config);

}  // namespace baton
