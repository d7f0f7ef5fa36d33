// The fences of a backend on a device (Backend::submitted): each submission has an event behind it,
// and what is to happen when it is reached. Engine thread, but for WaitFor, and for the wakes,
// which a thread of the device calls.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "engine/cuda/device/device.h"
#include "engine/step/fence.h"

namespace baton {

class DeviceTimeline {
 public:
  // Submissions go to `compute`; wakes come from a stream of their own, so that computing does not
  // wait for the host.
  DeviceTimeline(Device& device, DeviceStream compute);
  ~DeviceTimeline() { StopWaking(); }
  DeviceTimeline(const DeviceTimeline&) = delete;
  DeviceTimeline& operator=(const DeviceTimeline&) = delete;

  // Ends a submission: everything that was given to the stream before belongs to it. deliver runs
  // in reached(), on the engine thread; may be null.
  void Submitted(std::function<void()> deliver = nullptr);
  // Remembers the first error of the device: nothing is computed any more, and everything counts as
  // reached, without results.
  void Check(const absl::Status& status);

  Fence submitted() const { return {submitted_}; }
  bool reached(Fence fence);
  void WakeAt(Fence fence, const std::function<void()>& wake);
  void StopWaking();
  // Makes what is submitted to the stream later wait for the fence. Any thread. Unavailable: the
  // fence is never reached, because the device is lost or has refused something.
  absl::Status WaitFor(Fence fence, DeviceStream stream);
  // Blocks until everything is reached and nothing is executed any more. For ends, tests and
  // benchmarks.
  void Finish();
  const std::optional<std::string>& lost() const { return lost_; }

 private:
  struct Submission {
    uint64_t at = 0;
    DeviceEvent event;
    std::function<void()> deliver;
  };
  // Shared with the wakes that the device holds.
  struct Wakes {
    std::mutex mutex;  // held while a wake runs
    bool are_stopped = false;
  };

  void Advance();
  DeviceEvent TakeEvent();  // to be put back into free_events_

  Device& device_;
  const DeviceStream compute_, notify_;
  std::mutex mutex_;  // of what WaitFor reads; the engine thread alone changes it
  std::deque<Submission> under_way_;
  // Counted as reached since an error; the device may still execute them, and what they own stays.
  std::vector<Submission> dropped_;
  std::vector<DeviceEvent> free_events_;
  // The event of what was reached last: waiting for it takes no time, and puts what waits behind
  // all that was reached.
  std::optional<DeviceEvent> reached_event_;
  uint64_t submitted_ = 0, reached_ = 0;
  std::optional<std::string> lost_;
  const std::shared_ptr<Wakes> wakes_ = std::make_shared<Wakes>();
};

}  // namespace baton
