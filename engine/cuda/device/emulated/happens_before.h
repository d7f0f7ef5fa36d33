// Finds missing waits by vector clocks (FastTrack: Flanagan and Freund, PLDI 2009): two accesses to
// the same bytes, one of them a write, are reported if no chain of submissions, events and reached
// fences puts one before the other, whatever order they were executed in. Timelines are streams and
// host threads. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "engine/cuda/device/emulated/vector_clock.h"

namespace baton {

class HappensBefore {
 public:
  // An operation, or a host thread, that accesses memory.
  struct Actor {
    int timeline = -1;
    VectorClock clock;  // with the access itself
    std::string name;   // for reports
  };

  int AddStream(std::string_view name);

  // ---- host threads ----

  // Names the calling thread from now on: one thread may play several, as a simulation does.
  void ActAs(std::string_view host_thread);
  // The name of the calling thread.
  std::string host_thread();
  // Returns what the calling thread has done and knows: whoever takes it with Receive comes after
  // that. For messages from one host thread to another, of which no event tells.
  VectorClock Send();
  void Receive(const VectorClock& sent);

  // ---- streams ----

  // The clock of an operation that the calling thread submits to the stream now.
  VectorClock Submit(int stream);
  // Puts what is submitted to the stream from now on after `event`.
  void Wait(int stream, const VectorClock& event);

  // ---- accesses ----

  void Access(const Actor& actor, const std::byte* at, int64_t bytes, bool is_write);
  // Is an access by the calling thread.
  void HostAccess(const std::byte* at, int64_t bytes, bool is_write);
  // Forgets all accesses: the bytes have a new owner. `what` names them in reports.
  void Own(const std::byte* at, int64_t bytes, std::string_view what);

  // Findings, at most kReports of them; total() counts on.
  static constexpr size_t kReports = 64;
  std::vector<std::string> reports() const;
  int64_t total() const;
  // Adds a finding of another kind, to have all in one list.
  void Report(std::string finding);
  // Has `told` called with each finding from now on, on the thread that finds it, which calls
  // nothing of this object meanwhile.
  void OnReport(std::function<void(const std::string&)> told);

 private:
  struct Past {  // an access
    int timeline = -1;
    uint64_t tick = 0;
    std::string name;
  };
  // Accesses to a range of bytes up to `end`.
  struct Range {
    uintptr_t end = 0;
    Past write;               // the latest
    std::vector<Past> reads;  // the latest of each timeline since then
  };
  struct Owner {
    uintptr_t end = 0;
    std::string what;
  };
  using Ranges = std::map<uintptr_t, Range>;

  int HostTimeline();      // of the calling thread; made when it is first seen
  void Cut(uintptr_t at);  // so that no range reaches over `at`
  Ranges::iterator First(uintptr_t, uintptr_t);  // of ranges without a gap
  void AccessLocked(const Actor& actor, const std::byte* at, int64_t bytes, bool is_write);
  void Meet(const Actor& actor, bool is_write, const Past& before, bool was_write, uintptr_t from,
            uintptr_t end);
  void Add(std::string finding);

  mutable std::mutex mutex_;
  std::vector<std::string> names_;   // of timelines
  std::vector<VectorClock> clocks_;  // of timelines
  std::map<std::thread::id, int> host_timelines_;
  Ranges ranges_;
  std::map<uintptr_t, Owner> owners_;
  std::vector<std::string> reports_;
  int64_t total_ = 0;
  std::function<void(const std::string&)> told_;
};

}  // namespace baton
