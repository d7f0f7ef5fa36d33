// A message of each kind, with another value than the default in every field.
#pragma once

#include <limits>
#include <vector>

#include "proto/messages.h"

namespace baton {

inline std::vector<RouterMessage> EveryMessage() {
  PrefillRequest prefill{
      .request_id = 0xF000000000000001, .epoch = 3, .want_digests = true, .cache_salt = ~1ull};
  Ticket ticket{.id = {.high = 5, .low = ~0ull},
                .epoch = 3,
                .request_id = prefill.request_id,
                .source = 7,
                .sink = 9,
                .promise = {.high = 3, .low = ~1ull},
                .kv_pages = 2,
                .promise_pages = 7,
                .first_page = 1,
                .n_pages = 1,
                .held_pages = 2,
                .expires_us = 1'234'567'890'123};
  SignTicket(ClusterKey{1}, ticket);
  const KvOutput to_decode{
      .ticket = ticket, .peer = {.incarnation = 9, .address = "127.0.0.1:7"}, .first_page = 1};
  prefill.tokens = {0, 1, std::numeric_limits<int32_t>::max()};
  prefill.sampling = {.temperature = 0.7f, .top_k = -1, .top_p = 0.9f, .seed = ~0ull};
  prefill.max_total_tokens = 77;
  prefill.slices = {
      {.begin = 2, .end = 3, .inflow = {.high = ~0ull, .low = 6}, .outputs = {to_decode}}};
  PrefillRequest head = prefill;
  KvOutput to_rank{.ticket = ticket, .peer = {.incarnation = 8, .address = "prefill:3"}};
  to_rank.ticket.promise_pages = to_rank.ticket.first_page = 0;
  to_rank.ticket.n_pages = 2;
  head.wants_first_token = false;
  head.pages_at_once = true;
  head.slices = {
      {.begin = 0, .end = 1, .outputs = {to_rank}},
      {.begin = 1, .end = 2},
      {.begin = 2, .end = 3, .inflow = {.high = 5, .low = ~0ull}, .outputs = {to_rank, to_decode}}};
  DecodeRequest decode{.request_id = 2,
                       .epoch = 1,
                       .ticket_id = {.high = 1, .low = 2},
                       .tokens = {6, 7, 8},
                       .max_tokens = 4,
                       .cache_salt = ~0ull,
                       .sampling = prefill.sampling,
                       .stop_tokens = {5, 0},
                       .want_digests = true};
  return {prefill, decode, CancelRequest{.request_id = 4, .epoch = 5}, head, TellPages{}};
}

inline WorkerReport EveryEvent() {
  WorkerAnnounce announce{.incarnation = 1, .name = "prefill0", .role = Role::kPrefill};
  announce.transfer = {.incarnation = 1, .address = "127.0.0.1:9"};
  announce.model_fingerprint = ~0ull;
  announce.numerics_id = "cpu-x86";
  announce.layout_id = "bf16";
  announce.page_tokens = 64;
  announce.pages_total = 100;
  announce.max_context = 4096;
  announce.max_batch = 32;
  announce.max_slice_tokens = 8192;
  announce.link_bytes_per_second = 1.5e9;
  announce.reuses_kv = true;
  announce.cpu_group = ~0ull;
  announce.cpu_share = 0.5;
  announce.prefill_cost = {.n_layers = 28, .kv_bytes = 2048};
  announce.short_range_tokens = 4096;
  announce.itl_stretch = 1.5;
  announce.min_mixed_tokens = 32;
  announce.clock_us = 5'000'000;
  const PrefillCost cost{
      .n_layers = 28, .token = 1e-3, .pair = 2e-8, .extra_tokens = 250, .kv_bytes = 2048};
  const WorkerLoad load{.prefill_queued_tokens = 1,
                        .prefill_queued_pairs = 1e7,
                        .decode_rows = 2,
                        .decode_waiting = 3,
                        .pages_free = 4,
                        .prefill_cost = cost,
                        .prompt_step_seconds = 0.1,
                        .fitted_tokens = 700,
                        .step_cost = {.base = 3e-3, .row = 2e-4, .key = 1e-7, .beside = 1.5},
                        .links = {{.peer = ~0ull, .bytes_per_second = 2e9, .round_trip_us = 50},
                                  {.peer = 2, .bytes_per_second = 3e9}},
                        .draining = true,
                        .clock_us = 6'000'000};
  const TokenOut token{
      .request_id = ~0ull, .epoch = 2, .position = 3, .token = 4, .logprob = -0.5f, .digest = 77};
  const PartEnded ended{.request_id = 1,
                        .epoch = 2,
                        .was_prefill = true,
                        .reason = EndReason::kFailed,
                        .fault = PartFault::kHandoff,
                        .ticket_id = {.high = 7, .low = ~0ull},
                        .message = "bytes that are no UTF-8: \xFF\xC0",
                        .queue_us = 1,
                        .compute_us = 2,
                        .transfer_us = 3,
                        .exposed_us = 6,
                        .first_step_us = 7,
                        .recomputed_tokens = 4,
                        .reused_tokens = 5};
  return {.events = {announce, load, token, ended,
                     NoRoomNotice{.request_id = 1, .epoch = 2, .expected_wait_us = 3},
                     PromptComputed{.request_id = 4,
                                    .epoch = 5,
                                    .queue_us = 6,
                                    .compute_us = 7,
                                    .reused_tokens = 8,
                                    .inbox_us = 9,
                                    .draw_us = 10},
                     CachedPages{.number = ~0ull,
                                 .restart = true,
                                 .lost = {{1, ~0ull}},
                                 .entered = {{~0ull, 2}, {3, 4}}}},
          .engine = {.turns = ~0ull, .age_us = 5, .expected_us = 6}};
}

}  // namespace baton
