// A GPU as a Device (device.h), behind the functions of the CUDA plugin. Kernels are functions of
// the host that put CUDA's into a stream (step_kernels.h); they are added before they are launched.
//
// Any thread. The first error of CUDA that is no lack of memory loses the device.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "engine/cuda/device/device.h"
#include "engine/cuda/plugin_abi.h"

namespace baton {

class GpuDevice final : public Device {
 public:
  // Puts a kernel's work into the stream; cuda_stream is CUDA's own.
  using Kernel = std::function<absl::Status(DeviceStream stream, void* cuda_stream,
                                            std::span<const std::byte> arguments)>;

  // api: of the plugin; index: of a GPU that it has opened.
  GpuDevice(const BatonCudaApi& api, int index);
  ~GpuDevice() override;  // nothing of it is under way
  GpuDevice(const GpuDevice&) = delete;
  GpuDevice& operator=(const GpuDevice&) = delete;

  void AddKernel(std::string name, Kernel kernel);
  // The status of a call of the plugin, which `what` names: an error loses the device.
  absl::Status Check(int32_t error, std::string_view what);
  const BatonCudaApi& api() const { return api_; }
  // ResourceExhausted for a lack of memory, which loses nothing; else as Check.
  absl::Status CheckMemory(int32_t error, std::string_view what);
  // Counts memory that the plugin has taken by itself.
  void CountUsed(int64_t bytes);
  // Makes the GPU the calling thread's.
  void Select();

  absl::StatusOr<std::byte*> Allocate(int64_t bytes, std::string_view what) override;
  absl::StatusOr<std::byte*> AllocatePinned(int64_t bytes, std::string_view what) override;
  void Free(std::byte* memory) override;
  // Memory that this process does not use counts as free: others on the GPU have their own share.
  DeviceMemory memory() const override;

  DeviceStream NewStream(std::string_view name) override;
  DeviceEvent NewEvent() override;
  absl::Status Record(DeviceEvent event, DeviceStream stream) override;
  absl::Status Wait(DeviceStream stream, DeviceEvent event) override;
  bool reached(DeviceEvent event) override;
  void Synchronize(DeviceEvent event) override;
  absl::Status Notify(DeviceStream stream, std::function<void()> call) override;

  absl::Status Copy(DeviceStream stream, std::byte* to, const std::byte* from,
                    int64_t bytes) override;
  absl::Status Fill(DeviceStream stream, std::byte* to, uint8_t value, int64_t bytes) override;
  absl::Status Launch(DeviceStream stream, std::string_view kernel,
                      std::span<const std::byte> arguments) override;
  using Device::Launch;

  absl::Status BeginCapture(DeviceStream stream) override;
  absl::StatusOr<DeviceGraph> EndCapture(DeviceStream stream) override;
  absl::Status LaunchGraph(DeviceStream stream, DeviceGraph graph) override;

  std::optional<std::string> lost() const override;

 private:
  // CUDA's objects by number; null where one could not be made.
  class Handles {
   public:
    int Add(void* handle);
    void* At(int id) const;
    const std::deque<void*>& all() const { return handles_; }

   private:
    mutable std::mutex mutex_;
    std::deque<void*> handles_;
  };

  absl::StatusOr<std::byte*> Take(bool is_pinned, int64_t bytes, std::string_view what);
  // CUDA's stream. Unavailable once the device is lost; FailedPrecondition: a capture is under way,
  // which CUDA would break off for `not_kept`, if that is given.
  absl::StatusOr<void*> Usable(DeviceStream stream, const char* not_kept = nullptr) const;

  const BatonCudaApi& api_;
  const int index_;
  std::map<std::string, Kernel, std::less<>> kernels_;
  Handles streams_, events_, graphs_;
  mutable std::mutex mutex_;  // of what follows
  struct Memory {
    bool is_pinned = false;  // the host's
    int64_t bytes = 0;
  };
  std::map<std::byte*, Memory> taken_;
  int64_t used_bytes_ = 0;  // of the GPU
  std::set<int> captured_;  // streams
  std::optional<std::string> lost_;
};

}  // namespace baton
