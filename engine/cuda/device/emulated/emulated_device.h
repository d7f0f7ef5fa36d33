// A device on the CPU, for tests of everything above kernels without a GPU: what the interface
// leaves open is drawn by a seed, and what a program must not do is found although nothing went
// wrong. Its kernels are functions of the host (work().runner()) whose accesses to memory are all
// known (KernelMemory).
//
//   PROT_NONE addresses   a host that dereferences device memory dies
//   poison, digests       results read early, staging memory reused early (DeviceWork)
//   vector clocks         a wait that is missing (order().reports())
//   graphs                keep their arguments; memory allocated after the capture is reported
//   FaultPlan             refused allocations, copies and launches, loss, slowness
//
// In virtual time whoever calls work().ExecuteNext or AdvanceTo is the device; with threads a
// DeviceThread is. Any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "engine/cuda/device/device.h"
#include "engine/cuda/device/emulated/device_work.h"
#include "engine/cuda/device/emulated/emulated_memory.h"
#include "engine/cuda/device/emulated/fault_plan.h"
#include "engine/cuda/device/emulated/happens_before.h"

namespace baton {

struct EmulatedOptions {
  int64_t memory_bytes = int64_t{64} << 20;
  uint64_t seed = 1;
  DevicePace pace{};
  FaultPlan faults{};
};

class EmulatedDevice : public Device {
 public:
  explicit EmulatedDevice(const EmulatedOptions& options = {});

  DeviceWork& work() { return work_; }
  HappensBefore& order() { return order_; }

  absl::StatusOr<std::byte*> Allocate(int64_t bytes, std::string_view what) override;
  absl::StatusOr<std::byte*> AllocatePinned(int64_t bytes, std::string_view what) override;
  void Free(std::byte* memory) override;
  DeviceMemory memory() const override { return memory_.memory(); }
  void HostReads(const std::byte* pinned, int64_t bytes) override;
  void HostWrites(std::byte* pinned, int64_t bytes) override;
  DeviceStream NewStream(std::string_view name) override { return {work_.AddStream(name)}; }
  DeviceEvent NewEvent() override { return {work_.AddEvent()}; }
  absl::Status Record(DeviceEvent event, DeviceStream stream) override;
  absl::Status Wait(DeviceStream stream, DeviceEvent event) override;
  bool reached(DeviceEvent event) override { return work_.reached(event.id); }
  void Synchronize(DeviceEvent event) override { work_.Synchronize(event.id); }
  absl::Status Notify(DeviceStream stream, std::function<void()> call) override;
  absl::Status Copy(DeviceStream stream, std::byte* to, const std::byte* from,
                    int64_t bytes) override;
  absl::Status Fill(DeviceStream stream, std::byte* to, uint8_t value, int64_t bytes) override;
  using Device::Launch;
  absl::Status Launch(DeviceStream stream, std::string_view kernel,
                      std::span<const std::byte> arguments) override;
  absl::Status BeginCapture(DeviceStream stream) override { return work_.BeginCapture(stream.id); }
  absl::StatusOr<DeviceGraph> EndCapture(DeviceStream stream) override;
  absl::Status LaunchGraph(DeviceStream stream, DeviceGraph graph) override;
  std::optional<std::string> lost() const override { return work_.lost(); }

 private:
  HappensBefore order_;
  EmulatedMemory memory_;
  DeviceWork work_;
};

}  // namespace baton
