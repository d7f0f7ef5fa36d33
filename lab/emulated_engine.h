// A worker's engine on an emulated device in real time (lab.device): the CPU's engine as its
// kernels, behind streams, events and copies whose order and times are drawn by a seed, with memory
// that the host cannot read. Bits and numerics id are the CPU's. What a device would do wrongly, a
// missing wait above all, is logged as an error and counted (findings).
//
// Made before the worker, and gone after it. Any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "engine/cuda/device/device_backend.h"
#include "engine/cuda/device/emulated/cpu_step_kernels.h"
#include "engine/cuda/device/emulated/device_thread.h"
#include "engine/cuda/device/emulated/emulated_device.h"
#include "lab/lab_config.h"
#include "worker/worker_options.h"

namespace baton {

class EmulatedEngine {
 public:
  // cpu: the engine that computes, of depth 1. kv_bytes: of the worker's pool, for which there is
  // room unless options.memory bounds it. Errors: those of DeviceBackend::Create.
  static absl::StatusOr<std::unique_ptr<EmulatedEngine>> Create(std::unique_ptr<Backend> cpu,
                                                                const LabConfig::Device& options,
                                                                int64_t kv_bytes);
  ~EmulatedEngine();
  EmulatedEngine(const EmulatedEngine&) = delete;
  EmulatedEngine& operator=(const EmulatedEngine&) = delete;

  // The engine itself, for the worker: taken once.
  std::unique_ptr<Backend> TakeBackend() { return std::move(backend_); }
  // Has a worker copy KV on the device. The engine outlives the worker.
  void AddTo(WorkerStart* start);
  // The worker has stopped: what it frees from here on is of threads that have ended, which the
  // device does not know to be joined.
  void WorkerStopped() { is_checked_ = false; }
  int64_t findings() const { return findings_; }
  DeviceMemory memory() const { return device_.memory(); }

 private:
  EmulatedEngine(std::unique_ptr<Backend> cpu, const LabConfig::Device& options, int64_t kv_bytes);
  void EventSent();
  void EventTaken();

  CpuStepKernels kernels_;
  EmulatedDevice device_;
  std::atomic<bool> is_checked_ = true;
  std::atomic<int64_t> findings_ = 0;
  std::mutex mutex_;
  std::deque<VectorClock> sent_;  // what the link thread knew at each event not yet taken
  std::optional<DeviceThread> thread_;
  DeviceBackend* engine_ = nullptr;
  std::unique_ptr<DeviceBackend> backend_;
};

}  // namespace baton
