#include "worker/mask_thread.h"

#include <pthread.h>

#include "common/check.h"

namespace baton {

MaskThread::MaskThread() : thread_([this] { Run(); }) {
  ::pthread_setname_np(thread_.native_handle(), "baton-masks");
}

MaskThread::~MaskThread() {
  {
    std::lock_guard lock(mutex_);
    BATON_CHECK(n_done_ == sequences_.size());
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void MaskThread::Start(std::span<SequenceSampling* const> sequences) {
  if (sequences.empty()) return;
  {
    std::lock_guard lock(mutex_);
    BATON_CHECK(n_done_ == sequences_.size());
    sequences_.assign(sequences.begin(), sequences.end());
    n_begun_ = n_done_ = 0;
  }
  changed_.notify_all();
}

void MaskThread::Wait() {
  std::unique_lock lock(mutex_);
  while (MakeNext(&lock)) {
  }
  changed_.wait(lock, [this] { return n_done_ == sequences_.size(); });
}

void MaskThread::Run() {
  std::unique_lock lock(mutex_);
  while (!stopping_)
    if (!MakeNext(&lock))
      changed_.wait(lock, [this] { return stopping_ || n_begun_ < sequences_.size(); });
}

bool MaskThread::MakeNext(std::unique_lock<std::mutex>* lock) {
  if (n_begun_ == sequences_.size()) return false;
  SequenceSampling* const next = sequences_[n_begun_++];
  lock->unlock();
  next->MakeMask();
  lock->lock();
  if (++n_done_ == sequences_.size()) changed_.notify_all();
  return true;
}

}  // namespace baton
