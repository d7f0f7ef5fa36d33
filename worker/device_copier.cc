#include "worker/device_copier.h"

#include <utility>

#include "common/check.h"
#include "common/log.h"

namespace baton {
namespace {

constexpr uintptr_t kAlign = 4096;  // of slots

}  // namespace

DeviceCopier::DeviceCopier(Device& device, DeviceBackend& backend, const PoolView& pool,
                           Ports ports)
    : device_(device),
      backend_(backend),
      pool_(pool),
      ports_(std::move(ports)),
      gathers_{device_.NewStream("gathers"), device_.NewStream("notify of gathers")},
      scatters_{device_.NewStream("scatters"), device_.NewStream("notify of scatters")} {
  wakes_->wake = ports_.wake;
}

DeviceCopier::~DeviceCopier() {
  for (const Queue* queue : {&gathers_, &scatters_}) {
    const DeviceEvent last = device_.NewEvent();
    if (device_.Record(last, queue->stream).ok()) device_.Synchronize(last);  // else it is lost
  }
  {
    const std::lock_guard lock(wakes_->mutex);
    wakes_->wake = nullptr;
  }
  for (std::byte* const memory : pinned_) device_.Free(memory);
}

std::byte* DeviceCopier::NewSlots(int64_t bytes) {
  const absl::StatusOr<std::byte*> pinned =
      device_.AllocatePinned(bytes + int64_t{kAlign}, "slots of KV copies");
  if (!pinned.ok())
    LogError("%s; raise the limit of locked memory (ulimit -l)", pinned.status().message());
  BATON_CHECK(pinned.ok());
  pinned_.push_back(*pinned);
  const auto at = reinterpret_cast<uintptr_t>(*pinned);
  return *pinned + ((kAlign - at % kAlign) % kAlign);
}

bool DeviceCopier::Gather(OperationId operation, const Cells& cells, std::byte* slot, uint32_t*) {
  Submit(&gathers_, operation, cells, slot, [&](std::byte* cell, int64_t offset, int64_t bytes) {
    return device_.Copy(gathers_.stream, slot + offset, cell, bytes);
  });
  return false;
}

bool DeviceCopier::Scatter(OperationId operation, const Cells& cells, const std::byte* slot) {
  // A slot has what the link received.
  device_.HostWrites(const_cast<std::byte*>(slot), RectBytes(pool_, cells.rect));
  Submit(&scatters_, operation, cells, slot, [&](std::byte* cell, int64_t offset, int64_t bytes) {
    return device_.Copy(scatters_.stream, cell, slot + offset, bytes);
  });
  return false;
}

std::vector<DeviceCopier::Range> DeviceCopier::RangesOf(const Cells& cells) const {
  std::vector<Range> ranges;
  for (const int32_t page : cells.page_ids) {
    for (int32_t i = 0; i < cells.rect.n_planes; ++i) {
      const int32_t plane = cells.rect.plane + i;
      const Range cell{CellAt(pool_, page, plane), PlaneBytes(pool_, plane, 1)};
      if (!ranges.empty() && ranges.back().at + ranges.back().bytes == cell.at)
        ranges.back().bytes += cell.bytes;
      else
        ranges.push_back(cell);
    }
  }
  return ranges;
}

template <typename Copy>
void DeviceCopier::Submit(Queue* queue, OperationId id, const Cells& cells, const std::byte* slot,
                          const Copy& copy) {
  if (is_lost_) return;
  Check([&]() -> absl::Status {
    if (cells.after != 0) RETURN_IF_ERROR(backend_.WaitFor({cells.after}, queue->stream));
    int64_t offset = 0;
    for (const Range& range : RangesOf(cells)) {
      RETURN_IF_ERROR(copy(range.at, offset, range.bytes));
      offset += range.bytes;
    }
    return Finish(queue, {.id = id, .slot = slot, .bytes = offset});
  }());
}

absl::Status DeviceCopier::Finish(Queue* queue, Operation operation) {
  if (free_events_.empty()) free_events_.push_back(device_.NewEvent());
  operation.end = free_events_.back();
  free_events_.pop_back();
  RETURN_IF_ERROR(device_.Record(operation.end, queue->stream));
  queue->operations.push_back(operation);
  RETURN_IF_ERROR(device_.Wait(queue->notify, operation.end));
  return device_.Notify(queue->notify, [wakes = wakes_] {
    wakes->has_ended = true;
    const std::lock_guard lock(wakes->mutex);
    if (wakes->wake != nullptr) wakes->wake();
  });
}

bool DeviceCopier::Poll(std::vector<CopyEvent>* events) {
  if (is_lost_ || !wakes_->has_ended.exchange(false)) return false;
  std::vector<Operation> ended[2];
  Queue* const queues[] = {&gathers_, &scatters_};
  for (size_t i = 0; i < std::size(queues); ++i) {
    std::deque<Operation>& operations = queues[i]->operations;
    while (!operations.empty() && device_.reached(operations.front().end)) {
      ended[i].push_back(operations.front());
      operations.pop_front();
    }
  }
  // The device is asked after its events, which it reaches once lost, too.
  if (const std::optional<std::string> why = device_.lost()) {
    Check(absl::UnavailableError(*why));
    return false;
  }
  for (const Operation& gather : ended[0]) {
    device_.HostReads(gather.slot, gather.bytes);
    events->push_back(CellsGathered{gather.id});
  }
  for (const Operation& scatter : ended[1]) events->push_back(CellsScattered{scatter.id});
  for (const std::vector<Operation>& some : ended)
    for (const Operation& operation : some) free_events_.push_back(operation.end);
  return !ended[0].empty() || !ended[1].empty();
}

void DeviceCopier::Check(const absl::Status& status) {
  if (status.ok() || std::exchange(is_lost_, true)) return;
  ports_.lost(std::string(status.message()));
}

}  // namespace baton
