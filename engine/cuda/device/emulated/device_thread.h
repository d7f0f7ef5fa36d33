// The thread of an emulated device in real time. Ends, with what is under way left undone, when it
// is destroyed; the device outlives it.
#pragma once

#include <pthread.h>

#include <latch>
#include <thread>

#include "engine/cuda/device/emulated/emulated_device.h"

namespace baton {

class DeviceThread {
 public:
  explicit DeviceThread(EmulatedDevice& device)
      : work_(device.work()), thread_([this] { work_.Serve(begun_); }) {
    begun_.wait();
    ::pthread_setname_np(thread_.native_handle(), "device");
  }
  ~DeviceThread() {
    work_.Stop();
    thread_.join();
  }
  DeviceThread(const DeviceThread&) = delete;
  DeviceThread& operator=(const DeviceThread&) = delete;

 private:
  DeviceWork& work_;
  std::latch begun_{1};
  std::thread thread_;
};

}  // namespace baton
