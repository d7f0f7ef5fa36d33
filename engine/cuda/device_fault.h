// Why a GPU cannot serve, and what to change. Pure functions, any thread.
#pragma once

#include <string>

namespace baton {

// Answers that are known; later questions need good answers to earlier ones.
struct DeviceFacts {
  int index = 0;            // the GPU that is wanted
  int driver_version = -1;  // of CUDA, as 13000 for 13.0; 0: no driver; -1: not asked
  int n_devices = -1;
  std::string cuda_words = {};  // how CUDA explains that there is none
  std::string name = {};        // empty: not asked
  int major = 0, minor = 0;     // compute capability
};

// Kernels are compiled for this architecture alone; its instructions are in no other one.
inline constexpr int kServedMajor = 9, kServedMinor = 0;

// Returns what is wrong by the facts that are known; empty: nothing.
inline std::string FaultOf(const DeviceFacts& facts) {
  const auto dotted = [](int high, int low) {
    return std::to_string(high) + "." + std::to_string(low);
  };
  const std::string install = "install driver 580 or newer (CUDA 13.0)";
  if (facts.driver_version == 0) return "no NVIDIA driver answers on this machine: " + install;
  if (facts.driver_version > 0 && facts.driver_version < 13000) {
    return "the NVIDIA driver is too old, it knows CUDA " +
           dotted(facts.driver_version / 1000, facts.driver_version % 1000 / 10) + ": " + install;
  }
  const std::string gpu = "GPU " + std::to_string(facts.index);
  if (facts.n_devices >= 0 && (facts.index < 0 || facts.index >= facts.n_devices)) {
    return "there is no " + gpu + ": " + std::to_string(facts.n_devices) + " can be seen" +
           (facts.cuda_words.empty() ? "" : " (" + facts.cuda_words + ")") +
           "; see nvidia-smi and CUDA_VISIBLE_DEVICES";
  }
  if (!facts.name.empty() && (facts.major != kServedMajor || facts.minor != kServedMinor)) {
    return gpu + ", " + facts.name + ", has compute capability " +
           dotted(facts.major, facts.minor) + ", and the kernels are for " +
           dotted(kServedMajor, kServedMinor) + " alone: use an H100, H200 or GH200";
  }
  return "";
}

}  // namespace baton
