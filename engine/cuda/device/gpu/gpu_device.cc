#include "engine/cuda/device/gpu/gpu_device.h"

#include <memory>
#include <utility>

#include "absl/strings/str_format.h"
#include "common/check.h"

namespace baton {
namespace {

constexpr int32_t kOutOfMemory = 2;  // cudaErrorMemoryAllocation
// cudaErrorOperatingSystem: memory of the host that may not be pinned.
constexpr int32_t kOperatingSystem = 304;

}  // namespace

int GpuDevice::Handles::Add(void* handle) {
  const std::lock_guard lock(mutex_);
  handles_.push_back(handle);
  return static_cast<int>(handles_.size()) - 1;
}

void* GpuDevice::Handles::At(int id) const {
  const std::lock_guard lock(mutex_);
  BATON_CHECK(id >= 0 && id < static_cast<int>(handles_.size()));
  return handles_[static_cast<size_t>(id)];
}

GpuDevice::GpuDevice(const BatonCudaApi& api, int index) : api_(api), index_(index) {}

GpuDevice::~GpuDevice() {
  Select();
  for (void* const graph : graphs_.all()) api_.delete_graph(graph);
  for (void* const event : events_.all())
    if (event != nullptr) api_.delete_event(event);
  for (void* const stream : streams_.all())
    if (stream != nullptr) api_.delete_stream(stream);
}

void GpuDevice::AddKernel(std::string name, Kernel kernel) {
  kernels_.insert_or_assign(std::move(name), std::move(kernel));
}

void GpuDevice::Select() { static_cast<void>(api_.select(index_)); }

absl::Status GpuDevice::Check(int32_t error, std::string_view what) {
  if (error == 0) return absl::OkStatus();
  const std::string why = absl::StrFormat(
      "GPU %d has failed at %s: %s; see the kernel's log for Xid errors, and "
      "restart the worker",
      index_, std::string(what), api_.words(error));
  const std::lock_guard lock(mutex_);
  if (!lost_) lost_ = why;
  return absl::UnavailableError(*lost_);
}

absl::Status GpuDevice::CheckMemory(int32_t error, std::string_view what) {
  if (error != kOutOfMemory) return Check(error, what);
  return absl::ResourceExhaustedError(absl::StrFormat(
      "GPU %d has no memory for %s; lower prefill.step_tokens, decode.step_tokens or "
      "prefill.max_slice_tokens, and see nvidia-smi for who else has memory",
      index_, std::string(what)));
}

std::optional<std::string> GpuDevice::lost() const {
  const std::lock_guard lock(mutex_);
  return lost_;
}

absl::StatusOr<void*> GpuDevice::Usable(DeviceStream stream, const char* not_kept) const {
  void* const handle = streams_.At(stream.id);
  const std::lock_guard lock(mutex_);
  if (lost_) return absl::UnavailableError(*lost_);
  BATON_CHECK(handle != nullptr);  // what could not be made has lost the device
  if (not_kept != nullptr && captured_.contains(stream.id)) {
    return absl::FailedPreconditionError(
        absl::StrFormat("GPU %d: stream %d is being captured, which does not keep %s; end the "
                        "capture first",
                        index_, stream.id, not_kept));
  }
  return handle;
}

// --- memory

absl::StatusOr<std::byte*> GpuDevice::Take(bool is_pinned, int64_t bytes, std::string_view what) {
  if (const std::optional<std::string> why = lost()) return absl::UnavailableError(*why);
  Select();
  void* made = nullptr;
  const int32_t error =
      is_pinned ? api_.allocate_pinned(bytes, &made) : api_.allocate(bytes, &made);
  const bool has_none = error == kOutOfMemory || (is_pinned && error == kOperatingSystem);
  if (error != 0 && !has_none)
    return Check(error, absl::StrFormat("taking memory for %s", std::string(what)));
  if (error != 0) {
    constexpr double kMiB = 1 << 20;
    return absl::ResourceExhaustedError(
        absl::StrFormat("GPU %d: no %s of %.0f MiB for %s: %s; lower model.gpu_memory_utilization, "
                        "and see nvidia-smi for who else has memory",
                        index_, is_pinned ? "pinned memory of the host" : "memory",
                        static_cast<double>(bytes) / kMiB, std::string(what), api_.words(error)));
  }
  auto* const memory = static_cast<std::byte*>(made);
  const std::lock_guard lock(mutex_);
  taken_[memory] = {is_pinned, bytes};
  if (!is_pinned) used_bytes_ += bytes;
  return memory;
}

absl::StatusOr<std::byte*> GpuDevice::Allocate(int64_t bytes, std::string_view what) {
  return Take(false, bytes, what);
}

absl::StatusOr<std::byte*> GpuDevice::AllocatePinned(int64_t bytes, std::string_view what) {
  return Take(true, bytes, what);
}

void GpuDevice::Free(std::byte* memory) {
  Select();
  Memory freed;
  {
    const std::lock_guard lock(mutex_);
    const auto found = taken_.find(memory);
    BATON_CHECK(found != taken_.end());
    freed = found->second;
    taken_.erase(found);
    if (!freed.is_pinned) used_bytes_ -= freed.bytes;
  }
  // Nothing of a lost device can be freed but by the end of the process.
  static_cast<void>(freed.is_pinned ? api_.free_pinned(memory) : api_.free(memory));
}

void GpuDevice::CountUsed(int64_t bytes) {
  const std::lock_guard lock(mutex_);
  used_bytes_ += bytes;
}

DeviceMemory GpuDevice::memory() const {
  static_cast<void>(api_.select(index_));
  DeviceMemory memory;
  static_cast<void>(api_.memory(&memory.free_bytes, &memory.total_bytes));
  const std::lock_guard lock(mutex_);
  memory.free_bytes = memory.total_bytes - used_bytes_;
  return memory;
}

// --- streams and events

DeviceStream GpuDevice::NewStream(std::string_view name) {
  Select();
  void* stream = nullptr;
  static_cast<void>(
      Check(api_.new_stream(&stream), absl::StrFormat("making stream %s", std::string(name))));
  return {streams_.Add(stream)};
}

DeviceEvent GpuDevice::NewEvent() {
  Select();
  void* event = nullptr;
  static_cast<void>(Check(api_.new_event(&event), "making an event"));
  return {events_.Add(event)};
}

absl::Status GpuDevice::Record(DeviceEvent event, DeviceStream stream) {
  ASSIGN_OR_RETURN(void* const on, Usable(stream, "recording an event"));
  Select();
  return Check(api_.record(events_.At(event.id), on), "recording an event");
}

absl::Status GpuDevice::Wait(DeviceStream stream, DeviceEvent event) {
  ASSIGN_OR_RETURN(void* const on, Usable(stream, "waiting for an event"));
  Select();
  return Check(api_.wait(on, events_.At(event.id)), "waiting for an event");
}

bool GpuDevice::reached(DeviceEvent event) {
  if (lost()) return true;
  Select();
  int32_t is_reached = 0;
  const absl::Status status = Check(api_.query(events_.At(event.id), &is_reached), "computing");
  return !status.ok() || is_reached != 0;
}

void GpuDevice::Synchronize(DeviceEvent event) {
  if (lost()) return;
  Select();
  static_cast<void>(Check(api_.synchronize(events_.At(event.id)), "computing"));
}

absl::Status GpuDevice::Notify(DeviceStream stream, std::function<void()> call) {
  ASSIGN_OR_RETURN(void* const on, Usable(stream, "a wake-up"));
  Select();
  auto made = std::make_unique<std::function<void()>>(std::move(call));
  const auto run = [](void* argument) {
    const std::unique_ptr<std::function<void()>> kept(
        static_cast<std::function<void()>*>(argument));
    (*kept)();
  };
  RETURN_IF_ERROR(Check(api_.notify(on, run, made.get()), "asking for a wake-up"));
  static_cast<void>(made.release());  // the driver's, until it has run
  return absl::OkStatus();
}

// --- operations

absl::Status GpuDevice::Copy(DeviceStream stream, std::byte* to, const std::byte* from,
                             int64_t bytes) {
  ASSIGN_OR_RETURN(void* const on, Usable(stream));
  Select();
  return Check(api_.copy(on, to, from, bytes), "a copy");
}

absl::Status GpuDevice::Fill(DeviceStream stream, std::byte* to, uint8_t value, int64_t bytes) {
  ASSIGN_OR_RETURN(void* const on, Usable(stream));
  Select();
  return Check(api_.fill(on, to, value, bytes), "filling memory");
}

absl::Status GpuDevice::Launch(DeviceStream stream, std::string_view kernel,
                               std::span<const std::byte> arguments) {
  ASSIGN_OR_RETURN(void* const on, Usable(stream));
  Select();
  const auto found = kernels_.find(kernel);
  BATON_CHECK(found != kernels_.end());
  return found->second(stream, on, arguments);
}

// --- graphs

absl::Status GpuDevice::BeginCapture(DeviceStream stream) {
  ASSIGN_OR_RETURN(void* const on, Usable(stream));
  Select();
  RETURN_IF_ERROR(Check(api_.begin_capture(on), "beginning a graph"));
  const std::lock_guard lock(mutex_);
  BATON_CHECK(captured_.insert(stream.id).second);
  return absl::OkStatus();
}

absl::StatusOr<DeviceGraph> GpuDevice::EndCapture(DeviceStream stream) {
  ASSIGN_OR_RETURN(void* const on, Usable(stream));
  Select();
  {
    const std::lock_guard lock(mutex_);
    BATON_CHECK(captured_.erase(stream.id) == 1);
  }
  void* graph = nullptr;
  RETURN_IF_ERROR(Check(api_.end_capture(on, &graph), "making a graph"));
  return DeviceGraph{graphs_.Add(graph)};
}

absl::Status GpuDevice::LaunchGraph(DeviceStream stream, DeviceGraph graph) {
  ASSIGN_OR_RETURN(void* const on, Usable(stream, "launching a graph"));
  Select();
  return Check(api_.launch_graph(on, graphs_.At(graph.id)), "launching a graph");
}

}  // namespace baton
