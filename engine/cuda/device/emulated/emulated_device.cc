#include "engine/cuda/device/emulated/emulated_device.h"

#include <utility>

#include "common/check.h"

namespace baton {

EmulatedDevice::EmulatedDevice(const EmulatedOptions& options)
    : memory_(options.memory_bytes, options.faults.allocation, order_),
      work_(options.seed, options.pace, options.faults, memory_, order_) {}

absl::StatusOr<std::byte*> EmulatedDevice::Allocate(int64_t bytes, std::string_view what) {
  return memory_.Allocate(bytes, what);
}

absl::StatusOr<std::byte*> EmulatedDevice::AllocatePinned(int64_t bytes, std::string_view what) {
  return memory_.AllocatePinned(bytes, what);
}

void EmulatedDevice::Free(std::byte* memory) {
  if (!memory_.IsDevice(memory)) work_.CheckUnused(memory, memory_.SizeOf(memory));
  memory_.Free(memory);
}

void EmulatedDevice::HostReads(const std::byte* pinned, int64_t bytes) {
  BATON_CHECK(memory_.IsPinned(pinned, bytes));
  order_.HostAccess(pinned, bytes, /*is_write=*/false);
}

void EmulatedDevice::HostWrites(std::byte* pinned, int64_t bytes) {
  BATON_CHECK(memory_.IsPinned(pinned, bytes));
  order_.HostAccess(pinned, bytes, /*is_write=*/true);
}

absl::Status EmulatedDevice::Record(DeviceEvent event, DeviceStream stream) {
  return work_.Record(event.id, stream.id);
}

absl::Status EmulatedDevice::Wait(DeviceStream stream, DeviceEvent event) {
  return work_.Wait(stream.id, event.id);
}

absl::Status EmulatedDevice::Notify(DeviceStream stream, std::function<void()> call) {
  Operation operation{.kind = Operation::Kind::kNotify};
  operation.notify = std::move(call);
  return work_.Submit(stream.id, std::move(operation));
}

absl::Status EmulatedDevice::Copy(DeviceStream stream, std::byte* to, const std::byte* from,
                                  int64_t bytes) {
  Operation operation{.kind = Operation::Kind::kCopy, .to = to, .from = from, .bytes = bytes};
  return work_.Submit(stream.id, std::move(operation));
}

absl::Status EmulatedDevice::Fill(DeviceStream stream, std::byte* to, uint8_t value,
                                  int64_t bytes) {
  Operation operation{.kind = Operation::Kind::kFill, .to = to, .bytes = bytes, .value = value};
  return work_.Submit(stream.id, std::move(operation));
}

absl::Status EmulatedDevice::Launch(DeviceStream stream, std::string_view kernel,
                                    std::span<const std::byte> arguments) {
  Operation operation{.kind = Operation::Kind::kKernel};
  operation.kernel = kernel;
  operation.arguments.assign(arguments.begin(), arguments.end());
  return work_.Submit(stream.id, std::move(operation));
}

absl::StatusOr<DeviceGraph> EmulatedDevice::EndCapture(DeviceStream stream) {
  ASSIGN_OR_RETURN(const int graph, work_.EndCapture(stream.id));
  return DeviceGraph{graph};
}

absl::Status EmulatedDevice::LaunchGraph(DeviceStream stream, DeviceGraph graph) {
  return work_.LaunchGraph(stream.id, graph.id);
}

}  // namespace baton
