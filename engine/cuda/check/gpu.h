// Memory, streams and events of the check program, each with one owner, and times of what a stream
// does. A CUDA error ends the process with the place and CUDA's words: every later measurement
// would be of a broken device. One thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include <cuda_runtime_api.h>

namespace baton {

inline void CheckGpu(cudaError_t error, const char* file, int line) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s:%d: %s: %s\n", file, line, cudaGetErrorName(error),
               cudaGetErrorString(error));
  std::_Exit(2);
}
#define GPU_CHECK(call) ::baton::CheckGpu((call), __FILE__, __LINE__)

// Memory of the GPU, or pinned memory of the host (kPinned), for `n` values.
template <typename T, bool kPinned = false>
class GpuArray {
 public:
  explicit GpuArray(int64_t n) : n_(n) {
    const size_t bytes = static_cast<size_t>(n) * sizeof(T);
    void* memory = nullptr;
    GPU_CHECK(kPinned ? cudaMallocHost(&memory, bytes) : cudaMalloc(&memory, bytes));
    data_ = static_cast<T*>(memory);
  }
  ~GpuArray() {
    if (data_ != nullptr) GPU_CHECK(kPinned ? cudaFreeHost(data_) : cudaFree(data_));
  }
  GpuArray(GpuArray&& other) noexcept : data_(std::exchange(other.data_, nullptr)), n_(other.n_) {}
  GpuArray& operator=(GpuArray&&) = delete;

  T* get() const { return data_; }
  int64_t size() const { return n_; }
  size_t bytes() const { return static_cast<size_t>(n_) * sizeof(T); }

  // Both wait for the copy: cudaMemcpy from pageable memory may return while the last part is on
  // its way, and streams of this program do not wait for it.
  std::vector<T> Read() const {
    std::vector<T> values(static_cast<size_t>(n_));
    GPU_CHECK(cudaMemcpy(values.data(), data_, bytes(), cudaMemcpyDefault));
    return values;
  }
  void Write(std::span<const T> values) {
    GPU_CHECK(cudaMemcpy(data_, values.data(), values.size_bytes(), cudaMemcpyDefault));
    GPU_CHECK(cudaDeviceSynchronize());
  }
  // Fills with bytes 0xff, NaN of every kind, to show what nothing has written.
  void Poison(cudaStream_t stream) { GPU_CHECK(cudaMemsetAsync(data_, 0xff, bytes(), stream)); }

 private:
  T* data_ = nullptr;
  int64_t n_;
};

class Stream {
 public:
  Stream() { GPU_CHECK(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking)); }
  ~Stream() { GPU_CHECK(cudaStreamDestroy(stream_)); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  operator cudaStream_t() const { return stream_; }
  void Wait() const { GPU_CHECK(cudaStreamSynchronize(stream_)); }

 private:
  cudaStream_t stream_ = nullptr;
};

class Event {
 public:
  explicit Event(unsigned flags = cudaEventDefault) {
    GPU_CHECK(cudaEventCreateWithFlags(&event_, flags));
  }
  ~Event() { GPU_CHECK(cudaEventDestroy(event_)); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  operator cudaEvent_t() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

// Returns the value below which the share `part` of all values lies.
inline double Quantile(std::vector<double> values, double part) {
  std::sort(values.begin(), values.end());
  const double at = part * static_cast<double>(values.size() - 1);
  return values[static_cast<size_t>(at)];
}

// Returns the median time in microseconds of what `submit` puts into the stream, after two runs
// that do not count.
inline double MedianMicros(const Stream& stream, int repeats, const std::function<void()>& submit) {
  Event begin, end;
  std::vector<double> micros;
  for (int i = -2; i < repeats; ++i) {
    GPU_CHECK(cudaEventRecord(begin, stream));
    submit();
    GPU_CHECK(cudaEventRecord(end, stream));
    GPU_CHECK(cudaEventSynchronize(end));
    float millis = 0;
    GPU_CHECK(cudaEventElapsedTime(&millis, begin, end));
    if (i >= 0) micros.push_back(millis * 1000.0);
  }
  return Quantile(micros, 0.5);
}

}  // namespace baton
