#include "worker/mask_thread.h"

#include "common/check.h"

namespace baton {
namespace {

// Batches that the thread has not looked at yet. All but the last are done.
constexpr size_t kMaxBatches = 16;

}  // namespace

MaskThread::MaskThread()
    : thread_("baton-masks", kMaxBatches,
              [](const std::shared_ptr<Batch>& batch) { batch->MakeMasks(); }) {}

void MaskThread::Start(std::span<SequenceSampling* const> sequences) {
  BATON_CHECK(batch_ == nullptr);
  if (sequences.empty()) return;
  batch_ = std::make_shared<Batch>(std::vector(sequences.begin(), sequences.end()));
  thread_.TryPost(batch_);  // without room Wait makes them all
}

void MaskThread::Wait() {
  if (batch_ == nullptr) return;
  batch_->MakeMasks();
  for (size_t done; (done = batch_->n_done) < batch_->sequences.size();) batch_->n_done.wait(done);
  batch_.reset();
}

void MaskThread::Batch::MakeMasks() {
  for (size_t i; (i = n_begun++) < sequences.size();) {
    sequences[i]->MakeMask();
    ++n_done;
    n_done.notify_one();
  }
}

}  // namespace baton
