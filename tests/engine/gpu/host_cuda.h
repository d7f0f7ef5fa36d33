// The functions of the CUDA plugin on memory of the host: streams execute at once, each call may be
// told to fail. For the host's side of the engine on a GPU; kernels are those that a test gives.
// One at a time, since the plugin's functions have no object.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <string>

#include "common/check.h"
#include "engine/cuda/plugin_abi.h"

namespace baton {

class HostCuda {
 public:
  static constexpr int32_t kOutOfMemory = 2, kLaunchFailure = 719;

  HostCuda() {
    BATON_CHECK(now_ == nullptr);
    now_ = this;
    api_.words = [](int32_t error) {
      return error == kOutOfMemory ? "out of memory" : "unspecified launch failure";
    };
    api_.select = [](int32_t) { return 0; };
    api_.allocate = [](int64_t bytes, void** to) { return now_->Take(false, bytes, to); };
    api_.allocate_pinned = [](int64_t bytes, void** to) { return now_->Take(true, bytes, to); };
    api_.free = [](void* at) { return now_->Give(false, at); };
    api_.free_pinned = [](void* at) { return now_->Give(true, at); };
    api_.memory = [](int64_t* free, int64_t* total) {
      *total = now_->total_bytes;
      *free = now_->total_bytes - now_->used_bytes_;
      return 0;
    };
    api_.new_stream = [](void** to) { return now_->Make("stream", to); };
    api_.new_event = [](void** to) { return now_->Make("event", to); };
    api_.delete_stream = [](void* at) { return now_->Unmake(at); };
    api_.delete_event = [](void* at) { return now_->Unmake(at); };
    api_.delete_graph = [](void* at) { return now_->Unmake(at); };
    api_.record = [](void*, void*) { return now_->ErrorOf("record"); };
    api_.wait = [](void*, void*) { return now_->ErrorOf("wait"); };
    api_.query = [](void*, int32_t* is_reached) {
      *is_reached = 1;
      return now_->ErrorOf("query");
    };
    api_.synchronize = [](void*) { return now_->ErrorOf("synchronize"); };
    api_.notify = [](void*, void (*call)(void*), void* argument) {
      const int32_t error = now_->ErrorOf("notify");
      if (error == 0) call(argument);
      return error;
    };
    api_.copy = [](void*, void* to, const void* from, int64_t bytes) {
      const int32_t error = now_->ErrorOf("copy");
      if (error == 0) std::memcpy(to, from, static_cast<size_t>(bytes));
      return error;
    };
    api_.fill = [](void*, void* to, int32_t value, int64_t bytes) {
      const int32_t error = now_->ErrorOf("fill");
      if (error == 0) std::memset(to, value, static_cast<size_t>(bytes));
      return error;
    };
    api_.begin_capture = [](void*) { return now_->ErrorOf("begin_capture"); };
    api_.end_capture = [](void*, void** graph) { return now_->Make("graph", graph); };
    api_.launch_graph = [](void*, void*) { return now_->ErrorOf("launch_graph"); };
    api_.model.create = [](const ModelView*, void** model) { return now_->Make("model", model); };
    api_.model.remove = [](void* model) { static_cast<void>(now_->Unmake(model)); };
    api_.model.test = [](const ModelView*, char* fault, int32_t size) {
      std::snprintf(fault, static_cast<size_t>(size), "%s", now_->kernel_fault.c_str());
      return 0;
    };
    api_.model.bytes = [](void*) { return int64_t{1000}; };
    api_.model.sample_scratch_bytes = [](int32_t, int32_t) { return int64_t{64}; };
    api_.model.sample = [](const float* logits, int32_t n, int32_t vocab, const void* rows, void*,
                           void* results, int32_t* sampled, void*) {
      now_->sample(logits, n, vocab, rows, results, sampled);
      return 0;
    };
  }
  ~HostCuda() { now_ = nullptr; }
  HostCuda(const HostCuda&) = delete;
  HostCuda& operator=(const HostCuda&) = delete;

  const BatonCudaApi& api() const { return api_; }
  // Streams, events, graphs, models and memory that were not given back.
  size_t n_left() const { return made_.size() + memory_.size(); }
  void FailAt(std::string call, int32_t error = kLaunchFailure) {
    fails_at_ = std::move(call);
    error_ = error;
  }

  int64_t total_bytes = int64_t{1} << 30;
  std::string kernel_fault;  // that the test of kernels finds
  std::function<void(const float* logits, int32_t n, int32_t vocab, const void* rows, void* results,
                     int32_t* sampled)>
      sample;

 private:
  int32_t ErrorOf(const std::string& call) const { return call == fails_at_ ? error_ : 0; }
  int32_t Take(bool is_pinned, int64_t bytes, void** to) {
    if (const int32_t error = ErrorOf(is_pinned ? "allocate_pinned" : "allocate")) return error;
    if (!is_pinned && used_bytes_ + bytes > total_bytes) return kOutOfMemory;
    *to = std::aligned_alloc(64, static_cast<size_t>((bytes + 63) / 64 * 64));
    std::memset(*to, 0xab, static_cast<size_t>(bytes));  // nothing is zero by itself
    memory_[*to] = {is_pinned, bytes};
    used_bytes_ += is_pinned ? 0 : bytes;
    return 0;
  }
  int32_t Give(bool is_pinned, void* at) {
    const auto found = memory_.find(at);
    BATON_CHECK(found != memory_.end() && found->second.is_pinned == is_pinned);
    used_bytes_ -= is_pinned ? 0 : found->second.bytes;
    memory_.erase(found);
    std::free(at);
    return 0;
  }
  int32_t Make(const std::string& what, void** to) {
    if (const int32_t error = ErrorOf(what)) return error;
    *to = new char;
    made_[*to] = what;
    return 0;
  }
  int32_t Unmake(void* at) {
    BATON_CHECK(made_.erase(at) == 1);
    delete static_cast<char*>(at);
    return 0;
  }

  struct Memory {
    bool is_pinned;
    int64_t bytes;
  };
  static inline HostCuda* now_ = nullptr;
  BatonCudaApi api_{};
  std::map<void*, Memory> memory_;
  std::map<void*, std::string> made_;
  int64_t used_bytes_ = 0;
  std::string fails_at_;
  int32_t error_ = 0;
};

}  // namespace baton
