// Prompts compute only the tokens that no earlier prompt with the same beginning left in the pool.
#include <algorithm>
#include <map>
#include <set>

#include "common/prefill_cost.h"
#include "tests/prefill_worker/scheduler_fixture.h"

namespace baton {
namespace {

// Returns a request with the same tokens for every id; only their number differs.
PrefillRequest Same(RequestId id, int n_tokens, Incarnation sink = 0, Epoch epoch = 1) {
  PrefillRequest request = SchedulerFixture::Request(1, n_tokens, sink);
  request.request_id = id;
  request.epoch = epoch;
  for (KvOutput& output : request.slices[0].outputs)
    output.ticket.id.low = output.ticket.promise.low = 100 * id + epoch;
  request.want_digests = true;
  return request;
}

void CheckFirstToken(const TokenOut& token) {
  HashBackend reference(kPageTokens);
  const PrefillRequest request = Same(1, token.position);
  const SequentialTokens expected = SequentialRun(&reference, request.tokens, 1, request.sampling);
  REQUIRE(token.token == expected.tokens[0]);
  REQUIRE(token.digest == expected.digests[0]);
}

TEST_CASE("a prompt computes only what no earlier one with the same beginning has left") {
  SchedulerFixture b;
  b.Admit(Same(1, 22));
  REQUIRE(b.Step(100) == 22);
  REQUIRE(b.pool->held() == 0);
  REQUIRE(b.pool->cached() == 6);
  b.Admit(Same(2, 22));  // the last token is computed although its KV is present
  REQUIRE(b.Step(100) == 1);
  b.Admit(Same(3, 20));
  REQUIRE(b.Step(100) == 1);
  b.Admit(Same(4, 40));
  REQUIRE(b.Step(7) == 7);
  b.Admit(Same(5, 41));  // runs beside the prompt that is still being computed
  REQUIRE(b.Step(34) == 11 + 13);
  while (b.Step(100) > 0) {
  }
  REQUIRE(b.tokens.size() == 5);
  for (const TokenOut& token : b.tokens) CheckFirstToken(token);
  REQUIRE(b.scheduler->prompts().pages().reused_tokens() == 21 + 19 + 22 + 28);
  REQUIRE(b.pool->held() == 0);
}

TEST_CASE("a long prompt of which little is left to compute goes before a shorter one") {
  const Incarnation sink = GENERATE(Incarnation{0}, kPeer);  // kPeer: sends OPEN first
  SchedulerFixture b(200, 0, 1);
  b.Admit(Same(1, 40));
  REQUIRE(b.Step(100) == 40);
  b.Admit(SchedulerFixture::Request(2, 12, sink));
  b.Admit(Same(3, 44, sink));
  const PromptQueue::Work queued = b.scheduler->prompts().queue().queued();
  REQUIRE(queued.tokens == 12 + 4);  // 10 pages of the second are there
  REQUIRE(queued.pairs == CausalPairs(12, 0) + CausalPairs(4, 40));
  if (sink != 0) {
    REQUIRE(b.Step(100) == 0);
    REQUIRE(b.opens == std::vector<RequestId>{301});
    return;
  }
  REQUIRE(b.Step(4) == 4);
  REQUIRE(b.tokens.back().request_id == 3);
  REQUIRE(b.scheduler->prompts().queue().queued().tokens == 12);
  REQUIRE(b.Step(100) == 12);
  REQUIRE(b.tokens.size() == 3);
}

TEST_CASE("what a waiting prompt hoped to find and is gone is computed") {
  SchedulerFixture b(12);
  b.Admit(Same(1, 40));
  REQUIRE(b.Step(100) == 40);
  b.Admit(Same(2, 44));
  b.Admit(SchedulerFixture::Request(3, 48));
  REQUIRE(b.scheduler->prompts().queue().queued().tokens == 4 + 48);
  std::vector<int32_t> others;  // somebody takes the cached pages
  REQUIRE(b.pool->Take(12, &others));
  b.pool->Give(others);
  while (b.Step(100) > 0) {
  }
  REQUIRE(b.tokens.size() == 3);
  REQUIRE(b.scheduler->prompts().pages().reused_tokens() == 0);
  CheckFirstToken(*std::ranges::find(b.tokens, RequestId{2}, &TokenOut::request_id));
}

TEST_CASE("KV is not reused across salts, nor when that is switched off") {
  const bool reuse_kv = GENERATE(true, false);
  SchedulerFixture b(200, 0, 4, nullptr, reuse_kv);
  b.Admit(Same(1, 22));
  REQUIRE(b.Step(100) == 22);
  PrefillRequest salted = Same(2, 22);
  salted.cache_salt = reuse_kv ? 7 : 0;
  b.Admit(salted);
  REQUIRE(b.Step(100) == 22);
  REQUIRE(b.scheduler->prompts().pages().reused_tokens() == 0);
  REQUIRE(b.pool->cached() == (reuse_kv ? 12 : 0));
}

TEST_CASE("KV is not reused across the ranges of longrope, which the most tokens decide") {
  const RopeDesc rope = LongropeFrom(40);
  SchedulerFixture b(200, 0, 4, nullptr, true, {}, rope);
  const auto computed = [&](RequestId id, int max_total_tokens) {
    PrefillRequest request = Same(id, 22);
    request.max_total_tokens = max_total_tokens;
    b.Admit(request);
    const int n = b.Step(100);
    HashBackend reference(kPageTokens, 3, {}, rope);
    const SequentialTokens expected =
        SequentialRun(&reference, request.tokens, max_total_tokens - 22, request.sampling);
    REQUIRE(b.tokens.back().request_id == id);
    REQUIRE(b.tokens.back().token == expected.tokens[0]);
    REQUIRE(b.tokens.back().digest == expected.digests[0]);
    return n;
  };
  REQUIRE(computed(1, 40) == 22);
  REQUIRE(computed(2, 41) == 22);
  REQUIRE(computed(3, 41) == 1);
  REQUIRE(computed(4, 23) == 1);
}

TEST_CASE("an attempt goes on where the one before was: only the handoff is repeated") {
  SchedulerFixture b;
  const bool failed = GENERATE(false, true);  // or cancelled
  const bool computed = GENERATE(false, true);
  const bool still_read = !failed && GENERATE(false, true);
  const auto end_first = [&b, failed] {
    b.scheduler->prompts().On(HandoffEnded{.ticket_id = {.high = 0, .low = 101},
                                           .status = failed ? absl::UnavailableError("peer lost")
                                                            : absl::CancelledError("cancelled")},
                              b.now);
    b.Collect();
  };
  b.Admit(Same(1, 22, kPeer));
  b.Step(0);
  b.scheduler->prompts().On(HandoffPromised{.ticket_id = {.high = 0, .low = 101}}, b.now);
  REQUIRE(b.Step(computed ? 22 : 13) == (computed ? 22 : 13));
  if (still_read && computed) {
    b.Admit(Same(1, 22, kPeer, 2));  // ends the first attempt
    b.Collect();
    b.Admit(Same(1, 22, kPeer, 1));  // too late
  } else {
    b.scheduler->prompts().Cancel(1, failed ? 0 : 1);
  }
  if (!still_read) end_first();
  b.sent.clear();
  b.Admit(Same(1, 22, kPeer, 2));
  b.Step(0);
  REQUIRE(b.Step(100) == 0);  // no promise yet
  REQUIRE(b.sent.empty());
  b.scheduler->prompts().On(HandoffPromised{.ticket_id = {.high = 0, .low = 102}}, b.now);
  REQUIRE(b.Step(100) == (computed ? 1 : 10));
  if (still_read) end_first();
  std::map<std::pair<int, int>, int> cells;  // each cell exactly once
  for (const SendCells& sent : b.sent) {
    REQUIRE(sent.ticket_id == TicketId{.high = 0, .low = 102});
    for (int plane = sent.plane; plane < sent.plane + sent.n_planes; ++plane)
      for (size_t i = 0; i < sent.pages.size(); ++i)
        ++cells[{plane, sent.first_page + static_cast<int>(i)}];
  }
  REQUIRE(cells.size() == 3 * 6);
  for (const auto& [cell, n] : cells) REQUIRE(n == 1);
  for (const TokenOut& token : b.tokens) CheckFirstToken(token);
  b.scheduler->prompts().On(
      HandoffEnded{.ticket_id = {.high = 0, .low = 102}, .status = absl::OkStatus()}, b.now);
  b.Collect();
  REQUIRE(b.pool->held() == 0);
}

}  // namespace
}  // namespace baton
