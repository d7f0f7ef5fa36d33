// N closed-loop clients: each asks, judges the answer by the expected one and asks again, until it
// is told to stop. Threads of their own; every method may be called from any thread.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/time.h"
#include "tests/e2e/chaos/dice.h"
#include "tests/e2e/chaos/exchange.h"
#include "tests/e2e/chaos/profile.h"
#include "tests/e2e/chaos/verdict.h"

namespace baton {

// A request with the answer of an undisturbed run.
struct Question {
  ChaosRequest request;
  Answer expected;
};

// What is kept of an exchange when it is over.
struct ExchangeRecord {
  Verdict verdict = Verdict::kExact;
  bool stream = false;
  int attempts = 0;
  absl::Time sent, first_token, ended;
  // Of the tokens, when the request moved to other workers and its client read at once.
  std::vector<absl::Time> token_times;
  // Time that workers spent on prompts of this request after its first token: prefill again, after
  // a failover, with the wait for its turn.
  absl::Duration prefilled_again;
};

struct Tally {
  int64_t n_by_verdict[kVerdicts] = {};
  int64_t n_tokens = 0, n_moved = 0;    // moved: more than one attempt
  int64_t n_impossible = 0;             // requests that no pool can hold, refused as they must be
  std::vector<std::string> complaints;  // of violations, the first ones
  std::vector<ExchangeRecord> records;
};

class Clients {
 public:
  Clients(HttpUrl url, const Profile& profile, const std::vector<Question>* questions,
          uint64_t seed);
  ~Clients();  // stops

  void Stop();                                // ends what runs to its end, then all threads
  int64_t n_left() const { return n_left_; }  // exchanges whose client went away
  // Waits for the next first token of any stream; false after `limit`.
  bool WaitForFirstToken(absl::Duration limit);
  Tally Take();  // after Stop

 private:
  void Run(uint64_t seed);
  Manner DrawManner(Dice& dice) const;
  void AskOnce(Dice& dice);
  void AskTooMuch();
  void Record(const Question& question, const Manner& manner, const Exchange& exchange);
  void Complain(std::string text);  // under mutex_
  void OnFirstToken();

  const HttpUrl url_;
  const Profile profile_;
  const std::vector<Question>* questions_;
  std::atomic<bool> stopping_ = false;
  std::atomic<int64_t> n_left_ = 0;
  std::mutex mutex_;  // guards what follows
  std::condition_variable first_token_;
  int64_t n_first_tokens_ = 0;
  absl::Duration usual_ = absl::Milliseconds(200);  // moving average of a whole exchange
  Tally tally_;
  std::vector<std::thread> threads_;
};

// Asks every question once, `at_once` at a time, by clients that read everything.
Tally AskAll(const HttpUrl& url, const std::vector<Question>& questions, int at_once);
// The same without known answers: fills in Question::expected. Error: the first that failed.
absl::Status LearnAnswers(const HttpUrl& url, int at_once, std::vector<Question>* questions);

}  // namespace baton
