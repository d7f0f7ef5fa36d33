// The device that the user named: whether it can compute, before weights are read, and how much KV
// it has room for, when they are there. Any thread, one at a time.
#pragma once

#include <optional>
#include <string>

#include "common/status.h"
#include "engine/cuda/device/device.h"
#include "engine/cuda/plugin_loader.h"

namespace baton {

// A GPU that can serve.
struct Gpu {
  CudaPlugin plugin;
  int index = 0;
  std::string name;
};

// device: "cpu" (no GPU is returned), "cuda" (which is "cuda:0") or "cuda:INDEX". plugin: the file
// of the CUDA plugin. Each error says what to change. InvalidArgument: another word. NotFound: the
// plugin is not there. FailedPrecondition: the plugin is of another build; there is no driver, or
// too old a one; no such GPU, or of another architecture.
absl::StatusOr<std::optional<Gpu>> OpenDevice(const std::string& device, const std::string& plugin);

// Bytes of KV pages on a device where weights and working memory are there already: what they leave
// of `share` (0, 1] of its memory, less the page that padding writes. ResourceExhausted: not a
// page.
absl::StatusOr<int64_t> KvBytesOnDevice(const DeviceMemory& memory, double share,
                                        int64_t page_bytes);

// The plugin beside the running program, or in ../lib/baton, where packages have it.
std::string PluginOfProgram();

}  // namespace baton
