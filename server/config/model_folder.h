// Finds the folder or file of the model that the user names. Start of a process, one thread.
#pragma once

#include <string>

#include "common/status.h"
#include "server/api/model_config.h"

namespace baton {

// Home directory from the password database; empty when there is none.
std::string HomeFolder();

// The hub's cache: model.hf_cache, or the hub's own place in the home directory.
std::string HubCacheFolder(const ModelConfig& model);

// The models/demo folder: beside the installed program, else in the source tree. NotFound: in
// neither.
absl::StatusOr<std::string> DemoFolder();

// Sets model->path to an absolute folder with a config.json (or a file, or random:<absolute file>),
// and model->name if it is empty. Takes as path a folder, a GGUF file, a hub id in the local
// Hugging Face cache (org/name, or org/name@revision), or random:<config.json>. Nothing is
// downloaded here (baton pull). InvalidArgument: the path is empty. NotFound: there is no such
// model; the error says which places were searched and what to run or change.
absl::Status ResolveModel(ModelConfig* model);

}  // namespace baton
