// Options of a DecodeBatch, constant while it lives: what a user or a test sets. Plain data.
#pragma once

#include <cstdint>

#include "absl/time/time.h"
#include "common/state_machine.h"

namespace baton {

struct DecodeOptions {
  int32_t max_batch = 64;        // rows of one step
  int32_t max_sequences = 8192;  // in all states; a request beyond fails
  // The wait of KV for its request, which the router sends at the same time as the ticket.
  absl::Duration orphan_timeout = absl::Seconds(10);
  // Last bounds, for waits that no other timer ends: an expected sequence whose KV does not come
  // (the prefill may take long), and a sequence that waits for a row or gets no token.
  absl::Duration kv_timeout = absl::Minutes(30);
  absl::Duration wait_timeout = absl::Minutes(10);
  TransitionCounts* transitions = nullptr;  // counts transitions, outlives the batch; tests only
};

}  // namespace baton
