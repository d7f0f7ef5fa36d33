// Virtual time and the events to come: a heap of entries by (time, a drawn tie-break, order of
// entry). Also the record of past events: a rolling digest, equal for equal runs, and on demand a
// trace.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "tests/sim/sim_random.h"

namespace baton::sim {

enum class What : uint8_t {
  kEngineTurn,
  kDevice,  // an engine that computes later has computed
  kCopy,    // a copier that copies later goes on
  kLinkTurn,
  kDelivery,  // by the network between links
  kControlUp,
  kControlDown,
  kKeepalive,
  kDial,
  kRouterTurn,
  kRouterTime,
  kArrival,
  kCancel,
  kFault,
  kRestart,
  kResume,
  kHeal,
  kStopping,  // the next step of a worker that was told to stop
  kRouterStart,
  kSign,        // an empty report of a worker, which tells what its engine does
  kTurnAgain,   // an engine that stands still
  kStandCheck,  // an engine has stood still for so long that the router must have noticed
  kRouterGone,  // the router is away for so long that workers stop working for it
};

class Agenda {
 public:
  struct Entry {
    int64_t at_us;
    uint64_t tie, order;
    What what;
    int subject;     // a worker, a request, ...
    uint64_t stamp;  // chosen by the maker of the entry to recognise an entry that is void
    bool operator>(const Entry& other) const {
      if (at_us != other.at_us) return at_us > other.at_us;
      return tie != other.tie ? tie > other.tie : order > other.order;
    }
  };

  Agenda(SimRandom* random, bool tracing) : random_(random), tracing_(tracing) {}

  int64_t now_us() const { return now_us_; }
  void AdvanceTo(int64_t now_us) { now_us_ = std::max(now_us_, now_us); }
  void Add(int64_t at_us, What what, int subject = 0, uint64_t stamp = 0) {
    heap_.push_back({std::max(at_us, now_us_), random_->Next(), next_++, what, subject, stamp});
    std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
  }
  int64_t NextUs() const { return heap_.empty() ? INT64_MAX : heap_.front().at_us; }
  Entry Take() {
    std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
    const Entry entry = heap_.back();
    heap_.pop_back();
    AdvanceTo(entry.at_us);
    return entry;
  }

  // Records an event.
  void Happened(What what, int subject, uint64_t detail = 0) {
    ++n_events_;
    Mix(static_cast<uint64_t>(now_us_));
    Mix(static_cast<uint64_t>(what) << 32 | static_cast<uint32_t>(subject));
    Mix(detail);
  }
  uint64_t n_events() const { return n_events_; }
  uint64_t digest() const { return digest_; }

  bool tracing() const { return tracing_; }
  template <typename... Args>
  void Trace(const absl::FormatSpec<Args...>& format, const Args&... args) const {
    if (!tracing_) return;
    std::printf("%10.3f ms  %s\n", static_cast<double>(now_us_) * 1e-3,
                absl::StrFormat(format, args...).c_str());
  }

 private:
  void Mix(uint64_t value) {
    digest_ = (digest_ ^ value) * 0x9e3779b97f4a7c15;
    digest_ ^= digest_ >> 29;
  }

  SimRandom* const random_;
  const bool tracing_;
  int64_t now_us_ = 1'000'000;
  uint64_t next_ = 0, n_events_ = 0, digest_ = 0;
  std::vector<Entry> heap_;
};

}  // namespace baton::sim
