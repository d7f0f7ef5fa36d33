// From what the user calls the model to the folder or file it is.
#pragma once

#include <string>

#include "common/status.h"
#include "server/api/model_config.h"

namespace baton {

// Home directory from the password database; empty when there is none.
std::string HomeFolder();

// The models/demo folder: beside the installed program, else in the source tree.
absl::StatusOr<std::string> DemoFolder();

// Sets model->path to an absolute folder with a config.json (or a file, or random:<absolute file>)
// and model->name when it is empty. A folder, a GGUF file, a hub id in the local Hugging Face cache
// (org/name, or org/name@revision), or random:<config.json>. Nothing is downloaded: errors say
// where was looked and what to run or change.
absl::Status ResolveModel(ModelConfig* model);

}  // namespace baton
