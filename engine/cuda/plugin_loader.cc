#include "engine/cuda/plugin_loader.h"

#include <dlfcn.h>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "engine/cuda/source_id.h"

namespace baton {
namespace {

template <typename Function>
Function Symbol(void* library, const char* name) {
  return reinterpret_cast<Function>(dlsym(library, name));
}

}  // namespace

absl::StatusOr<CudaPlugin> CudaPlugin::Load(const std::string& path) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return absl::NotFoundError(absl::StrCat("the CUDA plugin was not loaded: ", dlerror(),
                                            "; build it with scripts/cuda_tools.sh and cmake, or "
                                            "install libbaton_cuda.so beside baton"));
  }
  const auto source_id = Symbol<decltype(&baton_cuda_source_id)>(library, "baton_cuda_source_id");
  const auto open = Symbol<decltype(&baton_cuda_open)>(library, "baton_cuda_open");
  if (source_id == nullptr || open == nullptr) {
    dlclose(library);
    return absl::FailedPreconditionError(
        absl::StrCat(path, " is not Baton's CUDA plugin: it lacks baton_cuda_",
                     source_id == nullptr ? "source_id" : "open"));
  }
  if (const std::string theirs = source_id(); theirs != kCudaSourceId) {
    dlclose(library);
    return absl::FailedPreconditionError(
        absl::StrCat(path, " is of another build: its sources are ", theirs,
                     ", those of this program ", kCudaSourceId, "; install both of one build"));
  }
  const auto api = Symbol<decltype(&baton_cuda_api)>(library, "baton_cuda_api");
  BATON_CHECK(api != nullptr);  // it is of this build
  return CudaPlugin(open, api());
}

absl::StatusOr<BatonCudaDevice> CudaPlugin::Open(int index) const {
  BatonCudaDevice device;
  open_(index, &device);
  if (device.error[0] != '\0') return absl::FailedPreconditionError(device.error);
  return device;
}

}  // namespace baton
