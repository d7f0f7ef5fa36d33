#include "engine/cuda/device/device_timeline.h"

#include <algorithm>
#include <utility>

#include "common/check.h"

namespace baton {

DeviceTimeline::DeviceTimeline(Device& device, DeviceStream compute)
    : device_(device), compute_(compute), notify_(device.NewStream("notify")) {}

void DeviceTimeline::Check(const absl::Status& status) {
  if (status.ok() || lost_) return;
  const std::lock_guard lock(mutex_);
  lost_ = std::string(status.message());
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
  const std::lock_guard lock(mutex_);
  under_way_.push_back({++submitted_, event, std::move(deliver)});
}

void DeviceTimeline::Advance() {
  while (!under_way_.empty() && (device_.reached(under_way_.front().event) || lost_)) {
    // Asked after the event, which a lost device reaches, too.
    if (const std::optional<std::string> why = device_.lost()) Check(absl::UnavailableError(*why));
    Submission front;
    {
      const std::lock_guard lock(mutex_);
      front = std::move(under_way_.front());
      under_way_.pop_front();
      if (reached_event_) free_events_.push_back(*reached_event_);
      reached_event_ = front.event;
      reached_ = front.at;
    }
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

absl::Status DeviceTimeline::WaitFor(Fence fence, DeviceStream stream) {
  const std::lock_guard lock(mutex_);
  BATON_CHECK(fence.at <= submitted_);
  if (lost_) return absl::UnavailableError(*lost_);
  const auto submission =
      std::lower_bound(under_way_.begin(), under_way_.end(), fence.at,
                       [](const Submission& one, uint64_t at) { return one.at < at; });
  if (fence.at > reached_) return device_.Wait(stream, submission->event);
  return reached_event_ ? device_.Wait(stream, *reached_event_) : absl::OkStatus();
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
