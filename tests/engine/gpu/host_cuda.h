// The functions of the CUDA plugin on memory of the host: streams execute at once, or late
// (host_streams.h); each call may be told to fail, or be left out as a driver with a bug would. For
// the host's side of the engine on a GPU; kernels are those that a test gives.
// One at a time, since the plugin's functions have no object.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/check.h"
#include "engine/cuda/plugin_abi.h"
#include "tests/engine/gpu/host_streams.h"

namespace baton {

class HostCuda {
 public:
  static constexpr int32_t kOutOfMemory = 2, kLaunchFailure = HostStreams::kLost;

  // Kernels of a test, called when they are executed.
  struct Kernels {
    std::function<void(const void* block, const int32_t* sampled, void* kv)> begin;
    std::function<void(int32_t layer, float* logits)> layer;
    std::function<void(int32_t from, int32_t to, float* logits)> scored_logits;
    std::function<void(const void* block, void* kv)> begin_slice;
    std::function<void(int32_t layer, int32_t from, int32_t to)> project_slice;
    std::function<void(int32_t layer, int32_t from, int32_t to, float* logits)> finish_slice;
    std::function<void(const float* logits, int32_t n, int32_t vocab, const void* rows,
                       void* results, int32_t* sampled)>
        sample;
  };

  // seed 0: operations are executed at once.
  explicit HostCuda(uint64_t seed = 0) : streams_(seed) {
    BATON_CHECK(now_ == nullptr);
    now_ = this;
    SetMemoryCalls();
    SetStreamCalls();
    SetModelCalls();
  }
  // The driver makes the calls that it still owes.
  ~HostCuda() {
    streams_.ExecuteAll();
    for (void* const at : kept_) std::free(at);
    now_ = nullptr;
  }
  HostCuda(const HostCuda&) = delete;
  HostCuda& operator=(const HostCuda&) = delete;

  const BatonCudaApi& api() const { return api_; }
  HostStreams& streams() { return streams_; }
  // Streams, events, graphs, models and memory that were not given back.
  size_t n_left() const { return made_.size() + memory_.size(); }
  // Fails all such calls but the next `after`. kLaunchFailure loses the device, as with CUDA:
  // whatever is called then fails.
  void FailAt(std::string call, int32_t error = kLaunchFailure, int after = 0) {
    fails_at_ = std::move(call);
    error_ = error;
    fails_after_ = after;
  }
  // From now on "wait" and "synchronize" do nothing, "query" says that every event is reached.
  void Ignore(std::string call) { ignored_.insert(std::move(call)); }
  // A kernel: `run` is called when it is executed. uses: addresses in the memory that it touches.
  int32_t Launch(void* stream, std::vector<const void*> uses, std::function<void()> run) {
    HostStreams::Operation operation;
    operation.run = std::move(run);
    operation.uses = std::move(uses);
    return streams_.Submit(StreamAt(stream), std::move(operation));
  }

  int64_t total_bytes = int64_t{1} << 30;
  std::string kernel_fault;  // that the test of kernels finds
  Kernels kernels;

 private:
  using Operation = HostStreams::Operation;
  static HostStreams::Stream* StreamAt(void* at) { return static_cast<HostStreams::Stream*>(at); }
  static HostStreams::Event* EventAt(void* at) { return static_cast<HostStreams::Event*>(at); }
  static HostStreams::Graph* GraphAt(void* at) { return static_cast<HostStreams::Graph*>(at); }

  void SetMemoryCalls() {
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
  }

  void SetStreamCalls() {
    api_.new_stream = [](void** to) {
      return now_->Make("stream", to, [] { return now_->streams_.AddStream(); });
    };
    api_.new_event = [](void** to) {
      return now_->Make("event", to, [] { return new HostStreams::Event; });
    };
    api_.delete_stream = [](void* at) {
      now_->streams_.RemoveStream(StreamAt(at));
      return now_->Unmake(at);
    };
    api_.delete_event = [](void* at) {
      delete EventAt(at);
      return now_->Unmake(at);
    };
    api_.delete_graph = [](void* at) {
      delete GraphAt(at);
      return now_->Unmake(at);
    };
    api_.record = [](void* event, void* stream) {
      const int32_t error = now_->ErrorOf("record");
      return error != 0 ? error : now_->streams_.Record(EventAt(event), StreamAt(stream));
    };
    api_.wait = [](void* stream, void* event) {
      const int32_t error = now_->ErrorOf("wait");
      if (error != 0 || now_->ignored_.contains("wait")) return error;
      return now_->streams_.Wait(StreamAt(stream), EventAt(event));
    };
    api_.query = [](void* event, int32_t* is_reached) {
      *is_reached =
          now_->ignored_.contains("query") || now_->streams_.IsReached(EventAt(event)) ? 1 : 0;
      return now_->ErrorOf("query");
    };
    api_.synchronize = [](void* event) {
      if (!now_->ignored_.contains("synchronize")) now_->streams_.Synchronize(EventAt(event));
      return now_->ErrorOf("synchronize");
    };
    api_.notify = [](void* stream, void (*call)(void*), void* argument) {
      return now_->Do("notify", stream, {.run = [=] { call(argument); }, .is_call = true});
    };
    api_.copy = [](void* stream, void* to, const void* from, int64_t bytes) {
      return now_->Do("copy", stream,
                      {.run = [=] { std::memcpy(to, from, static_cast<size_t>(bytes)); },
                       .to = static_cast<std::byte*>(to),
                       .from = static_cast<const std::byte*>(from),
                       .bytes = bytes});
    };
    api_.fill = [](void* stream, void* to, int32_t value, int64_t bytes) {
      return now_->Do("fill", stream,
                      {.run = [=] { std::memset(to, value, static_cast<size_t>(bytes)); },
                       .to = static_cast<std::byte*>(to),
                       .bytes = bytes});
    };
    api_.begin_capture = [](void* stream) {
      const int32_t error = now_->ErrorOf("begin_capture");
      return error != 0 ? error : now_->streams_.BeginCapture(StreamAt(stream));
    };
    api_.end_capture = [](void* stream, void** graph) {
      const int32_t error = now_->Make("graph", graph, [] { return new HostStreams::Graph; });
      return error != 0 ? error : now_->streams_.EndCapture(StreamAt(stream), GraphAt(*graph));
    };
    api_.launch_graph = [](void* stream, void* graph) {
      const int32_t error = now_->ErrorOf("launch_graph");
      return error != 0 ? error : now_->streams_.LaunchGraph(StreamAt(stream), GraphAt(graph));
    };
  }

  void SetModelCalls() {
    BatonCudaModelApi& model = api_.model;
    model.create = [](const ModelView*, void** to) {
      return now_->Make("model", to, [] { return new char; });
    };
    model.remove = [](void* at) {
      now_->CheckUnused(at, 1, "a model");
      delete static_cast<char*>(at);
      now_->Unmake(at);
    };
    model.test = [](const ModelView*, char* fault, int32_t size) {
      std::snprintf(fault, static_cast<size_t>(size), "%s", now_->kernel_fault.c_str());
      return 0;
    };
    model.bytes = [](void*) { return int64_t{1000}; };
    model.begin = [](void* of, const void* block, const int32_t* sampled, const StepCounts*,
                     void* kv, void* stream) {
      return now_->Launch(stream, {of, block, sampled, kv},
                          [=] { now_->kernels.begin(block, sampled, kv); });
    };
    model.layer = [](void* of, int32_t layer, float* logits, void* stream) {
      return now_->Launch(stream, {of, logits}, [=] { now_->kernels.layer(layer, logits); });
    };
    model.scored_logits = [](void* of, int32_t from, int32_t to, float* logits, void* stream) {
      return now_->Launch(stream, {of, logits},
                          [=] { now_->kernels.scored_logits(from, to, logits); });
    };
    model.begin_slice = [](void* of, const void* block, const StepCounts*, void* kv, void* stream) {
      return now_->Launch(stream, {of, block, kv}, [=] { now_->kernels.begin_slice(block, kv); });
    };
    model.project_slice = [](void* of, int32_t layer, int32_t from, int32_t to, void* stream) {
      return now_->Launch(stream, {of}, [=] { now_->kernels.project_slice(layer, from, to); });
    };
    model.finish_slice = [](void* of, int32_t layer, int32_t from, int32_t to, float* logits,
                            void* stream) {
      return now_->Launch(stream, {of, logits},
                          [=] { now_->kernels.finish_slice(layer, from, to, logits); });
    };
    model.sample_scratch_bytes = [](int32_t, int32_t) { return int64_t{64}; };
    model.sample = [](const float* logits, int32_t n, int32_t vocab, const void* rows,
                      void* scratch, void* results, int32_t* sampled, void* stream) {
      return now_->Launch(stream, {logits, rows, scratch, results, sampled},
                          [=] { now_->kernels.sample(logits, n, vocab, rows, results, sampled); });
    };
  }

  int32_t ErrorOf(const std::string& call) {
    if (streams_.is_lost()) return kLaunchFailure;
    if (call != fails_at_) return 0;
    if (fails_after_ > 0) {
      --fails_after_;
      return 0;
    }
    if (error_ == kLaunchFailure) streams_.Lose();
    return error_;
  }
  int32_t Do(const std::string& call, void* stream, Operation operation) {
    const int32_t error = ErrorOf(call);
    return error != 0 ? error : streams_.Submit(StreamAt(stream), std::move(operation));
  }
  bool CheckUnused(void* at, int64_t bytes, const std::string& what) {
    const bool is_used = streams_.IsUsed(at, bytes);
    if (is_used) streams_.Report(what + " is freed that an operation under way uses");
    return !is_used;
  }
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
    const int64_t bytes = found->second.bytes;
    used_bytes_ -= is_pinned ? 0 : bytes;
    memory_.erase(found);
    if (CheckUnused(at, bytes, is_pinned ? "pinned memory" : "memory"))
      std::free(at);
    else
      kept_.push_back(at);  // so that the test goes on
    return 0;
  }
  template <typename Maker>
  int32_t Make(const std::string& what, void** to, const Maker& maker) {
    if (const int32_t error = ErrorOf(what)) return error;
    *to = maker();
    made_.insert(*to);
    return 0;
  }
  int32_t Unmake(void* at) {
    BATON_CHECK(made_.erase(at) == 1);
    return 0;
  }

  struct Memory {
    bool is_pinned;
    int64_t bytes;
  };
  static inline HostCuda* now_ = nullptr;
  BatonCudaApi api_{};
  HostStreams streams_;
  std::map<void*, Memory> memory_;
  std::vector<void*> kept_;
  std::set<void*> made_;
  std::set<std::string> ignored_;
  int64_t used_bytes_ = 0;
  std::string fails_at_;
  int32_t error_ = 0;
  int fails_after_ = 0;
};

}  // namespace baton
