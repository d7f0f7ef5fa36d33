// Loads libbaton_cuda.so on demand, so that one binary runs on hosts with and without CUDA. A
// plugin of other sources than the binary's is refused. Any thread, one at a time.
#pragma once

#include <string>

#include "common/status.h"
#include "engine/cuda/plugin_abi.h"

namespace baton {

class CudaPlugin {
 public:
  // `path`: the file. NotFound: not there or not loadable; FailedPrecondition: not ours, or of
  // another build. A loaded plugin stays until the process ends, since CUDA's runtime has threads
  // of its own.
  static absl::StatusOr<CudaPlugin> Load(const std::string& path);

  // Makes GPU `index` the calling thread's. FailedPrecondition: says what is missing.
  absl::StatusOr<BatonCudaDevice> Open(int index) const;
  const BatonCudaApi& api() const { return *api_; }

 private:
  CudaPlugin(decltype(&baton_cuda_open) open, const BatonCudaApi* api) : open_(open), api_(api) {}

  decltype(&baton_cuda_open) open_;
  const BatonCudaApi* api_;
};

}  // namespace baton
