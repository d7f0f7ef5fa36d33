#include "lab/emulated_engine.h"

#include <utility>

#include "common/check.h"
#include "common/log.h"
#include "worker/device_copier.h"

namespace baton {
namespace {

// Memory for logits, metadata and results, beside the KV. Addresses alone, until it is allocated.
constexpr int64_t kOtherBytes = int64_t{8} << 30;

EmulatedOptions OptionsOf(const LabConfig::Device& device, int64_t kv_bytes) {
  EmulatedOptions options{.seed = device.seed};
  options.memory_bytes = device.memory > 0 ? device.memory : kv_bytes + kOtherBytes;
  options.faults.lost_at = device.lost_at;
  return options;
}

}  // namespace

absl::StatusOr<std::unique_ptr<EmulatedEngine>> EmulatedEngine::Create(
    std::unique_ptr<Backend> cpu, const LabConfig::Device& options, int64_t kv_bytes) {
  std::unique_ptr<EmulatedEngine> engine(new EmulatedEngine(std::move(cpu), options, kv_bytes));
  ASSIGN_OR_RETURN(
      engine->backend_,
      DeviceBackend::Create(engine->device_, engine->kernels_.model(),
                            {.depth = options.depth, .uses_graphs = options.uses_graphs}));
  engine->engine_ = engine->backend_.get();
  return engine;
}

EmulatedEngine::EmulatedEngine(std::unique_ptr<Backend> cpu, const LabConfig::Device& options,
                               int64_t kv_bytes)
    : kernels_(std::move(cpu)), device_(OptionsOf(options, kv_bytes)) {
  kernels_.AddTo(device_.work().runner());
  device_.order().OnReport([this](const std::string& finding) {
    if (!is_checked_) return;
    ++findings_;
    LogError("emulated device: %s", finding);
  });
  thread_.emplace(device_);
}

EmulatedEngine::~EmulatedEngine() {
  backend_.reset();
  thread_.reset();
}

void EmulatedEngine::AddTo(WorkerStart* start) {
  start->make_copier = [this](const PoolView& pool, std::function<void()> wake,
                              WorkerStart::TellsWhy lost) {
    return std::make_unique<DeviceCopier>(device_, *engine_, pool,
                                          DeviceCopier::Ports{std::move(wake), std::move(lost)});
  };
  start->event_sent = [this] { EventSent(); };
  start->event_taken = [this] { EventTaken(); };
}

void EmulatedEngine::EventSent() {
  const VectorClock known = device_.order().Send();
  const std::lock_guard lock(mutex_);
  sent_.push_back(known);
}

void EmulatedEngine::EventTaken() {
  VectorClock known;
  {
    const std::lock_guard lock(mutex_);
    BATON_CHECK(!sent_.empty());
    known = std::move(sent_.front());
    sent_.pop_front();
  }
  device_.order().Receive(known);
}

}  // namespace baton
