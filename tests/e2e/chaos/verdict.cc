#include "tests/e2e/chaos/verdict.h"

#include <algorithm>

#include "absl/strings/str_format.h"

namespace baton {
namespace {

// Returns the first difference within the received part; empty: none.
std::string WrongPart(const Answer& got, const Answer& expected) {
  // The list is whole, once, before the first token.
  const bool has_list = !got.prompt_logprobs.empty() || !got.tokens.empty();
  if (has_list && got.prompt_logprobs != expected.prompt_logprobs) {
    return absl::StrFormat("log-probabilities of the prompt of %d bytes instead of %d, or others",
                           got.prompt_logprobs.size(), expected.prompt_logprobs.size());
  }
  const size_t n = std::min(got.tokens.size(), expected.tokens.size());
  for (size_t i = 0; i < n; ++i) {
    if (got.tokens[i] != expected.tokens[i]) {
      return absl::StrFormat("token %d is %d instead of %d", i, got.tokens[i], expected.tokens[i]);
    }
  }
  for (size_t i = 0; i < std::min(got.digests.size(), expected.digests.size()); ++i) {
    if (got.digests[i] != expected.digests[i]) {
      return absl::StrFormat("logits of token %d have digest %s instead of %s", i, got.digests[i],
                             expected.digests[i]);
    }
  }
  const size_t common = std::min(got.text.size(), expected.text.size());
  if (got.text.compare(0, common, expected.text, 0, common) != 0) {
    return absl::StrFormat("the text differs within its first %d bytes", common);
  }
  return "";
}

// Overload and missing workers are refused at once, before a worker has the request. A later
// failure with the same status is a lost request.
constexpr absl::Duration kAtOnce = absl::Seconds(1);
bool WasRefused(const Exchange& exchange) {
  const bool status = exchange.http_status == 429 || exchange.http_status == 503;
  return status && exchange.ended - exchange.sent <= kAtOnce &&
         exchange.error.find("gave up") == std::string::npos;
}

}  // namespace

const char* VerdictName(Verdict verdict) {
  static constexpr const char* kNames[kVerdicts] = {"exact", "left",       "cut off", "refused",
                                                    "lost",  "duplicated", "wrong"};
  return kNames[static_cast<int>(verdict)];
}

bool IsViolation(Verdict verdict) { return verdict >= Verdict::kLost; }

Verdict Judge(const Exchange& exchange, const Manner& manner, const Answer& expected,
              std::string* why) {
  const Answer& got = exchange.answer;
  *why = WrongPart(got, expected);
  if (!why->empty()) return Verdict::kWrong;
  if (got.tokens.size() > expected.tokens.size()) {
    *why = absl::StrFormat("%d tokens instead of %d", got.tokens.size(), expected.tokens.size());
    return Verdict::kDuplicated;
  }
  if (exchange.n_finishes > 1 || exchange.n_done > 1 || exchange.n_after_done > 0) {
    *why = absl::StrFormat("%d ends, %d times [DONE], %d events after it", exchange.n_finishes,
                           exchange.n_done, exchange.n_after_done);
    return Verdict::kDuplicated;
  }
  if (exchange.left) return Verdict::kLeft;
  if (WasRefused(exchange)) {
    *why = exchange.error;
    return Verdict::kRefused;
  }
  if (!exchange.error.empty() || exchange.n_done == 0 || exchange.n_finishes == 0) {
    *why =
        absl::StrFormat("%d of %d tokens after %s: %s", got.tokens.size(), expected.tokens.size(),
                        absl::FormatDuration(exchange.ended - exchange.sent),
                        exchange.error.empty() ? "the stream has no end" : exchange.error);
    return manner.stops_reading() ? Verdict::kCutOff : Verdict::kLost;
  }
  if (got.tokens.size() < expected.tokens.size()) {
    *why = absl::StrFormat("ended as %s after %d of %d tokens", got.finish_reason,
                           got.tokens.size(), expected.tokens.size());
    return Verdict::kLost;
  }
  if (got != expected) {
    *why = absl::StrFormat("finish reason %s, %d tokens counted, %d bytes; expected %s, %d, %d",
                           got.finish_reason, got.n_counted, got.text.size(),
                           expected.finish_reason, expected.n_counted, expected.text.size());
    return Verdict::kWrong;
  }
  return Verdict::kExact;
}

}  // namespace baton
