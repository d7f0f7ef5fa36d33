// Finds out whether the device that the user named can compute, before weights are read. Any
// thread, one at a time.
#pragma once

#include <string>

#include "common/status.h"

namespace baton {

// device: "cpu", "cuda" (which is "cuda:0") or "cuda:INDEX". plugin: the file of the CUDA plugin.
// Each error says what to change. InvalidArgument: another word. NotFound: the plugin is not there.
// FailedPrecondition: the plugin is of another build; there is no driver, or too old a one; no such
// GPU, or of another architecture. Unimplemented: the GPU could serve, and no engine for it exists.
absl::Status CheckDevice(const std::string& device, const std::string& plugin);

// The plugin that lies beside the running program.
std::string PluginBesideProgram();

}  // namespace baton
