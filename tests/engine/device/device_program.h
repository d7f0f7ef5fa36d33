// Small programs for an emulated device: two buffers of numbers on it, pinned slots beside it, and
// kernels that read and write them.
#pragma once

#include <catch2/catch.hpp>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "engine/cuda/device/emulated/emulated_device.h"

namespace baton {

constexpr int64_t kNumbers = 16;  // of a buffer or slot
constexpr auto kBytes = kNumbers * static_cast<int64_t>(sizeof(int32_t));

// Adds `value` to the numbers at `from`, or to what is at `to` if they are the same.
struct AddArguments {
  std::byte* to = nullptr;
  const std::byte* from = nullptr;
  int32_t value = 0;
};

inline void AddKernel(KernelMemory& memory, std::span<const std::byte> bytes) {
  AddArguments a;
  std::memcpy(&a, bytes.data(), sizeof(a));
  const auto* const from = memory.Reads(reinterpret_cast<const int32_t*>(a.from), kNumbers);
  auto* const to = memory.Writes(reinterpret_cast<int32_t*>(a.to), kNumbers);
  for (int64_t i = 0; i < kNumbers; ++i)
    to[i] = static_cast<int32_t>(static_cast<uint32_t>(from[i]) + static_cast<uint32_t>(a.value));
}

struct DeviceProgram {
  explicit DeviceProgram(const EmulatedOptions& options = {}) : device(options) {
    device.work().runner().AddKernel("add", AddKernel);
    device.order().ActAs("engine thread");
  }

  std::byte* OnDevice(std::string_view what) {
    absl::StatusOr<std::byte*> at = device.Allocate(kBytes, what);
    REQUIRE(at.ok());
    return *at;
  }
  std::byte* Slot(std::string_view what) {
    absl::StatusOr<std::byte*> at = device.AllocatePinned(kBytes, what);
    REQUIRE(at.ok());
    return *at;
  }
  void Add(DeviceStream stream, std::byte* to, const std::byte* from, int32_t value) {
    REQUIRE(device.Launch(stream, "add", AddArguments{to, from, value}).ok());
  }
  void Copy(DeviceStream stream, std::byte* to, const std::byte* from) {
    REQUIRE(device.Copy(stream, to, from, kBytes).ok());
  }
  // The host writes a slot, and reads it.
  void Set(std::byte* slot, int32_t value) {
    device.HostWrites(slot, kBytes);
    for (int64_t i = 0; i < kNumbers; ++i) std::memcpy(slot + i * 4, &value, sizeof(value));
  }
  int32_t Get(const std::byte* slot) {
    device.HostReads(slot, kBytes);
    int32_t value = 0;
    std::memcpy(&value, slot + kBytes - 4, sizeof(value));
    return value;
  }
  DeviceEvent Recorded(DeviceStream stream) {
    const DeviceEvent event = device.NewEvent();
    REQUIRE(device.Record(event, stream).ok());
    return event;
  }
  void WaitFor(DeviceStream stream, DeviceEvent event) { REQUIRE(device.Wait(stream, event).ok()); }
  // In virtual time.
  void Until(DeviceEvent event) {
    while (!device.reached(event)) REQUIRE(device.work().ExecuteNext());
  }
  void Finish() {
    while (device.work().ExecuteNext()) continue;
  }
  std::string Reports() {
    std::string all;
    for (const std::string& report : device.order().reports()) all += report + "\n";
    return all;
  }

  EmulatedDevice device;
  const DeviceStream compute = device.NewStream("compute");
  const DeviceStream copies = device.NewStream("copies");
};

}  // namespace baton
