// A device that computes beside the host: memory of its own, streams of operations, events, graphs.
// Calls submit and return; operations of a stream are executed one after the other, those of
// different streams in any order that events do not forbid. Only what this interface orders is
// ordered. The emulated device (emulated/) implements it, so that what waits for too little is
// found without a GPU.
//
// Any thread. Addresses of device memory are numbers to the host, which must not dereference them.
// Memory of the host that an operation reads or writes is the operation's from the call until an
// event behind it is reached: neither changed, nor read if the operation writes it. Errors:
// Unavailable once the device is lost, which it then stays; Internal if a copy or launch is
// refused. Both say what to do, and nothing of the call is executed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "common/status.h"

namespace baton {

struct DeviceStream {
  int id = -1;
};
struct DeviceEvent {
  int id = -1;
};
struct DeviceGraph {
  int id = -1;
};

struct DeviceMemory {
  int64_t total_bytes = 0, free_bytes = 0;
};

class Device {
 public:
  virtual ~Device() = default;

  // ---- memory ----

  // Memory of the device. `what` names it in errors, as "KV arena". The content is arbitrary.
  // ResourceExhausted: not enough memory.
  virtual absl::StatusOr<std::byte*> Allocate(int64_t bytes, std::string_view what) = 0;
  // Memory of the host that the device reads and writes by itself. Copies from and to other memory
  // of the host may block the calling thread.
  virtual absl::StatusOr<std::byte*> AllocatePinned(int64_t bytes, std::string_view what) = 0;
  // Gives memory of either kind back; no operation under way uses it.
  virtual void Free(std::byte* memory) = 0;
  virtual DeviceMemory memory() const = 0;

  // Announce that the calling thread now reads (writes) pinned memory. Only the emulated device
  // listens: it tells if an operation that uses the memory may still be under way.
  virtual void HostReads(const std::byte* /*pinned*/, int64_t /*bytes*/) {}
  virtual void HostWrites(std::byte* /*pinned*/, int64_t /*bytes*/) {}

  // ---- streams and events ----

  virtual DeviceStream NewStream(std::string_view name) = 0;
  virtual DeviceEvent NewEvent() = 0;
  // The event is reached when everything that was submitted to the stream before is done. Recording
  // again begins anew.
  virtual absl::Status Record(DeviceEvent event, DeviceStream stream) = 0;
  // Makes what is submitted to the stream later wait for the event's latest record.
  virtual absl::Status Wait(DeviceStream stream, DeviceEvent event) = 0;
  // True if the event's latest record is reached, or the device is lost: then nothing is under way.
  virtual bool reached(DeviceEvent event) = 0;
  // Blocks the calling thread until then. For starting and ending only.
  virtual void Synchronize(DeviceEvent event) = 0;
  // Calls `call` once, on a thread of the device, when everything that was submitted to the stream
  // before is done, or the device is lost. The stream stands still meanwhile; `call` does not call
  // the device. Once it is lost, that may be at any later time, even after the device's end, so
  // `call` owns or shares what it uses.
  virtual absl::Status Notify(DeviceStream stream, std::function<void()> call) = 0;

  // ---- operations ----

  // Copies between host and device or within the device; the addresses tell.
  virtual absl::Status Copy(DeviceStream stream, std::byte* to, const std::byte* from,
                            int64_t bytes) = 0;
  // Sets every byte of memory of the device to `value`.
  virtual absl::Status Fill(DeviceStream stream, std::byte* to, uint8_t value, int64_t bytes) = 0;
  // Starts a kernel of this name, which gets a copy of `arguments` as they are now.
  virtual absl::Status Launch(DeviceStream stream, std::string_view kernel,
                              std::span<const std::byte> arguments) = 0;
  template <typename Arguments>
  requires std::is_trivially_copyable_v<Arguments> absl::Status Launch(DeviceStream stream,
                                                                       std::string_view kernel,
                                                                       const Arguments& arguments) {
    return Launch(stream, kernel, std::as_bytes(std::span(&arguments, 1)));
  }

  // ---- graphs ----

  // From now on the stream's copies, fills and launches are kept instead of executed, with the
  // values of their arguments. Record, Wait, Notify and LaunchGraph on it are refused meanwhile
  // (FailedPrecondition), and the capture goes on.
  virtual absl::Status BeginCapture(DeviceStream stream) = 0;
  virtual absl::StatusOr<DeviceGraph> EndCapture(DeviceStream stream) = 0;
  // Submits what the graph keeps, with the arguments of its capture.
  virtual absl::Status LaunchGraph(DeviceStream stream, DeviceGraph graph) = 0;

  // Why the device is lost; nothing: it is not.
  virtual std::optional<std::string> lost() const = 0;
};

}  // namespace baton
