// The device that a user names: what cannot compute is refused by name, with what to change.
#include "server/process/compute_device.h"

#include <catch2/catch.hpp>

namespace baton {
namespace {

using Catch::Matchers::Contains;

absl::Status Refused(const std::string& device, const std::string& plugin) {
  const absl::Status status = OpenDevice(device, plugin).status();
  REQUIRE_FALSE(status.ok());
  CHECK_THAT(std::string(status.message()), Contains("model.device: "));
  return status;
}

TEST_CASE("the CPU needs no plugin") {
  const auto gpu = OpenDevice("cpu", "/nowhere/plugin.so");
  REQUIRE(gpu.ok());
  CHECK_FALSE(gpu->has_value());
}

TEST_CASE("a word that is no device is told with those that are") {
  for (const char* device : {"", "gpu", "CUDA", "cuda:", "cuda:x", "cuda:-1", "cuda:+1", "cuda:1 ",
                             "cuda1", "cuda:9999999999", "cuda:1024", "cpu:0"}) {
    CAPTURE(device);
    const absl::Status status = Refused(device, "/nowhere/plugin.so");
    CHECK(status.code() == absl::StatusCode::kInvalidArgument);
    CHECK_THAT(std::string(status.message()), Contains("use cpu, cuda, or cuda:1"));
  }
}

TEST_CASE("a plugin that is missing, foreign or of another build is told") {
  const absl::Status missing = Refused("cuda", "/nowhere/plugin.so");
  CHECK(missing.code() == absl::StatusCode::kNotFound);
  CHECK_THAT(std::string(missing.message()), Contains("cuda cannot be used: ") &&
                                                 Contains("/nowhere/plugin.so") &&
                                                 Contains("; or use --device cpu"));
  const absl::Status foreign = Refused("cuda:1", BATON_FOREIGN_LIBRARY);
  CHECK(foreign.code() == absl::StatusCode::kFailedPrecondition);
  CHECK_THAT(std::string(foreign.message()), Contains("is not Baton's CUDA plugin"));
  const absl::Status other = Refused("cuda:1", BATON_OTHER_PLUGIN);
  CHECK_THAT(std::string(other.message()), Contains("is of another build"));
}

#ifdef BATON_CUDA_PLUGIN
TEST_CASE("this build's plugin opens a GPU, or tells what the machine lacks") {
  const auto gpu = OpenDevice("cuda", BATON_CUDA_PLUGIN);
  INFO(gpu.status().ToString());
  CHECK((gpu.ok() ? (*gpu)->name != "" : absl::IsFailedPrecondition(gpu.status())));
  CHECK(Refused("cuda:1023", BATON_CUDA_PLUGIN).code() == absl::StatusCode::kFailedPrecondition);
}
#endif

TEST_CASE("KV takes what weights and working memory leave of the share of a device") {
  constexpr int64_t kGiB = int64_t{1} << 30, kPage = 8 << 20;
  const DeviceMemory memory{.total_bytes = 80 * kGiB, .free_bytes = 60 * kGiB};
  CHECK(*KvBytesOnDevice(memory, 1, kPage) == 60 * kGiB - kPage);  // one page is padding's
  CHECK(*KvBytesOnDevice(memory, 0.5, kPage) == 20 * kGiB - kPage);
  CHECK(*KvBytesOnDevice(memory, 0.5, kPage + 64) % (kPage + 64) == 0);
  for (const double share : {0.01, 0.25, 0.2501}) {
    CAPTURE(share);
    const absl::Status status = KvBytesOnDevice(memory, share, kPage).status();
    CHECK(status.code() == absl::StatusCode::kResourceExhausted);
    CHECK_THAT(std::string(status.message()),
               Contains("model.gpu_memory_utilization: ") &&
                   Contains("of the device's 81920 MiB has no room for KV beside 20480 MiB"));
  }
}

TEST_CASE("the plugin is looked for beside the program") {
  CHECK_THAT(PluginOfProgram(), Contains("/libbaton_cuda.so") && Contains("/tests/server/"));
}

}  // namespace
}  // namespace baton
