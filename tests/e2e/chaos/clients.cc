#include "tests/e2e/chaos/clients.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"

namespace baton {
namespace {

constexpr absl::Duration kHangLimit = absl::Seconds(90);  // a request that takes longer is lost
constexpr absl::Duration kRetryPause = absl::Milliseconds(200);  // after a refusal
constexpr absl::Duration kNotReading = absl::Seconds(8);         // above the server's write timeout
constexpr absl::Duration kImpossibleLimit = absl::Seconds(5);    // "at once", on a busy machine
constexpr int kSmallBuffer = 4096;
constexpr size_t kMaxComplaints = 20;

ExchangeRecord RecordOf(const ChaosRequest& request, const Manner& manner,
                        const Exchange& exchange) {
  ExchangeRecord record;
  record.stream = request.stream;
  record.http_status = exchange.http_status;
  record.attempts = exchange.attempts;
  record.sent = exchange.sent;
  record.ended = exchange.ended;
  const std::vector<absl::Time>& times = exchange.token_times;
  record.first_token = times.empty() ? absl::InfiniteFuture() : times.front();
  const bool reads_at_once = manner.reads_every == absl::ZeroDuration() && !manner.stops_reading();
  if (exchange.attempts > 1 && reads_at_once) record.token_times = times;
  const double again_ms =
      exchange.prefill_queue_ms + exchange.prefill_ms - std::max(0.0, exchange.ttft_ms);
  record.prefilled_again = absl::Milliseconds(std::max(0.0, again_ms));
  return record;
}

// Runs `each` for every question on at_once threads.
void ForAll(size_t n, int at_once, const std::function<void(size_t)>& each) {
  std::atomic<size_t> next = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < at_once; ++i) {
    threads.emplace_back([&] {
      for (size_t at = next++; at < n; at = next++) each(at);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace

Clients::Clients(HttpUrl url, const Profile& profile, const std::vector<Question>* questions,
                 uint64_t seed)
    : url_(std::move(url)), profile_(profile), questions_(questions) {
  for (int i = 0; i < profile.n_clients; ++i) {
    threads_.emplace_back([this, seed, i] { Run(seed * 7919 + static_cast<uint64_t>(i)); });
  }
}

Clients::~Clients() { Stop(); }

void Clients::Stop() {
  stopping_ = true;
  for (std::thread& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
}

void Clients::Run(uint64_t seed) {
  Dice dice(seed);
  while (!stopping_) AskOnce(dice);
}

Manner Clients::DrawManner(Dice& dice) const {
  Manner manner;
  double share = dice.Share();
  if ((share -= profile_.leaving) < 0) {
    // By time, the client also leaves during queues, prefill and whole answers; by events, it
    // leaves exactly between two tokens or after the last one.
    if (dice.Chance(0.6)) {
      manner.leaves_after = dice.Time(absl::Microseconds(100), 1.2 * usual_);
    } else {
      manner.leaves_after_events = static_cast<int>(dice.Between(1, 40));
    }
  } else if ((share -= profile_.slow) < 0) {
    manner.reads_every = dice.Time(absl::Milliseconds(1), absl::Milliseconds(30));
    manner.receive_buffer = kSmallBuffer;
  } else if ((share -= profile_.not_reading) < 0) {
    manner.stops_reading_after = static_cast<int>(dice.Between(1, 10));
    manner.stops_reading_for = kNotReading;
    manner.receive_buffer = kSmallBuffer;
  }
  return manner;
}

void Clients::AskOnce(Dice& dice) {
  if (dice.Chance(profile_.impossible)) {
    AskTooMuch();
    return;
  }
  const size_t at =
      static_cast<size_t>(dice.Between(0, static_cast<int64_t>(questions_->size()) - 1));
  const Question& question = (*questions_)[at];
  Manner manner;
  {
    std::lock_guard lock(mutex_);
    manner = DrawManner(dice);
  }
  const Exchange exchange =
      RunExchange(url_, question.request, manner, kHangLimit, [this](const Exchange& so_far) {
        if (so_far.token_times.size() == 1) OnFirstToken();
      });
  Record(question, manner, exchange);
  if (exchange.http_status == 429 || exchange.http_status == 503) absl::SleepFor(kRetryPause);
}

// Sends a prompt that no pool of the profile can hold; the status must be 400 at once, whatever the
// load.
void Clients::AskTooMuch() {
  std::string prompt = "[5";
  for (int i = 0; i < 1900; ++i) prompt += ",5";
  const ChaosRequest request{"impossible", "/v1/completions",
                             "{\"prompt\":" + prompt + "],\"max_tokens\":140,\"temperature\":0}",
                             false};
  const Exchange exchange = RunExchange(url_, request, Manner(), kHangLimit);
  std::lock_guard lock(mutex_);
  if (exchange.http_status == 400 && exchange.ended - exchange.sent < kImpossibleLimit) {
    ++tally_.n_impossible;
    return;
  }
  ++tally_.n_by_verdict[static_cast<int>(Verdict::kWrong)];
  Complain(absl::StrFormat("an impossible request was answered after %s with HTTP %d: %s",
                           absl::FormatDuration(exchange.ended - exchange.sent),
                           exchange.http_status, exchange.error));
}

void Clients::Record(const Question& question, const Manner& manner, const Exchange& exchange) {
  std::string why;
  const Verdict verdict = Judge(exchange, manner, question.expected, &why);
  if (exchange.left) ++n_left_;
  ExchangeRecord record = RecordOf(question.request, manner, exchange);
  record.verdict = verdict;
  std::lock_guard lock(mutex_);
  if (verdict == Verdict::kExact) usual_ += 0.05 * (exchange.ended - exchange.sent - usual_);
  ++tally_.n_by_verdict[static_cast<int>(verdict)];
  tally_.n_tokens += static_cast<int64_t>(exchange.answer.tokens.size());
  if (exchange.attempts > 1) ++tally_.n_moved;
  if (verdict != Verdict::kLeft) tally_.records.push_back(record);  // there are millions of cancels
  if (IsViolation(verdict)) {
    Complain(absl::StrFormat(
        "%s: %s request sent at %s: %s", VerdictName(verdict), question.request.kind,
        absl::FormatTime("%H:%M:%E3S", exchange.sent, absl::UTCTimeZone()), why));
  }
}

void Clients::Complain(std::string text) {
  if (tally_.complaints.size() < kMaxComplaints) tally_.complaints.push_back(std::move(text));
}

void Clients::OnFirstToken() {
  std::lock_guard lock(mutex_);
  ++n_first_tokens_;
  first_token_.notify_all();
}

bool Clients::WaitForFirstToken(absl::Duration limit) {
  std::unique_lock lock(mutex_);
  const int64_t before = n_first_tokens_;
  return first_token_.wait_for(lock, absl::ToChronoNanoseconds(limit),
                               [&] { return n_first_tokens_ != before; });
}

Tally Clients::Take() {
  std::lock_guard lock(mutex_);
  return std::move(tally_);
}

Tally AskAll(const HttpUrl& url, const std::vector<Question>& questions, int at_once) {
  Tally tally;
  std::mutex mutex;
  ForAll(questions.size(), at_once, [&](size_t i) {
    const Exchange exchange = RunExchange(url, questions[i].request, Manner(), kHangLimit);
    std::string why;
    const Verdict verdict = Judge(exchange, Manner(), questions[i].expected, &why);
    std::lock_guard lock(mutex);
    ++tally.n_by_verdict[static_cast<int>(verdict)];
    tally.n_tokens += static_cast<int64_t>(exchange.answer.tokens.size());
    if (verdict != Verdict::kExact && tally.complaints.size() < kMaxComplaints) {
      tally.complaints.push_back(absl::StrFormat("%s: %s request: %s", VerdictName(verdict),
                                                 questions[i].request.kind, why));
    }
  });
  return tally;
}

absl::Status LearnAnswers(const HttpUrl& url, int at_once, std::vector<Question>* questions) {
  absl::Status status;
  std::mutex mutex;
  ForAll(questions->size(), at_once, [&](size_t i) {
    Question& question = (*questions)[i];
    Exchange exchange = RunExchange(url, question.request, Manner(), kHangLimit);
    question.expected = exchange.answer;
    const Answer& answer = exchange.answer;
    const bool whole = exchange.error.empty() && exchange.n_done == 1 && exchange.n_finishes == 1 &&
                       !answer.tokens.empty() && answer.digests.size() == answer.tokens.size() &&
                       answer.n_counted == static_cast<int64_t>(answer.tokens.size());
    if (whole) return;
    std::lock_guard lock(mutex);
    status.Update(absl::InternalError(absl::StrFormat(
        "the undisturbed answer of a %s request is not whole: %d tokens, %d digests, %d counted, "
        "%d ends; %s",
        question.request.kind, answer.tokens.size(), answer.digests.size(), answer.n_counted,
        exchange.n_finishes, exchange.error)));
  });
  return status;
}

}  // namespace baton
