// Loading the CUDA plugin: what is refused and what the refusal says. The plugin itself is built
// only where a CUDA compiler is; libraries of this test stand in for other builds of it.

#include "engine/cuda/plugin_loader.h"

#include <catch2/catch.hpp>

#include "engine/cuda/device_fault.h"
#include "engine/cuda/source_id.h"

namespace baton {
namespace {

using Catch::Matchers::Contains;

std::string LoadError(const std::string& path) {
  const absl::StatusOr<CudaPlugin> plugin = CudaPlugin::Load(path);
  REQUIRE_FALSE(plugin.ok());
  return std::string(plugin.status().message());
}

TEST_CASE("a host without the plugin is told what to install") {
  const std::string error = LoadError("/nowhere/libbaton_cuda.so");
  CHECK_THAT(error, Contains("/nowhere/libbaton_cuda.so"));
  CHECK_THAT(error, Contains("scripts/cuda_tools.sh"));
}

TEST_CASE("a library that is no plugin is refused by name") {
  const std::string error = LoadError(BATON_FOREIGN_LIBRARY);
  CHECK_THAT(error, Contains(BATON_FOREIGN_LIBRARY));
  CHECK_THAT(error, Contains("is not Baton's CUDA plugin"));
}

TEST_CASE("a plugin of other sources is refused before anything else of it is called") {
  const std::string error = LoadError(BATON_OTHER_PLUGIN);
  CHECK_THAT(error, Contains("is of another build"));
  CHECK_THAT(error, Contains("0123456789abcdef"));
  CHECK_THAT(error, Contains(kCudaSourceId));
}

TEST_CASE("what keeps a GPU from serving is told with what to change") {
  DeviceFacts facts{.index = 1, .driver_version = 0};
  CHECK(FaultOf(facts) ==
        "no NVIDIA driver answers on this machine: install driver 580 or newer (CUDA 13.0)");
  facts.driver_version = 12080;
  CHECK(
      FaultOf(facts) ==
      "the NVIDIA driver is too old, it knows CUDA 12.8: install driver 580 or newer (CUDA 13.0)");
  facts.driver_version = 13000;
  CHECK(FaultOf(facts) == "");
  facts.n_devices = 1;
  CHECK(FaultOf(facts) ==
        "there is no GPU 1: 1 can be seen; see nvidia-smi and CUDA_VISIBLE_DEVICES");
  facts.n_devices = 0;
  facts.cuda_words = "no CUDA-capable device is detected";
  CHECK_THAT(FaultOf(facts), Contains("0 can be seen (no CUDA-capable device is detected);"));
  facts.n_devices = 2;
  CHECK(FaultOf(facts) == "");
  facts.index = -1;
  CHECK_THAT(FaultOf(facts), Contains("there is no GPU -1: 2 can be seen"));
  facts.index = 1;
  facts.name = "NVIDIA L40";
  facts.major = 8;
  facts.minor = 9;
  CHECK(FaultOf(facts) ==
        "GPU 1, NVIDIA L40, has compute capability 8.9, and the kernels are for 9.0 alone: use an "
        "H100, H200 or GH200");
  facts.major = 9;
  CHECK_THAT(FaultOf(facts), Contains("has compute capability 9.9"));
  facts.minor = 0;
  CHECK(FaultOf(facts) == "");
}

TEST_CASE("the id names the sources") { CHECK(std::string(kCudaSourceId).size() == 16); }

#ifdef BATON_CUDA_PLUGIN
// Holds on every machine: either the GPU is described, or the error says what to change.
TEST_CASE("the plugin of this build is loaded, and says what it finds") {
  const absl::StatusOr<CudaPlugin> plugin = CudaPlugin::Load(BATON_CUDA_PLUGIN);
  INFO(plugin.status());
  REQUIRE(plugin.ok());
  const absl::StatusOr<BatonCudaDevice> device = plugin->Open(0);
  if (device.ok()) {
    CHECK(device->multiprocessors > 0);
    CHECK(device->free_bytes > 0);
    CHECK(plugin->Open(99).status().message().find("there is no GPU 99") == 0);
    CHECK(plugin->Open(-1).status().message().find("there is no GPU -1") == 0);
  } else {
    INFO(device.status());
    CHECK_THAT(std::string(device.status().message()), Contains("install driver 580 or newer") ||
                                                           Contains("nvidia-smi") ||
                                                           Contains("use an H100"));
  }
}
#endif

}  // namespace
}  // namespace baton
