// Counts what of a load run has ended, lets its one driving thread wait for that or for a time, and
// shows how far the run is meanwhile.
#pragma once

#include <cstddef>

#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/progress_bar.h"

namespace baton {

class RunProgress {
 public:
  // n: requests or conversations; seconds: when the run ends, 0: with the last of them.
  RunProgress(size_t n, double seconds);

  void OneEnded();  // any thread
  // Waits until at least n have ended, or until that time. True: they have.
  bool Await(size_t n, absl::Time until);

 private:
  void Show();

  const double seconds_;
  const absl::Time start_;
  absl::Time next_show_;
  ProgressBar bar_;
  absl::Mutex mutex_;
  size_t n_ended_ = 0;  // guarded by mutex_
};

}  // namespace baton
