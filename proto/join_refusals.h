// Tells of peers that may not join: each is counted, and one line per fault and ten seconds goes to
// the log, so that a peer that tries for ever fills no disk. Any thread.
#pragma once

#include <array>
#include <functional>
#include <mutex>
#include <string>
#include <utility>

#include "absl/time/time.h"
#include "proto/join_fault.h"

namespace baton {

class JoinRefusals {
 public:
  static constexpr absl::Duration kQuiet = absl::Seconds(10);

  // on_refused: called for every refused peer, on the thread of Add; may be empty.
  explicit JoinRefusals(std::function<void(JoinFault)> on_refused)
      : on_refused_(std::move(on_refused)) {}

  // peer: its address; empty where it is not known.
  void Add(JoinFault fault, const std::string& peer, const std::string& why);

 private:
  struct Told {
    absl::Time at = absl::InfinitePast();
    int unlogged = 0;  // since then
  };
  const std::function<void(JoinFault)> on_refused_;
  std::mutex mutex_;
  std::array<Told, kJoinFaults> told_;  // of each fault
};

}  // namespace baton
