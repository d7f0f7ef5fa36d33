// The memory of a device as a kernel of the emulated device sees it. Kernels reach it by this
// alone, so every access that they tell is checked against all others (HappensBefore) and against
// what is allocated. Used inside the kernel only, on the thread that executes it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "engine/cuda/device/emulated/emulated_memory.h"
#include "engine/cuda/device/emulated/happens_before.h"
#include "engine/cuda/device/emulated/operation.h"

namespace baton {

class KernelMemory {
 public:
  KernelMemory(const Operation& operation, int stream, const EmulatedMemory& memory,
               HappensBefore& order);

  // Return the bytes behind addresses of the device, which the kernel reads (writes) now. Addresses
  // that are no memory of one allocation give poison and an error().
  const std::byte* Reads(const std::byte* at, int64_t bytes);
  std::byte* Writes(std::byte* at, int64_t bytes);
  template <typename T>
  const T* Reads(const T* at, int64_t count) {
    return reinterpret_cast<const T*>(
        Reads(reinterpret_cast<const std::byte*>(at), count * static_cast<int64_t>(sizeof(T))));
  }
  template <typename T>
  T* Writes(T* at, int64_t count) {
    return reinterpret_cast<T*>(
        Writes(reinterpret_cast<std::byte*>(at), count * static_cast<int64_t>(sizeof(T))));
  }
  // Returns the bytes alone; the kernel tells by Reads and Writes what it touches of them.
  std::byte* At(std::byte* at, int64_t bytes) { return Bytes(at, bytes, "touches"); }
  // The kernel cannot be computed: the device is lost. `why` follows the kernel's name.
  void Fail(const std::string& why);
  // Names what the device is lost of; empty: nothing.
  const std::string& error() const { return error_; }

 private:
  std::byte* Access(const std::byte* at, int64_t bytes, bool is_write);
  std::byte* Bytes(const std::byte* at, int64_t bytes, const char* verb);

  const Operation& operation_;
  const EmulatedMemory& memory_;
  HappensBefore& order_;
  const HappensBefore::Actor actor_;
  std::deque<std::vector<std::byte>> nowhere_;  // stands for memory that is none
  std::string error_;
};

}  // namespace baton
