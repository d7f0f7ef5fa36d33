// A MaskMaker with a thread of its own. The waiting thread helps, so that no mask is later than it
// would be without the thread.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <thread>
#include <vector>

#include "worker/mask_maker.h"

namespace baton {

class MaskThread : public MaskMaker {
 public:
  MaskThread();
  ~MaskThread() override;  // not between Start and Wait
  MaskThread(const MaskThread&) = delete;
  MaskThread& operator=(const MaskThread&) = delete;

  void Start(std::span<SequenceSampling* const> sequences) override;
  void Wait() override;

 private:
  void Run();
  bool MakeNext(std::unique_lock<std::mutex>* lock);  // false: none is left to begin

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<SequenceSampling*> sequences_;
  size_t n_begun_ = 0, n_done_ = 0;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace baton
