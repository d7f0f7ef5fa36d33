// Makes the masks of sequences with a grammar, on a thread of its own, while the step runs that
// computes their logits. The waiting thread helps, so that no mask is later than it would be
// without the thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "common/mailbox_thread.h"
#include "engine/sampling/sequence_sampling.h"

namespace baton {

// Engine thread. Between Start and Wait nobody else may touch the sequences.
class MaskThread {
 public:
  MaskThread();
  virtual ~MaskThread() = default;
  // Begins SequenceSampling::MakeMask of each. CHECKs that Wait was called since the last Start.
  // Virtual for tests.
  virtual void Start(std::span<SequenceSampling* const> sequences);
  void Wait();  // returns when all that was started is done

 private:
  // Shared with the thread, which may come to it when all of it is done.
  struct Batch {
    const std::vector<SequenceSampling*> sequences;
    std::atomic<size_t> n_begun = 0, n_done = 0;
    void MakeMasks();
  };
  std::shared_ptr<Batch> batch_;  // null: nothing is started
  MailboxThread<std::shared_ptr<Batch>> thread_;
};

}  // namespace baton
