// Signs of life of an engine thread: how many turns it has begun, how long the one under way lasts,
// and how long it should. The engine thread writes between computations; any thread reads, also
// while the engine computes or stands still.
#pragma once

#include <mutex>

#include "absl/time/time.h"
#include "proto/messages.h"

namespace baton {

class EnginePulse {
 public:
  // --- engine thread
  // A turn begins: the thread has looked at its mailbox, and handles, composes and computes. An
  // engine that computes later begins the next one when something of it is reached.
  void Begin(absl::Time now);
  // Something that should take so long begins in this turn, beside what is expected already.
  void Expect(absl::Duration more);
  void Rest();  // the turn is over, the thread waits for work

  // --- any thread
  EngineTurn Read(absl::Time now) const;

 private:
  mutable std::mutex mutex_;
  uint64_t turns_ = 0;
  absl::Time since_ = absl::InfiniteFuture();  // of the turn under way; infinite: none is
  absl::Duration expected_;
};

}  // namespace baton
