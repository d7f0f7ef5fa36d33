// An operation of a stream of an emulated device. Owned by DeviceWork, whose lock guards it until
// the operation is executed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/cuda/device/emulated/vector_clock.h"

namespace baton {

// The state of an event since it was recorded last.
struct EventRecord {
  bool is_done = false;
  VectorClock clock;  // of everything before
};

struct Operation {
  enum class Kind { kCopy, kFill, kKernel, kRecord, kWait, kNotify };

  Kind kind = Kind::kCopy;
  std::byte* to = nullptr;
  const std::byte* from = nullptr;
  int64_t bytes = 0;
  bool is_pinned = false;  // the memory of the host, if it is a copy from or to the host
  uint8_t value = 0;
  std::string kernel{};
  std::vector<std::byte> arguments{};
  std::shared_ptr<EventRecord> record{};  // to be reached, or waited for
  std::function<void()> notify{};

  // ---- set when it is submitted ----
  uint64_t number = 0;  // from 1, in the order of submission
  std::string name{};   // for reports: "copy 12"
  VectorClock clock{};
  std::optional<uint64_t> source_digest{};  // of memory of the host that it reads
  bool is_poisoned = false;                 // its target is, if that is memory of the host
  // Counts the allocations at the capture, if it is of a graph.
  std::optional<uint64_t> captured_allocations{};

  // ---- set when nothing before it in its stream is left, and what it waits for is reached ----
  std::optional<int64_t> ends_at{};
};

}  // namespace baton
