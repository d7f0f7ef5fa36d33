#include "engine/cuda/device/emulated/device_work.h"

#include <algorithm>
#include <chrono>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/check.h"
#include "common/clock.h"

namespace baton {
namespace {

bool Overlap(const std::byte* a, int64_t a_bytes, const std::byte* b, int64_t b_bytes) {
  return a < b + b_bytes && b < a + a_bytes;
}

const char* KindName(Operation::Kind kind) {
  switch (kind) {
    case Operation::Kind::kCopy:
      return "copy";
    case Operation::Kind::kFill:
      return "fill";
    case Operation::Kind::kKernel:
      return "kernel";
    case Operation::Kind::kRecord:
      return "record";
    case Operation::Kind::kWait:
      return "wait";
    case Operation::Kind::kNotify:
      return "notification";
  }
  return "";
}

absl::Status LostError(const std::string& reason) {
  return absl::UnavailableError(absl::StrCat("device: lost: ", reason, "; start the worker again"));
}

}  // namespace

DeviceWork::DeviceWork(uint64_t seed, const DevicePace& pace, const FaultPlan& faults,
                       const EmulatedMemory& memory, HappensBefore& order)
    : pace_(pace),
      faults_(faults),
      memory_(memory),
      order_(order),
      runner_(memory, order),
      random_(seed) {
  BATON_CHECK(pace.usual_ns > 0 && pace.late_ns > 0);
}

// --- submitting

int DeviceWork::AddStream(std::string_view name) {
  const std::lock_guard lock(mutex_);
  streams_.push_back({.name = std::string(name), .timeline = order_.AddStream(name)});
  return static_cast<int>(streams_.size()) - 1;
}

int DeviceWork::AddEvent() {
  const std::lock_guard lock(mutex_);
  events_.emplace_back();
  return static_cast<int>(events_.size()) - 1;
}

absl::Status DeviceWork::Record(int event, int stream) {
  auto record = std::make_shared<EventRecord>();
  RETURN_IF_ERROR(Submit(stream, {.kind = Operation::Kind::kRecord, .record = record}));
  const std::lock_guard lock(mutex_);
  events_.at(static_cast<size_t>(event)) = std::move(record);
  return absl::OkStatus();
}

absl::Status DeviceWork::Wait(int stream, int event) {
  std::shared_ptr<EventRecord> record;
  {
    const std::lock_guard lock(mutex_);
    record = events_.at(static_cast<size_t>(event));
    if (record == nullptr) {  // a GPU would not wait at all
      order_.Report(absl::StrFormat("stream %s waits for an event that nobody has recorded",
                                    streams_.at(static_cast<size_t>(stream)).name));
      return absl::OkStatus();
    }
  }
  return Submit(stream, {.kind = Operation::Kind::kWait, .record = std::move(record)});
}

bool DeviceWork::reached(int event) {
  const std::lock_guard lock(mutex_);
  const std::shared_ptr<EventRecord>& record = events_.at(static_cast<size_t>(event));
  if (record == nullptr || !(record->is_done || lost_)) return lost_.has_value();
  order_.Receive(record->clock);
  return true;
}

void DeviceWork::Synchronize(int event) {
  bool is_served = false;
  {
    Lock lock(mutex_);
    ++counts_.blocking_calls;
    const std::shared_ptr<EventRecord> record = events_.at(static_cast<size_t>(event));
    BATON_CHECK(record != nullptr);
    is_served = is_served_;
    if (is_served) executed_.wait(lock, [&] { return record->is_done || lost_.has_value(); });
  }
  while (!reached(event)) BATON_CHECK(!is_served && ExecuteNext());
}

absl::Status DeviceWork::CheckSubmission(const Operation& operation) {
  using Kind = Operation::Kind;
  if (runner_.is_notifying()) {
    order_.Report("a notification calls the device");
    return absl::FailedPreconditionError("device: a notification must not call the device");
  }
  if (lost_) return LostError(*lost_);
  const bool is_copy = operation.kind == Kind::kCopy || operation.kind == Kind::kFill;
  if (is_copy) {
    if (++n_copies_ == faults_.copy)
      return absl::InternalError("device: refused a copy; start the worker again");
    return CheckCopy(operation);
  }
  if (operation.kind != Kind::kKernel) return absl::OkStatus();
  if (++n_launches_ == faults_.launch) {
    return absl::InternalError(
        absl::StrFormat("device: refused to launch %s; start the worker again", operation.kernel));
  }
  if (runner_.HasKernel(operation.kernel)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("device: has no kernel ", operation.kernel));
}

absl::Status DeviceWork::CheckCopy(const Operation& operation) const {
  const auto [to, from, bytes] = std::tuple(operation.to, operation.from, operation.bytes);
  const bool is_fill = operation.kind == Operation::Kind::kFill;
  const bool to_device = memory_.IsDevice(to);
  const bool from_device = !is_fill && memory_.IsDevice(from);
  if (bytes <= 0 || (!to_device && (is_fill || !from_device)))
    return absl::InvalidArgumentError("device: a copy touches memory of the device");
  if ((to_device && memory_.Bytes(to, bytes) == nullptr) ||
      (from_device && memory_.Bytes(from, bytes) == nullptr)) {
    return absl::InvalidArgumentError(
        absl::StrFormat("device: a copy of %d bytes to %p reaches beyond the memory", bytes, to));
  }
  if (to_device && from_device && Overlap(to, bytes, from, bytes))
    return absl::InvalidArgumentError("device: source and target of a copy overlap");
  return absl::OkStatus();
}

absl::Status DeviceWork::Submit(int stream, Operation operation) {
  const std::lock_guard lock(mutex_);
  RETURN_IF_ERROR(CheckSubmission(operation));
  Stream& s = streams_.at(static_cast<size_t>(stream));
  using Kind = Operation::Kind;
  if (operation.kind == Kind::kCopy) {
    const std::byte* const host = memory_.IsDevice(operation.to) ? operation.from : operation.to;
    operation.is_pinned = memory_.IsPinned(host, operation.bytes);
  }
  if (s.captured) {
    if (operation.kind == Kind::kRecord || operation.kind == Kind::kWait ||
        operation.kind == Kind::kNotify) {
      return absl::FailedPreconditionError(
          absl::StrFormat("device: stream %s is being captured", s.name));
    }
    s.captured->push_back(std::move(operation));
    return absl::OkStatus();
  }
  Enqueue(s, std::move(operation));
  return absl::OkStatus();
}

void DeviceWork::Enqueue(Stream& stream, Operation operation) {
  using Kind = Operation::Kind;
  if (operation.kind == Kind::kWait) order_.Wait(stream.timeline, operation.record->clock);
  operation.number = ++n_submitted_;
  operation.name =
      absl::StrFormat("%s%s %d", operation.captured_allocations ? "graph's " : "",
                      operation.kind == Kind::kKernel ? absl::StrCat("kernel ", operation.kernel)
                                                      : KindName(operation.kind),
                      operation.number);
  operation.clock = order_.Submit(stream.timeline);
  if (operation.kind == Kind::kRecord) operation.record->clock = operation.clock;
  if (operation.kind == Kind::kCopy) {
    const auto [to, from, bytes] = std::tuple(operation.to, operation.from, operation.bytes);
    const bool from_host = !memory_.IsDevice(from), to_host = !memory_.IsDevice(to);
    if ((from_host || to_host) && !operation.is_pinned) ++counts_.pageable_copies;
    // An earlier operation that is still to write the source, or to use the target, comes first.
    if (from_host && !IsPending(from, bytes, /*only_writes=*/true))
      operation.source_digest = HostDigest(from, bytes);
    if (to_host && !IsPending(to, bytes, /*only_writes=*/false)) {
      Poison(to, bytes);
      operation.is_poisoned = true;
    }
  }
  stream.operations.push_back(std::move(operation));
  submitted_.notify_one();
}

bool DeviceWork::IsPending(const std::byte* host, int64_t bytes, bool only_writes) const {
  for (const Stream& stream : streams_) {
    for (const Operation& o : stream.operations) {
      if (o.kind != Operation::Kind::kCopy) continue;
      if (Overlap(o.to, o.bytes, host, bytes)) return true;
      if (!only_writes && Overlap(o.from, o.bytes, host, bytes)) return true;
    }
  }
  return false;
}

void DeviceWork::CheckUnused(const std::byte* host, int64_t bytes) {
  const std::lock_guard lock(mutex_);
  if (IsPending(host, bytes, /*only_writes=*/false))
    order_.Report("memory of the host is freed that an operation under way uses");
}

// --- graphs

absl::Status DeviceWork::BeginCapture(int stream) {
  const std::lock_guard lock(mutex_);
  if (lost_) return LostError(*lost_);
  Stream& s = streams_.at(static_cast<size_t>(stream));
  BATON_CHECK(!s.captured);
  s.captured.emplace();
  return absl::OkStatus();
}

absl::StatusOr<int> DeviceWork::EndCapture(int stream) {
  const std::lock_guard lock(mutex_);
  Stream& s = streams_.at(static_cast<size_t>(stream));
  BATON_CHECK(s.captured.has_value());
  Graph graph{*std::move(s.captured), memory_.n_allocations()};
  s.captured.reset();
  if (lost_) return LostError(*lost_);
  for (Operation& node : graph.nodes) node.captured_allocations = graph.allocations;
  graphs_.push_back(std::move(graph));
  return static_cast<int>(graphs_.size()) - 1;
}

absl::Status DeviceWork::LaunchGraph(int stream, int graph) {
  const std::lock_guard lock(mutex_);
  if (lost_) return LostError(*lost_);
  Stream& s = streams_.at(static_cast<size_t>(stream));
  if (s.captured) {
    return absl::FailedPreconditionError(
        absl::StrFormat("device: stream %s is being captured", s.name));
  }
  if (++n_launches_ == faults_.launch)
    return absl::InternalError("device: refused to launch a graph; start the worker again");
  for (const Operation& node : graphs_.at(static_cast<size_t>(graph)).nodes) Enqueue(s, node);
  return absl::OkStatus();
}

std::optional<std::string> DeviceWork::lost() const {
  const std::lock_guard lock(mutex_);
  return lost_;
}

// --- executing

int64_t DeviceWork::DrawEnd(Stream& stream) {
  const uint64_t kind = Below(100);
  const int64_t max = kind < 75   ? pace_.usual_ns * 2
                      : kind < 95 ? pace_.usual_ns * 20
                                  : pace_.late_ns;
  int64_t ns = static_cast<int64_t>(Below(static_cast<uint64_t>(max)));
  if (faults_.slow_from != 0 && counts_.executed + 1 >= faults_.slow_from)
    ns *= faults_.slow_factor;
  if (Below(32) == 0)
    stream.held_until = now_ + static_cast<int64_t>(Below(static_cast<uint64_t>(pace_.late_ns)));
  return now_ < stream.held_until ? stream.held_until : now_ + ns;
}

void DeviceWork::StartReady() {
  using Kind = Operation::Kind;
  for (Stream& stream : streams_) {
    if (stream.operations.empty() || stream.operations.front().ends_at) continue;
    Operation& head = stream.operations.front();
    if (head.kind == Kind::kWait && !head.record->is_done) continue;
    head.ends_at = head.kind == Kind::kWait ? now_ : DrawEnd(stream);
    if (head.kind != Kind::kCopy && head.kind != Kind::kFill) continue;
    if (std::byte* const target = memory_.Bytes(head.to, head.bytes); target != nullptr) {
      Poison(target, head.bytes);
    } else if (!memory_.IsDevice(head.to) && !head.is_poisoned) {
      Poison(head.to, head.bytes);
    }
  }
}

DeviceWork::Stream* DeviceWork::Next() {
  Stream* next = nullptr;
  const auto end = [](const Stream& s) { return *s.operations.front().ends_at; };
  for (Stream& stream : streams_) {
    if (stream.operations.empty() || !stream.operations.front().ends_at) continue;
    if (next == nullptr || end(stream) < end(*next) ||
        (end(stream) == end(*next) && Below(2) == 0)) {
      next = &stream;
    }
  }
  return next;
}

bool DeviceWork::ExecuteNext() {
  Lock lock(mutex_);
  BATON_CHECK(!is_served_);
  StartReady();
  Stream* const next = Next();
  if (next == nullptr) return false;
  Execute(lock, *next);
  return true;
}

std::optional<int64_t> DeviceWork::NextAt() {
  const Lock lock(mutex_);
  BATON_CHECK(!is_served_);
  StartReady();
  const Stream* const next = Next();
  if (next == nullptr) return std::nullopt;
  return next->operations.front().ends_at;
}

void DeviceWork::AdvanceTo(int64_t ns) {
  for (std::optional<int64_t> next = NextAt(); next && *next <= ns; next = NextAt()) ExecuteNext();
  const Lock lock(mutex_);
  now_ = std::max(now_, ns);
}

void DeviceWork::Serve(std::latch& begun) {
  Lock lock(mutex_);
  BATON_CHECK(!is_served_);
  is_served_ = true;
  begun.count_down();
  const absl::Time start = MonotonicNow() - absl::Nanoseconds(now_);
  while (!is_stopping_) {
    now_ = std::max(now_, absl::ToInt64Nanoseconds(MonotonicNow() - start));
    StartReady();
    Stream* const next = Next();
    if (next == nullptr) {
      submitted_.wait(lock);
    } else if (const int64_t wait = *next->operations.front().ends_at - now_; wait > 0) {
      submitted_.wait_for(lock, std::chrono::nanoseconds(wait));
    } else {
      Execute(lock, *next);
    }
  }
  is_served_ = false;
  is_stopping_ = false;
}

void DeviceWork::Stop() {
  const Lock lock(mutex_);
  is_stopping_ = true;
  submitted_.notify_one();
}

DeviceWork::Counts DeviceWork::counts() const {
  const Lock lock(mutex_);
  return counts_;
}

// Executes the head of the stream, without the lock: host threads submit meanwhile.
void DeviceWork::Execute(Lock& lock, Stream& stream) {
  const Operation& head = stream.operations.front();
  now_ = std::max(now_, *head.ends_at);
  if (++counts_.executed == faults_.lost_at) return Lose(lock, absl::StrCat("at ", head.name));
  lock.unlock();
  std::string error = runner_.Run(head, stream.timeline);
  lock.lock();
  if (!error.empty()) return Lose(lock, std::move(error));
  if (head.kind == Operation::Kind::kRecord) head.record->is_done = true;
  stream.operations.pop_front();
  executed_.notify_all();
}

void DeviceWork::Lose(Lock& lock, std::string reason) {
  lost_ = std::move(reason);
  std::vector<Operation> dropped;
  for (Stream& stream : streams_) {
    for (Operation& operation : stream.operations) {
      if (operation.kind == Operation::Kind::kRecord) operation.record->is_done = true;
      if (operation.kind == Operation::Kind::kNotify) dropped.push_back(std::move(operation));
    }
    stream.operations.clear();
  }
  executed_.notify_all();
  lock.unlock();
  for (const Operation& operation : dropped) runner_.Notify(operation);
  lock.lock();
}

}  // namespace baton
