#include "engine/cuda/device/emulated/operation_runner.h"

#include <xxhash.h>

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"

namespace baton {
namespace {

constexpr const char* kNotifyThread = "the device's notify thread";

}  // namespace

uint64_t HostDigest(const std::byte* at, int64_t bytes) {
  return XXH64(at, static_cast<size_t>(bytes), 0);
}

void OperationRunner::AddKernel(std::string name, Kernel kernel) {
  BATON_CHECK(kernels_.emplace(std::move(name), std::move(kernel)).second);
}

bool OperationRunner::is_notifying() const { return order_.host_thread() == kNotifyThread; }

std::string OperationRunner::Run(const Operation& operation, int timeline) {
  switch (operation.kind) {
    case Operation::Kind::kCopy:
    case Operation::Kind::kFill:
      return Copy(operation, timeline);
    case Operation::Kind::kKernel: {
      KernelMemory memory(operation, timeline, memory_, order_);
      kernels_.find(operation.kernel)->second(memory, operation.arguments);
      return memory.error();
    }
    case Operation::Kind::kNotify:
      Notify(operation);
      return "";
    case Operation::Kind::kRecord:
    case Operation::Kind::kWait:
      return "";
  }
  return "";
}

std::string OperationRunner::Copy(const Operation& operation, int timeline) const {
  KernelMemory device(operation, timeline, memory_, order_);
  const HappensBefore::Actor actor{timeline, operation.clock, operation.name};
  const int64_t bytes = operation.bytes;
  // Tells of memory of the host; false: it was pinned, and is freed.
  const auto host = [&](const std::byte* at, bool is_write) {
    if (!operation.is_pinned) return true;
    if (!memory_.IsPinned(at, bytes)) {
      order_.Report(absl::StrCat(operation.name, " uses pinned memory that was freed"));
      return false;
    }
    order_.Access(actor, at, bytes, is_write);
    return true;
  };
  if (operation.kind == Operation::Kind::kFill) {
    std::memset(device.Writes(operation.to, bytes), operation.value, static_cast<size_t>(bytes));
    return device.error();
  }
  const std::byte* from = operation.from;
  if (memory_.IsDevice(from)) {
    from = device.Reads(from, bytes);
  } else {
    if (!host(from, /*is_write=*/false)) return "";
    if (operation.source_digest && *operation.source_digest != HostDigest(from, bytes))
      order_.Report(absl::StrCat("the source of ", operation.name,
                                 " has changed between submission and execution"));
  }
  std::byte* to = operation.to;
  if (memory_.IsDevice(to)) {
    to = device.Writes(to, bytes);
  } else if (!host(to, /*is_write=*/true)) {
    return "";
  }
  if (device.error().empty()) std::memcpy(to, from, static_cast<size_t>(bytes));
  return device.error();
}

// The call comes after the stream's operations, and after nothing of the thread that executes.
void OperationRunner::Notify(const Operation& operation) {
  const std::string executor = order_.host_thread();
  order_.ActAs(kNotifyThread);
  order_.Receive(operation.clock);
  operation.notify();
  order_.ActAs(executor);
}

}  // namespace baton
