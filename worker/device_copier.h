// CellCopier of KV pages in memory of a device: gathers and scatters cells by copies through pinned
// slots, which the link sends from and receives in. Gathers and scatters have a stream each, beside
// that of the steps, so that they disturb neither these nor each other. An operation waits on its
// stream for the fence of its cells; the link thread waits for nothing, and is woken at its end.
//
// Where the device is lost or refuses a copy, `lost` is told once, no operation ends any more, and
// none that has ended since the last Poll is told.
//
// Owner: the link thread. Device, backend and pool outlive it.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "engine/cuda/device/device_backend.h"
#include "kvtransfer/protocol/cell_copier.h"
#include "kvtransfer/protocol/transfer_events.h"

namespace baton {

class DeviceCopier final : public CellCopier {
 public:
  struct Ports {
    std::function<void()> wake;                        // called on any thread
    std::function<void(const std::string& why)> lost;  // called on the link thread
  };
  // backend: the engine on the device, whose fences the cells have.
  DeviceCopier(Device& device, DeviceBackend& backend, const PoolView& pool, Ports ports);
  ~DeviceCopier() override;

  std::byte* NewSlots(int64_t bytes) override;
  void RegisterPool(Link*) override {}
  std::byte* InPlace(const Cells&) override { return nullptr; }
  bool Gather(OperationId operation, const Cells& cells, std::byte* slot, uint32_t* crc) override;
  bool Scatter(OperationId operation, const Cells& cells, const std::byte* slot) override;
  bool Poll(std::vector<CopyEvent>* events) override;

 private:
  struct Operation {
    OperationId id = 0;
    DeviceEvent end{};
    const std::byte* slot = nullptr;
    int64_t bytes = 0;
  };
  // A stream and its operations under way, in their order.
  struct Queue {
    DeviceStream stream, notify;  // notify: so that copies do not wait for the host
    std::deque<Operation> operations{};
  };
  struct Range {
    std::byte* at;
    int64_t bytes;
  };
  // Shared with the wakes that the device holds.
  struct Wakes {
    std::mutex mutex;  // held while `wake` runs
    std::function<void()> wake;
    std::atomic<bool> has_ended = false;  // an operation, since the last Poll
  };

  std::vector<Range> RangesOf(const Cells& cells) const;
  // Submits copy(cell, offset in the slot, bytes) for each range, behind the fence, as one
  // operation.
  template <typename Copy>
  void Submit(Queue* queue, OperationId id, const Cells& cells, const std::byte* slot,
              const Copy& copy);
  absl::Status Finish(Queue* queue, Operation operation);
  void Check(const absl::Status& status);

  Device& device_;
  DeviceBackend& backend_;
  const PoolView pool_;
  const Ports ports_;
  Queue gathers_, scatters_;
  std::vector<DeviceEvent> free_events_;
  std::vector<std::byte*> pinned_;
  bool is_lost_ = false;
  const std::shared_ptr<Wakes> wakes_ = std::make_shared<Wakes>();
};

}  // namespace baton
