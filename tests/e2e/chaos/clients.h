// N closed-loop clients: each sends a request, judges the answer by the expected one and sends the
// next, until it is told to stop. The clients own their threads; any thread may call every method.
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

// A request with its answer from a run without faults.
struct Question {
  ChaosRequest request;
  Answer expected;
};

// The record of a finished exchange.
struct ExchangeRecord {
  Verdict verdict = Verdict::kExact;
  int http_status = 0;
  bool stream = false;
  int attempts = 0;
  absl::Time sent, first_token, ended;
  // Times of the tokens; only for a request that moved to other workers and whose client read
  // without pauses.
  std::vector<absl::Time> token_times;
  // Time that workers spent on prompts of this request after its first token: prefill after a
  // failover, with the queue time.
  absl::Duration prefilled_again;
};

struct Tally {
  int64_t n_by_verdict[kVerdicts] = {};
  int64_t n_tokens = 0, n_moved = 0;    // moved: more than one attempt
  int64_t n_impossible = 0;             // requests that no pool can hold, correctly refused
  std::vector<std::string> complaints;  // the first violations
  std::vector<ExchangeRecord> records;
};

class Clients {
 public:
  Clients(HttpUrl url, const Profile& profile, const std::vector<Question>* questions,
          uint64_t seed);
  ~Clients();  // calls Stop

  void Stop();                                // waits for exchanges that run to their end
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
  void Complain(std::string text);  // mutex_ held
  void OnFirstToken();

  const HttpUrl url_;
  const Profile profile_;
  const std::vector<Question>* questions_;
  std::atomic<bool> stopping_ = false;
  std::atomic<int64_t> n_left_ = 0;
  std::mutex mutex_;  // guards the members below
  std::condition_variable first_token_;
  int64_t n_first_tokens_ = 0;
  absl::Duration usual_ = absl::Milliseconds(200);  // moving average of a whole exchange
  Tally tally_;
  std::vector<std::thread> threads_;
};

// Asks every question once, `at_once` at a time, by clients that read everything.
Tally AskAll(const HttpUrl& url, const std::vector<Question>& questions, int at_once);
// Asks without known answers, and fills in Question::expected. Error: the first failed exchange.
absl::Status LearnAnswers(const HttpUrl& url, int at_once, std::vector<Question>* questions);

}  // namespace baton
