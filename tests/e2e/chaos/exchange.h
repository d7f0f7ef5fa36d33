// One request of a chaos client and the response: content, times and the server's own timings.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "bench/load/http_client.h"
#include "tests/e2e/chaos/requests.h"

namespace baton {

// The content of an answer, a function of the request alone.
struct Answer {
  std::string text, finish_reason;
  std::vector<int64_t> tokens;
  std::vector<std::string> digests;  // digest of each token's logits
  std::string prompt_logprobs;       // the list of the prompt's tokens as JSON, if asked for
  int64_t n_counted = -1;            // completion tokens as the server counts them
  bool operator==(const Answer&) const = default;
};

// The reading behaviour of a client. The default reads everything as it arrives.
struct Manner {
  absl::Duration leaves_after = absl::InfiniteDuration();  // then closes the connection
  int leaves_after_events = std::numeric_limits<int>::max();
  absl::Duration reads_every = absl::ZeroDuration();          // pause after each event
  int stops_reading_after = std::numeric_limits<int>::max();  // events; then it reads nothing
  absl::Duration stops_reading_for = absl::ZeroDuration();    // then it reads on
  int receive_buffer = 0;

  bool stops_reading() const { return stops_reading_after != std::numeric_limits<int>::max(); }
};

struct Exchange {
  // Content.
  int http_status = 0;  // 0: no response
  std::string error;    // transport, HTTP body or error event; empty: none
  Answer answer;
  int n_finishes = 0;  // terminal events: chunks with a finish_reason
  int n_done = 0;      // "[DONE]" lines
  int n_after_done = 0;
  bool left = false;  // the client closed the connection early, as its manner says
  // Times.
  absl::Time sent, ended;
  std::vector<absl::Time> token_times;  // of events with tokens (streams)
  // The server's timings, from `timings`.
  int attempts = 0;
  double ttft_ms = 0, prefill_queue_ms = 0, prefill_ms = 0;
  std::string prefill_worker, decode_worker;
};

// Runs one exchange. on_token runs after each stream event with a token; false makes the client
// close the connection.
Exchange RunExchange(const HttpUrl& url, const ChaosRequest& request, const Manner& manner,
                     absl::Duration hang_limit,
                     const std::function<void(const Exchange&)>& on_token = nullptr);

}  // namespace baton
