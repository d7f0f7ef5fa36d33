#include "server/process/compute_device.h"

#include <charconv>
#include <filesystem>
#include <optional>
#include <string_view>

#include "absl/strings/str_format.h"

namespace baton {
namespace {

constexpr unsigned kMaxIndex = 1023;

// The index of "cuda" or "cuda:INDEX"; empty: it is neither.
std::optional<int> IndexOf(std::string_view device) {
  constexpr std::string_view kCuda = "cuda", kFirst = "cuda:";
  if (device == kCuda) return 0;
  if (!device.starts_with(kFirst)) return std::nullopt;
  const std::string_view digits = device.substr(kFirst.size());
  unsigned index = 0;
  const char* const end = digits.data() + digits.size();
  const auto [stop, error] = std::from_chars(digits.data(), end, index);
  if (digits.empty() || stop != end || error != std::errc() || index > kMaxIndex)
    return std::nullopt;
  return static_cast<int>(index);
}

}  // namespace

absl::StatusOr<std::optional<Gpu>> OpenDevice(const std::string& device,
                                              const std::string& plugin) {
  if (device == "cpu") return std::nullopt;
  const std::optional<int> index = IndexOf(device);
  if (!index)
    return absl::InvalidArgumentError(absl::StrFormat(
        "model.device: \"%s\" is no device: use cpu, cuda, or cuda:1 for the second GPU", device));
  const auto named = [&](const absl::Status& status) {
    return absl::Status(status.code(), absl::StrFormat("model.device: %s cannot be used: %s; or "
                                                       "use --device cpu",
                                                       device, status.message()));
  };
  const absl::StatusOr<CudaPlugin> cuda = CudaPlugin::Load(plugin);
  if (!cuda.ok()) return named(cuda.status());
  const absl::StatusOr<BatonCudaDevice> gpu = cuda->Open(*index);
  if (!gpu.ok()) return named(gpu.status());
  return Gpu{*cuda, *index, gpu->name};
}

absl::StatusOr<int64_t> KvBytesOnDevice(const DeviceMemory& memory, double share,
                                        int64_t page_bytes) {
  const int64_t used = memory.total_bytes - memory.free_bytes;
  const auto usable = static_cast<int64_t>(static_cast<double>(memory.total_bytes) * share);
  const int64_t pages = (usable - used) / page_bytes - 1;
  if (pages >= 1) return pages * page_bytes;
  constexpr double kMiB = 1 << 20;
  return absl::ResourceExhaustedError(absl::StrFormat(
      "model.gpu_memory_utilization: %.3g of the device's %.0f MiB has no room for KV beside %.0f "
      "MiB of weights and working memory; raise it, or serve a smaller model or a shorter "
      "model.max_context",
      share, static_cast<double>(memory.total_bytes) / kMiB, static_cast<double>(used) / kMiB));
}

std::string PluginOfProgram() {
  constexpr char kFile[] = "libbaton_cuda.so";
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  const std::filesystem::path beside = program.parent_path() / kFile;
  if (std::filesystem::exists(beside, error)) return beside.string();
  const std::filesystem::path installed =
      program.parent_path().parent_path() / "lib" / "baton" / kFile;
  return (std::filesystem::exists(installed, error) ? installed : beside).string();
}

}  // namespace baton
