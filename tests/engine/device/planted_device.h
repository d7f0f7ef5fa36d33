// A device that passes everything on to another one, for tests that change a call on its way: what
// an engine with a bug would do.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "engine/cuda/device/device.h"

namespace baton {

class PlantedDevice : public Device {
 public:
  explicit PlantedDevice(Device& inner) : inner_(inner) {}

  absl::StatusOr<std::byte*> Allocate(int64_t bytes, std::string_view what) override {
    return inner_.Allocate(bytes, what);
  }
  absl::StatusOr<std::byte*> AllocatePinned(int64_t bytes, std::string_view what) override {
    return inner_.AllocatePinned(bytes, what);
  }
  void Free(std::byte* memory) override { inner_.Free(memory); }
  DeviceMemory memory() const override { return inner_.memory(); }
  void HostReads(const std::byte* pinned, int64_t bytes) override {
    inner_.HostReads(pinned, bytes);
  }
  void HostWrites(std::byte* pinned, int64_t bytes) override { inner_.HostWrites(pinned, bytes); }
  DeviceStream NewStream(std::string_view name) override { return inner_.NewStream(name); }
  DeviceEvent NewEvent() override { return inner_.NewEvent(); }
  absl::Status Record(DeviceEvent event, DeviceStream stream) override {
    return inner_.Record(event, stream);
  }
  absl::Status Wait(DeviceStream stream, DeviceEvent event) override {
    return inner_.Wait(stream, event);
  }
  bool reached(DeviceEvent event) override { return inner_.reached(event); }
  void Synchronize(DeviceEvent event) override { inner_.Synchronize(event); }
  absl::Status Notify(DeviceStream stream, std::function<void()> call) override {
    return inner_.Notify(stream, std::move(call));
  }
  absl::Status Copy(DeviceStream stream, std::byte* to, const std::byte* from,
                    int64_t bytes) override {
    return inner_.Copy(stream, to, from, bytes);
  }
  absl::Status Fill(DeviceStream stream, std::byte* to, uint8_t value, int64_t bytes) override {
    return inner_.Fill(stream, to, value, bytes);
  }
  using Device::Launch;
  absl::Status Launch(DeviceStream stream, std::string_view kernel,
                      std::span<const std::byte> arguments) override {
    return inner_.Launch(stream, kernel, arguments);
  }
  absl::Status BeginCapture(DeviceStream stream) override { return inner_.BeginCapture(stream); }
  absl::StatusOr<DeviceGraph> EndCapture(DeviceStream stream) override {
    return inner_.EndCapture(stream);
  }
  absl::Status LaunchGraph(DeviceStream stream, DeviceGraph graph) override {
    return inner_.LaunchGraph(stream, graph);
  }
  std::optional<std::string> lost() const override { return inner_.lost(); }

 protected:
  Device& inner() { return inner_; }

 private:
  Device& inner_;
};

}  // namespace baton
