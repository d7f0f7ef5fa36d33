// Compiles grammars off the engine thread, one after the other in the order of the jobs.
#pragma once

#include <atomic>
#include <functional>
#include <thread>

#include "common/mailbox.h"
#include "common/token_grammar.h"
#include "worker/grammar_desk.h"

namespace baton {

class GrammarThread {
 public:
  // compile and done are called on the thread.
  GrammarThread(GrammarCompilerFn compile, std::function<void(GrammarCompiled)> done);
  ~GrammarThread();  // waits for the running job and drops the others
  GrammarThread(const GrammarThread&) = delete;
  GrammarThread& operator=(const GrammarThread&) = delete;

  void Post(GrammarJob job);  // any thread; at most as many as GrammarDesk keeps

 private:
  void Run();

  const GrammarCompilerFn compile_;
  const std::function<void(GrammarCompiled)> done_;
  Mailbox<GrammarJob> jobs_;
  std::atomic<bool> stopping_ = false;
  std::thread thread_;
};

}  // namespace baton
