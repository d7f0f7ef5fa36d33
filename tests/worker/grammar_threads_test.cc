// The threads that compile grammars and make masks beside the engine thread.
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <condition_variable>
#include <mutex>

#include "common/mailbox_thread.h"
#include "tests/support/hash_grammar.h"
#include "worker/mask_thread.h"

namespace baton {
namespace {

TEST_CASE("jobs are done in their order, off the posting thread") {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<int> done, expected;
  const std::thread::id here = std::this_thread::get_id();
  std::atomic<bool> elsewhere = true;
  MailboxThread<int> thread("test", 200, [&](int job) {
    if (std::this_thread::get_id() == here) elsewhere = false;
    std::lock_guard lock(mutex);
    done.push_back(job);
    changed.notify_all();
  });
  for (int job = 1; job <= 200; ++job) {
    REQUIRE(thread.TryPost(job));
    expected.push_back(job);
  }
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return done.size() == expected.size(); });
  CHECK(done == expected);
  CHECK(elsewhere);
}

TEST_CASE("jobs that have not begun are dropped with the thread") {
  std::atomic<int> n_done = 0;
  {
    MailboxThread<int> thread("test", 200, [&](int) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));  // as a large grammar
      ++n_done;
    });
    for (int job = 1; job < 200; ++job) REQUIRE(thread.TryPost(job));
  }
  CHECK(n_done < 199);  // all of them would take four seconds
}

TEST_CASE("masks are made once each, by the time of Wait") {
  constexpr int kVocab = 64;
  const SamplingParams params{.seed = 1, .grammar = {GrammarKind::kRegex, "a"}};
  const HashGrammar grammar("a", kVocab);
  MaskThread masks;
  masks.Wait();  // nothing was started
  for (int round = 0; round < 300; ++round) {
    std::vector<std::unique_ptr<SequenceSampling>> sequences;
    std::vector<SequenceSampling*> started;
    for (int i = 0; i < round % 5; ++i) {
      sequences.push_back(std::make_unique<SequenceSampling>(
          params, std::span<const int32_t>(), std::span<const int32_t>(), 0, &grammar));
      started.push_back(sequences.back().get());
    }
    masks.Start(started);
    masks.Wait();
    std::vector<float> logits(kVocab, 1.0f), plain(kVocab), changed(kVocab);
    SequenceSampling own(params, {}, {}, 0, &grammar);
    own.MakeMask();
    own.ChangeLogits(logits, plain);
    for (SequenceSampling* sequence : started) {
      sequence->ChangeLogits(logits, changed);
      REQUIRE(changed == plain);
    }
  }
}

}  // namespace
}  // namespace baton
