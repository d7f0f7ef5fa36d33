// Executes operations of an emulated device, one at a time: moves their bytes, calls their kernels,
// and tells HappensBefore what they touch. On the thread that executes the device's work; kernels
// are added before the first is launched.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>

#include "engine/cuda/device/emulated/emulated_memory.h"
#include "engine/cuda/device/emulated/happens_before.h"
#include "engine/cuda/device/emulated/kernel_memory.h"
#include "engine/cuda/device/emulated/operation.h"

namespace baton {

// Digest of memory of the host that a copy reads: taken when it is submitted and executed.
uint64_t HostDigest(const std::byte* at, int64_t bytes);

class OperationRunner {
 public:
  using Kernel = std::function<void(KernelMemory&, std::span<const std::byte> arguments)>;

  OperationRunner(const EmulatedMemory& memory, HappensBefore& order)
      : memory_(memory), order_(order) {}

  void AddKernel(std::string name, Kernel kernel);
  bool HasKernel(const std::string& name) const { return kernels_.contains(name); }
  // Returns why the device is lost; empty: it is not.
  std::string Run(const Operation& operation, int timeline);
  void Notify(const Operation& operation);
  // True on a thread that is in Notify.
  bool is_notifying() const;

 private:
  std::string Copy(const Operation& operation, int timeline) const;

  const EmulatedMemory& memory_;
  HappensBefore& order_;
  std::map<std::string, Kernel> kernels_;
};

}  // namespace baton
