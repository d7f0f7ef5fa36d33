// The Node's engine: one that computes on return, or one that computes later as a device does.
#include <algorithm>
#include <utility>

#include "tests/sim/node.h"

namespace baton::sim {

void Node::MakeEngine() {
  const auto uses = [this](const StepBatch& batch) { CheckStep(batch); };
  const auto ran = [this](int n_tokens, double n_layers, double n_pairs) {
    const auto step_us = static_cast<double>(plan_.step_us + plan_.token_us * n_tokens);
    const double us = step_us * n_layers + plan_.pair_us * n_pairs;
    clock_us_ += std::max<int64_t>(1, static_cast<int64_t>(us) / swarm_.n_layers);
  };
  const bool is_late = swarm_.depth > 0;
  auto engine = is_late ? std::make_unique<SimEngine>(
                              swarm_.page_tokens, swarm_.n_layers, swarm_.windows,
                              [](const StepBatch&) {}, [](int, double, double) {})
                        : std::make_unique<SimEngine>(swarm_.page_tokens, swarm_.n_layers,
                                                      swarm_.windows, uses, ran);
  StepLimits limits{.max_step_tokens = plan_.max_step_tokens, .slice_keys = swarm_.segment_keys};
  if (swarm_.max_slice_tokens > 0) limits.max_slice_tokens = swarm_.max_slice_tokens;
  engine->set_limits(limits);
  engine_ = std::move(engine);
  late_ = nullptr;
  device_stamp_ = 0;
  if (!is_late) return;
  auto late =
      std::make_unique<LateEngine>(std::move(engine_), swarm_.depth, uses, [this] { RunDevice(); });
  late_ = late.get();
  engine_ = std::move(late);
}

// An operation takes up to half a step.
void Node::RunDevice() {
  if (device_stamp_ != 0) return;
  device_us_ = std::max(device_us_, clock_us_) + random_->Between(1, plan_.step_us / 2);
  device_stamp_ = ++stamp_;
  agenda_->Add(device_us_, What::kDevice, index_, device_stamp_);
}

// A device computes also while its process stands.
void Node::DeviceDone(uint64_t stamp) {
  if (!alive() || stamp != device_stamp_) return;
  device_stamp_ = 0;
  late_->Execute();
  if (late_->has_work()) RunDevice();
}

}  // namespace baton::sim
