// The operations of an emulated device: streams, what their heads wait for, and the order and the
// times in which they are executed, drawn by a seed among all that streams and events allow.
//
// Host threads submit, any of them. One thread executes: in virtual time the one that calls
// ExecuteNext or AdvanceTo, else the one in Serve. Times in ns from the start.
//
// Finds what a device would compute wrongly, as far as operations show it: a target of a copy is
// full of poison from the earliest moment at which it may be written until the copy is executed; a
// source in memory of the host must not change between submission and execution. Findings go to
// HappensBefore::Report.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <latch>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "common/status.h"
#include "engine/cuda/device/emulated/emulated_memory.h"
#include "engine/cuda/device/emulated/fault_plan.h"
#include "engine/cuda/device/emulated/happens_before.h"
#include "engine/cuda/device/emulated/operation.h"
#include "engine/cuda/device/emulated/operation_runner.h"

namespace baton {

// How long operations take: most of them up to twice `usual`, one in twenty up to `late`; now and
// then a stream stands still for up to `late` and then goes on at once.
struct DevicePace {
  int64_t usual_ns = 10'000;
  int64_t late_ns = 2'000'000;
};

class DeviceWork {
 public:
  struct Counts {
    uint64_t executed = 0;
    uint64_t blocking_calls = 0;   // calls in which a host thread waits for the device
    uint64_t pageable_copies = 0;  // copies that may block a host thread
  };

  DeviceWork(uint64_t seed, const DevicePace& pace, const FaultPlan& faults,
             const EmulatedMemory& memory, HappensBefore& order);

  // ---- submitting ----

  OperationRunner& runner() { return runner_; }  // for its kernels
  int AddStream(std::string_view name);
  int AddEvent();
  absl::Status Record(int event, int stream);
  absl::Status Wait(int stream, int event);
  bool reached(int event);
  void Synchronize(int event);
  // A copy, fill, kernel or notification.
  absl::Status Submit(int stream, Operation operation);
  absl::Status BeginCapture(int stream);
  absl::StatusOr<int> EndCapture(int stream);
  absl::Status LaunchGraph(int stream, int graph);
  std::optional<std::string> lost() const;
  // Reports operations under way that read or write this memory of the host.
  void CheckUnused(const std::byte* host, int64_t bytes);

  // ---- executing ----

  // Executes the operation that ends next; false: none can be executed.
  bool ExecuteNext();
  // The time at which the next operation ends.
  std::optional<int64_t> NextAt();
  // Executes what ends until then.
  void AdvanceTo(int64_t ns);
  // Executes in real time until Stop is called. `begun`: from then on others wait for this thread.
  void Serve(std::latch& begun);
  void Stop();
  Counts counts() const;

 private:
  using Lock = std::unique_lock<std::mutex>;
  struct Stream {
    std::string name;
    int timeline = -1;  // of HappensBefore
    std::deque<Operation> operations{};
    int64_t held_until = 0;
    std::optional<std::vector<Operation>> captured{};  // while it is captured
  };
  struct Graph {
    std::vector<Operation> nodes;
    uint64_t allocations = 0;  // that there were at its capture
  };

  absl::Status CheckSubmission(const Operation& operation);
  absl::Status CheckCopy(const Operation& operation) const;
  void Enqueue(Stream& stream, Operation operation);
  bool IsPending(const std::byte* host, int64_t bytes, bool only_writes) const;
  void StartReady();
  int64_t DrawEnd(Stream& stream);
  Stream* Next();  // the stream whose head ends next; null: none
  void Execute(Lock& lock, Stream& stream);
  void Lose(Lock& lock, std::string reason);
  uint64_t Below(uint64_t n) { return random_() % n; }

  const DevicePace pace_;
  const FaultPlan faults_;
  const EmulatedMemory& memory_;
  HappensBefore& order_;
  OperationRunner runner_;

  mutable std::mutex mutex_;
  std::condition_variable submitted_, executed_;
  std::mt19937_64 random_;
  std::deque<Stream> streams_;
  std::vector<std::shared_ptr<EventRecord>> events_;  // the latest record of each; null: none yet
  std::vector<Graph> graphs_;
  uint64_t n_submitted_ = 0, n_copies_ = 0, n_launches_ = 0;
  int64_t now_ = 0;
  bool is_served_ = false, is_stopping_ = false;
  std::optional<std::string> lost_;
  Counts counts_;
};

}  // namespace baton
