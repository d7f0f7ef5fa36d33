#include "worker/grammar_thread.h"

#include <pthread.h>

#include <utility>
#include <vector>

#include "common/check.h"

namespace baton {
namespace {

// Jobs of cancelled requests stay in the mailbox until their turn.
constexpr size_t kMaxJobs = 1 << 18;

}  // namespace

GrammarThread::GrammarThread(GrammarCompilerFn compile, std::function<void(GrammarCompiled)> done)
    : compile_(std::move(compile)),
      done_(std::move(done)),
      jobs_(kMaxJobs),
      thread_([this] { Run(); }) {
  ::pthread_setname_np(thread_.native_handle(), "baton-grammar");
}

GrammarThread::~GrammarThread() {
  stopping_ = true;
  jobs_.Close();
  thread_.join();
}

void GrammarThread::Post(GrammarJob job) { BATON_CHECK(jobs_.TryPost(std::move(job))); }

void GrammarThread::Run() {
  std::vector<GrammarJob> jobs;
  while (jobs_.WaitAndDrain(&jobs)) {
    for (const GrammarJob& job : jobs) {
      if (stopping_) return;
      done_({job.id, compile_(job.spec)});
    }
    jobs.clear();
  }
}

}  // namespace baton
