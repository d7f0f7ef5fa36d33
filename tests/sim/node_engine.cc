// The Node's engine and copier: those that are done on return, or later as a device's.
#include <algorithm>
#include <utility>

#include "tests/sim/node.h"
#include "tests/sim/violation.h"
#include "worker/announce.h"

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
  RunCopier();  // a fence may be reached
}

std::unique_ptr<CellCopier> Node::MakeCopier() {
  copier_ = nullptr;
  copier_stamp_ = 0;
  if (!swarm_.late_copies) return nullptr;
  auto copier = std::make_unique<LateCopier>(
      ViewOf(*pool_),
      LateCopier::Ports{
          .reached = [this](uint64_t after) { return late_->reached({after}); },
          .complain =
              [this](const std::string& what) { Require(false, "worker %d: %s", index_, what); },
          .submitted =
              [this](OperationId id, const std::byte* at, int64_t n_bytes) {
                PostedWrite(id, at, static_cast<uint64_t>(n_bytes));
              },
          .writes = [this](OperationId id) { LandingWrite(id); }});
  copier_ = copier.get();
  return copier;
}

// A copy begins and is executed, at times between which others do.
void Node::RunCopier() {
  if (copier_ == nullptr || copier_stamp_ != 0 || !copier_->can_step()) return;
  copier_stamp_ = ++stamp_;
  agenda_->Add(agenda_->now_us() + random_->Between(1, swarm_.copy_us()), What::kCopy, index_,
               copier_stamp_);
}

void Node::CopierDone(uint64_t stamp) {
  if (!alive() || stamp != copier_stamp_) return;
  copier_stamp_ = 0;
  copier_->Step(random_->Next());
  if (copier_->has_events()) WakeLink(agenda_->now_us() + WakeDelay());
  RunCopier();
}

}  // namespace baton::sim
