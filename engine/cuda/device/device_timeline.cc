#include "engine/cuda/device/device_timeline.h"

#include <algorithm>
#include <utility>

#include "common/check.h"

namespace baton {

DeviceTimeline::DeviceTimeline(Device& device, DeviceStream compute)
    : device_(device), compute_(compute), notify_(device.NewStream("notify")) {}

void DeviceTimeline::Check(const absl::Status& status) {
  if (!status.ok() && !lost_) lost_ = std::string(status.message());
}

DeviceEvent DeviceTimeline::TakeEvent() {
  if (free_events_.empty()) return device_.NewEvent();
  const DeviceEvent event = free_events_.back();
  free_events_.pop_back();
  return event;
}

void DeviceTimeline::Submitted(std::function<void()> deliver) {
  const DeviceEvent event = TakeEvent();
  Check(device_.Record(event, compute_));
  under_way_.push_back({++submitted_, event, std::move(deliver)});
}

void DeviceTimeline::Advance() {
  while (!under_way_.empty() && (device_.reached(under_way_.front().event) || lost_)) {
    // Asked after the event, which a lost device reaches, too.
    if (!lost_) lost_ = device_.lost();
    Submission front = std::move(under_way_.front());
    under_way_.pop_front();
    free_events_.push_back(front.event);
    reached_ = front.at;
    if (front.deliver != nullptr) front.deliver();
    if (lost_) dropped_.push_back(std::move(front));
  }
}

bool DeviceTimeline::reached(Fence fence) {
  BATON_CHECK(fence.at <= submitted_);
  if (fence.at > reached_) Advance();
  return fence.at <= reached_;
}

void DeviceTimeline::WakeAt(Fence fence, const std::function<void()>& wake) {
  if (reached(fence)) return wake();  // always, once the device is lost
  const auto submission =
      std::lower_bound(under_way_.begin(), under_way_.end(), fence.at,
                       [](const Submission& one, uint64_t at) { return one.at < at; });
  Check(device_.Wait(notify_, submission->event));
  const absl::Status status = device_.Notify(notify_, [wakes = wakes_, wake] {
    const std::lock_guard lock(wakes->mutex);
    if (!wakes->are_stopped) wake();
  });
  Check(status);
  if (!status.ok()) wake();  // nobody else will
}

void DeviceTimeline::StopWaking() {
  const std::lock_guard lock(wakes_->mutex);
  wakes_->are_stopped = true;
}

void DeviceTimeline::Finish() {
  const DeviceEvent last = TakeEvent();
  if (device_.Record(last, compute_).ok()) device_.Synchronize(last);  // else it is lost
  free_events_.push_back(last);
  BATON_CHECK(reached({submitted_}));
  dropped_.clear();
}

}  // namespace baton
