#include "prefill_worker/prefill_scheduler.h"

#include <algorithm>
#include <map>
#include <set>

#include "tests/prefill_worker/scheduler_fixture.h"

namespace baton {
namespace {

TEST_CASE("the first token is the sequential one, whatever the chunk and budget") {
  const int chunk = GENERATE(1, 3, 4, 7, 0);
  const int budget = GENERATE(1, 5, 16, 1000);
  SchedulerFixture b(200, chunk);
  for (RequestId id = 1; id <= 5; ++id)
    b.Admit(SchedulerFixture::Request(id, 1 + static_cast<int>(id) * 9));
  while (b.Step(budget) > 0) {
  }
  REQUIRE(b.tokens.size() == 5);
  HashBackend reference(kPageTokens);
  for (const TokenOut& token : b.tokens) {
    const PrefillRequest request = SchedulerFixture::Request(token.request_id, token.position);
    const SequentialTokens expected =
        SequentialRun(&reference, request.tokens, 1, request.sampling);
    REQUIRE(token.token == expected.tokens[0]);
    REQUIRE(token.digest == 0);  // not requested
    REQUIRE(b.ends[token.request_id].reason == EndReason::kLength);
  }
  REQUIRE(b.pool->held() == 0);
}

TEST_CASE("the first token of any attempt is the sequential one, with its logprobs") {
  SamplingParams sampling{.temperature = 0.8f,
                          .min_p = 0.01f,
                          .seed = 5,
                          .presence_penalty = 1,
                          .frequency_penalty = -0.5f,
                          .repetition_penalty = 1.3f,
                          .min_tokens = 12,
                          .logit_bias = {{3, 2}, {8, -4}},
                          .bad_words = {{1}, {2, 3}},
                          .vocab_end = 58,
                          .top_logprobs = 3,
                          .logprob_tokens = {60}};
  const std::vector<int32_t> stops = {4, 5, 6, 7, 8, 9, 10, 11, 12};
  const PrefillRequest first = SchedulerFixture::Request(1, 9);
  HashBackend reference(kPageTokens);
  const SequentialTokens all = SequentialRun(&reference, first.tokens, 16, sampling, stops);
  REQUIRE(all.tokens.size() > 12);
  SchedulerFixture b;
  for (int done = 0; done < static_cast<int>(all.tokens.size()); ++done) {
    PrefillRequest request = first;
    request.epoch = static_cast<Epoch>(done + 1);
    request.tokens.insert(request.tokens.end(), all.tokens.begin(), all.tokens.begin() + done);
    SetWhole(&request, {}, {});
    request.n_generated = done;
    request.sampling = sampling;
    request.stop_tokens = stops;
    b.Admit(request);
    while (b.Step(100) > 0) {
    }
    REQUIRE(b.tokens.size() == static_cast<size_t>(done) + 1);
    const auto at = static_cast<size_t>(done);
    REQUIRE(b.tokens[at].token == all.tokens[at]);
    REQUIRE(b.tokens[at].logprob == all.logprobs[at]);
    REQUIRE(b.tokens[at].logprobs == all.beside[at]);
  }
  PrefillRequest request = SchedulerFixture::Request(2, 9);
  request.n_generated = 9;
  b.Admit(request);
  b.Collect();
  REQUIRE(b.ends[2].message == "9 of 9 tokens were generated");
}

TEST_CASE("the times of a prompt are told with its first token, not with the end of its handoff") {
  SchedulerFixture b;
  b.Admit(SchedulerFixture::Request(1, 8, kPeer));
  REQUIRE(b.Step(100) == 0);  // sends OPEN
  b.now += absl::Milliseconds(3);
  b.Promise(1);
  while (b.Step(4) > 0) {  // two steps of 10 ms
  }
  REQUIRE(b.tokens.size() == 1);
  REQUIRE(b.ends.empty());
  REQUIRE(b.computed.at(1).queue_us == 3000);
  REQUIRE(b.computed.at(1).compute_us == 20000);
  b.EndHandoff(1);
  REQUIRE(b.ends.size() == 1);
  REQUIRE(b.ends[1].exposed_us == 0);  // 5 us after OPEN all was there: computing hid it
}

TEST_CASE("what computing does not hide of a handoff is counted from the first token on") {
  SchedulerFixture b;
  b.Admit(SchedulerFixture::Request(1, 4, kPeer));
  REQUIRE(b.Step(100) == 0);  // sends OPEN
  b.Promise(1);
  REQUIRE(b.Step(4) == 4);  // 10 ms
  REQUIRE(b.tokens.size() == 1);
  b.End({.ticket_id = SchedulerFixture::Id(1), .status = absl::OkStatus(), .transfer_us = 12'500});
  REQUIRE(b.ends.size() == 1);
  REQUIRE(b.ends[1].exposed_us == 2500);
}

TEST_CASE("a step that has enough tokens takes no further prompt, so its prompts end sooner") {
  SchedulerFixture b;
  b.Admit(SchedulerFixture::Request(1, 4));
  b.Admit(SchedulerFixture::Request(2, 26));
  b.Admit(SchedulerFixture::Request(3, 30));
  const auto step = [&b](int enough) {
    b.builder.Clear();
    const int n = b.scheduler->Contribute({.tokens = 16, .enough = enough}, 0, b.now, &b.builder);
    b.backend.Begin(b.builder.batch());
    b.backend.RunLayers(0, 3);
    b.scheduler->LayersDone(3);
    b.FinishStep();
    return n;
  };
  REQUIRE(step(8) == 8);   // 4 alone are too few
  REQUIRE(step(8) == 16);  // one prompt takes the whole step,
  REQUIRE(b.builder.batch().n_pieces() == 1);
  REQUIRE(step(8) == 8);  // the end of 2
  REQUIRE(step(8) == 16);
  REQUIRE(step(100) == 12);
}

TEST_CASE("steps are short while a shorter prompt awaits its promise, four at most") {
  SchedulerFixture b;
  const auto step = [&b] {
    b.builder.Clear();
    const int n = b.scheduler->Contribute({.tokens = 16, .while_asking = 2}, 0, b.now, &b.builder);
    b.backend.Begin(b.builder.batch());
    b.backend.RunLayers(0, 3);
    b.scheduler->LayersDone(3);
    b.FinishStep();
    b.Collect();
    return n;
  };
  b.Admit(SchedulerFixture::Request(1, 130));
  REQUIRE(step() == 16);
  b.Admit(SchedulerFixture::Request(2, 120, kPeer));
  REQUIRE(step() == 16);  // it is the longer one by now
  b.Admit(SchedulerFixture::Request(3, 8, kPeer));
  const int64_t wait_us = GENERATE(0, 1000);
  REQUIRE(step() == 2);
  REQUIRE(b.opens == std::vector<RequestId>{2, 3});
  b.NoRoom(3, wait_us);
  // 0: the sink's engine is only to tell what it holds, between two of its steps
  for (int i = 0; i < 3; ++i) REQUIRE(step() == (wait_us == 0 ? 2 : 16));
  REQUIRE(step() == 16);  // that takes long
  b.Promise(3);
  REQUIRE(step() == 16);
  REQUIRE(b.tokens[0].request_id == 3);
  b.Promise(2);
  while (step() > 0) {
  }
  for (const RequestId id : {2, 3}) b.EndHandoff(id);
  REQUIRE(b.pool->held() == 0);
}

TEST_CASE("compute starts with a promise in hand, and OPEN goes out for the next few only") {
  SchedulerFixture b(200, 0, 2);
  for (RequestId id = 1; id <= 4; ++id) b.Admit(SchedulerFixture::Request(id, 8, kPeer));
  REQUIRE(b.Step(100) == 0);
  REQUIRE(b.opens == std::vector<RequestId>{1, 2});
  b.Promise(2);
  REQUIRE(b.Step(100) == 8);  // request 2 runs; its place in the window goes to 3
  REQUIRE(b.tokens.size() == 1);
  REQUIRE(b.tokens[0].request_id == 2);
  b.Step(100);
  REQUIRE(b.opens == std::vector<RequestId>{1, 2, 3});
  // No room for request 1: one report, and it no longer keeps 4 from opening.
  b.NoRoom(1, 7);
  REQUIRE(b.Step(100) == 0);
  REQUIRE(b.no_room == 1);
  REQUIRE(b.opens == std::vector<RequestId>{1, 2, 3, 4});
  b.Promise(3);
  b.Promise(4);
  REQUIRE(b.Step(100) == 16);
  b.Promise(1);  // room came
  REQUIRE(b.Step(100) == 8);
  REQUIRE(b.commits.size() == 4);
  for (RequestId id = 1; id <= 4; ++id) {
    REQUIRE_FALSE(b.ends.contains(id));  // the pages are read until the handoff ends
    b.EndHandoff(id);
    REQUIRE(b.ends[id].reason == EndReason::kLength);
    REQUIRE(b.ends[id].transfer_us == 5);
  }
  REQUIRE(b.pool->held() == 0);
}

TEST_CASE("every cell is announced once, as soon as its page is full, before COMMIT") {
  const int chunk = GENERATE(1, 3, 5, 8, 0);
  const int layers = GENERATE(1, 2, 3);
  const int n = GENERATE(1, 4, 11, 16);
  SchedulerFixture b(200, chunk);
  b.Admit(SchedulerFixture::Request(1, n, kPeer));
  b.Step(100);
  b.Promise(1);
  std::set<std::pair<int, int>> cells;  // (plane, page)
  std::map<int, int32_t> ids;
  int done = 0;
  while (done < n) {
    REQUIRE(b.commits.empty());
    done += b.Step(100, layers);
    for (const SendCells& s : b.sent)
      for (int plane = s.plane; plane < s.plane + s.n_planes; ++plane)
        for (size_t i = 0; i < s.pages.size(); ++i) {
          const int page = s.first_page + static_cast<int>(i);
          REQUIRE(cells.emplace(plane, page).second);
          REQUIRE(ids.emplace(page, s.pages[i]).first->second == s.pages[i]);
        }
    b.sent.clear();
    const int full = done == n ? (n + kPageTokens - 1) / kPageTokens : done / kPageTokens;
    REQUIRE(cells.size() == static_cast<size_t>(full) * 3);
  }
  REQUIRE(b.commits.size() == 1);
  REQUIRE(b.commits[0].record.n_tokens == n);
  REQUIRE(b.commits[0].record.first_token == b.tokens[0].token);
  b.EndHandoff(1);
}

TEST_CASE("nothing is announced layer by layer when no handoff waits for it") {
  SchedulerFixture b(200, 4);
  b.Admit(SchedulerFixture::Request(1, 8));
  b.Admit(SchedulerFixture::Request(2, 8, kSelf));
  b.builder.Clear();
  REQUIRE(b.scheduler->Contribute({.tokens = 100}, 0, b.now, &b.builder) == 8);
  REQUIRE(b.scheduler->AnnouncedBytesPerLayer() == 0);
  b.backend.Begin(b.builder.batch());
  b.backend.RunLayers(0, 3);
  b.scheduler->LayersDone(3);
  b.FinishStep();
  while (b.Step(100) > 0) {
  }
  REQUIRE(b.sent.empty());
  REQUIRE(b.opens.empty());
  // A prompt whose tokens are computed on the same worker keeps all its promised pages and passes
  // them on.
  REQUIRE(b.kept.size() == 1);
  REQUIRE(b.kept[0].request_id == 2);
  REQUIRE(b.kept[0].pages.size() == 4);
  REQUIRE(b.kept[0].record.n_tokens == 8);
  b.pool->Give(b.kept[0].pages);
}

TEST_CASE("a short prompt passes a long one at the next step; the long one still ends") {
  SchedulerFixture b(800);
  b.Admit(SchedulerFixture::Request(1, 900));
  REQUIRE(b.Step(32) == 32);
  b.Admit(SchedulerFixture::Request(2, 10));
  b.Step(32);
  REQUIRE(b.tokens.size() == 1);
  REQUIRE(b.tokens[0].request_id == 2);
  // An endless flow of short prompts overtakes the long one by at most `stretch` times its length.
  RequestId next = 10;
  int others = 0;
  while (!b.ends.contains(1)) {
    b.Admit(SchedulerFixture::Request(next++, 32));
    b.Step(32);
    others += 32;
    REQUIRE(others <= 3 * (900 + 256) + 900 + 64);
  }
  while (b.Step(1000) > 0) {
  }
  REQUIRE(b.pool->held() == 0);
}

TEST_CASE("a prompt without pages waits; smaller ones pass it, but not for ever") {
  SchedulerFixture b(30);                     // pages
  b.Admit(SchedulerFixture::Request(1, 60));  // 15 pages
  REQUIRE(b.Step(4) == 4);
  b.Admit(SchedulerFixture::Request(2, 100));  // 25 pages: must wait for request 1
  RequestId next = 10;
  int steps = 0;
  while (!b.ends.contains(2)) {
    b.Admit(SchedulerFixture::Request(next++, 20));
    b.Step(20);
    REQUIRE(++steps < 400);
  }
  while (b.Step(1000) > 0) {
  }
  REQUIRE(b.pool->held() == 0);
}

TEST_CASE("a prompt that has its pages goes on while the first one waits for pages") {
  SchedulerFixture b(40);
  b.Admit(SchedulerFixture::Request(4, 60, kHighPeer));  // 15 pages, and the promise never comes
  b.Step(1);
  const auto pass = [&b](RequestId id) {
    b.Admit(SchedulerFixture::Request(id, 20));
    return b.ChunkStep(20);
  };
  b.Admit(SchedulerFixture::Request(1, 124));  // 31 pages; aged when passed by 1,140 tokens
  for (RequestId id = 10; id < 67; ++id) REQUIRE(pass(id) == 20);
  for (const RequestId id : {2, 3}) {  // 10 pages each; one at a time on the engine
    PrefillRequest request = SchedulerFixture::Request(id, 40);
    request.slices = {{.begin = 0, .end = 20}, {.begin = 20, .end = 40}};
    b.Admit(std::move(request));
  }
  REQUIRE(b.ChunkStep(1) == 0);
  REQUIRE(b.pool->held() == 35);
  REQUIRE(pass(67) == 20);
  REQUIRE(pass(68) == 0);  // nobody starts before request 1 any more
  b.scheduler->prompts().Cancel(4, 1);
  b.EndHandoff(4, absl::CancelledError("cancelled"));  // 30 pages are not request 3's
  while (b.Step(1000) > 0) {
  }
  for (const RequestId id : {1, 2, 3, 68}) CHECK(b.ends[id].reason == EndReason::kLength);
}

TEST_CASE("the pages a prompt waits for are named, for the lender to reclaim") {
  SchedulerFixture b(10);
  std::vector<int32_t> lent;
  REQUIRE(b.pool->Take(8, &lent));
  PrefillRequest request = SchedulerFixture::Request(1, 20);
  b.scheduler->prompts().Admit(std::move(request), b.now);
  b.builder.Clear();
  REQUIRE(b.scheduler->Contribute({.tokens = 100}, 0, b.now, &b.builder) == 0);
  REQUIRE(b.scheduler->prompts().pages().wanted() == 5);
  b.pool->Give(lent);
  REQUIRE(b.Step(100) == 20);
  REQUIRE(b.scheduler->prompts().pages().wanted() == 0);
}

TEST_CASE("towards a sink of higher order, pages are taken before the promise; else after it") {
  SchedulerFixture b(10);
  b.Admit(SchedulerFixture::Request(1, 24, kHighPeer));  // 6 pages
  b.Admit(SchedulerFixture::Request(2, 20, kHighPeer));  // 5 pages: no room beside the other prompt
  b.Admit(SchedulerFixture::Request(3, 24, kPeer));
  REQUIRE(b.Step(100) == 0);
  REQUIRE(b.opens == std::vector<RequestId>{2, 3});
  REQUIRE(b.pool->held() == 5);
  REQUIRE(b.scheduler->prompts().pages().wanted() == 6);
  b.Promise(3);  // cannot start yet: needs 6 more pages
  REQUIRE(b.Step(100) == 0);
  b.Promise(2);
  REQUIRE(b.Step(100) == 20);
  b.EndHandoff(2);
  REQUIRE(b.Step(100) == 24);  // 3: a prompt that can start comes before one that would wait
  REQUIRE(b.opens.size() == 2);
  b.EndHandoff(3);
  b.Step(100);
  REQUIRE(b.opens == std::vector<RequestId>{2, 3, 1});
  b.scheduler->prompts().Cancel(1, 1);
  b.Collect();
  REQUIRE(b.pool->held() == 6);
  b.EndHandoff(1, absl::CancelledError("cancelled"));
  REQUIRE(b.pool->held() == 0);
}

TEST_CASE("cancel: at once without a handoff, after its end with one, and twice is once") {
  SchedulerFixture b;
  b.Admit(SchedulerFixture::Request(1, 40));
  b.Admit(SchedulerFixture::Request(2, 40, kPeer));
  b.Step(8);
  b.Promise(2);
  b.Step(60);
  b.scheduler->prompts().Cancel(1, 1);
  b.scheduler->prompts().Cancel(2, 0);  // a cancel of an earlier attempt has no effect
  b.Collect();
  REQUIRE(b.cancels.empty());
  b.scheduler->prompts().Cancel(2, 1);
  b.scheduler->prompts().Cancel(2, 1);
  b.Collect();
  REQUIRE(b.cancels.size() == 1);
  REQUIRE_FALSE(b.ends.contains(2));
  REQUIRE(b.Step(100) == 0);  // stopped, though its pages are still held
  REQUIRE(b.pool->held() == 10);
  b.EndHandoff(2, absl::CancelledError("cancelled"));
  REQUIRE(b.ends[2].reason == EndReason::kCancelled);
  REQUIRE(b.pool->held() == 0);
  REQUIRE(b.scheduler->prompts().queue().size() == 0);
}

TEST_CASE("a handoff that fails ends its prompt with the reason, wherever it is") {
  SchedulerFixture b;
  for (RequestId id = 1; id <= 3; ++id) b.Admit(SchedulerFixture::Request(id, 12, kPeer));
  b.Step(100);
  b.Promise(2);
  b.Step(4);
  b.Promise(3);
  b.Step(100);
  for (RequestId id = 1; id <= 3; ++id) {
    b.EndHandoff(id, absl::UnavailableError("peer lost"));
    REQUIRE(b.ends[id].reason == EndReason::kFailed);
    REQUIRE(b.ends[id].message.find("peer lost") != std::string::npos);
  }
  REQUIRE(b.pool->held() == 0);
  REQUIRE(b.Step(100) == 0);
}

TEST_CASE("time alone ends a prompt in every state; what may still be read waits for the link") {
  SchedulerFixture b(200, 0, 4);
  for (RequestId id = 1; id <= 4; ++id) b.Admit(SchedulerFixture::Request(id, 12, kPeer));
  b.Step(100);
  b.Promise(2);
  b.Promise(3);
  b.Step(4);  // runs a chunk of one
  b.Promise(4);
  b.Step(12);  // one prompt is promised, one runs, one is committing
  b.Admit(SchedulerFixture::Request(5, 40, kPeer));
  REQUIRE(b.scheduler->prompts().queue().n_running() == 1);
  REQUIRE(b.scheduler->prompts().queue().size() == 5);
  while (b.scheduler->prompts().NextDeadline() < absl::InfiniteFuture()) {
    REQUIRE(b.scheduler->prompts().NextDeadline() > b.now);
    b.now = b.scheduler->prompts().NextDeadline();
    b.scheduler->prompts().OnTime(b.now);
    b.Collect();
  }
  REQUIRE(b.ends.size() == 1);  // the prompt without a handoff
  REQUIRE(b.ends[5].message == "prefill: queued for 10m without progress");
  REQUIRE(b.cancels.size() == 4);
  REQUIRE(b.pool->held() > 0);
  for (RequestId id = 1; id <= 4; ++id) {
    b.EndHandoff(id, absl::CancelledError("cancelled"));
    REQUIRE(b.ends[id].reason == EndReason::kFailed);
    REQUIRE(b.ends[id].message.find("for 10m without progress") != std::string::npos);
  }
  REQUIRE(b.ends[1].message == "prefill: opening for 10m without progress");
  REQUIRE(b.pool->held() == 0);
}

TEST_CASE("what can never run is refused by name, and repeats are ignored") {
  SchedulerFixture b(10);
  const auto why = [&b](PrefillRequest request) {
    const RequestId id = request.request_id;
    b.Admit(std::move(request));
    b.Collect();
    return b.ends.contains(id) ? b.ends[id].message : "";
  };
  REQUIRE(why(SchedulerFixture::Request(1, 0)) == "empty prompt");
  REQUIRE(why(SchedulerFixture::Request(2, 1001)) == "prompt of 1001 tokens, context of 1000");
  REQUIRE(why(SchedulerFixture::Request(3, 41)) == "needs 11 KV pages, this worker has 10");
  PrefillRequest bad_token = SchedulerFixture::Request(4, 4);
  bad_token.tokens[2] = HashBackend::kVocab;
  REQUIRE(why(bad_token) == "token id 61, vocabulary of 61");
  PrefillRequest bad_ticket = SchedulerFixture::Request(5, 8, kPeer);
  bad_ticket.slices[0].outputs[0].ticket.kv_pages = 3;
  REQUIRE(why(bad_ticket) == "ticket of 3 KV pages, 4 promised; the prompt has 2");
  REQUIRE(why(SchedulerFixture::Request(6, 8)) == "");
  REQUIRE(why(SchedulerFixture::Request(6, 8)) == "");
  REQUIRE(b.scheduler->prompts().queue().size() == 1);
  for (RequestId id = 100; id < 149; ++id) REQUIRE(why(SchedulerFixture::Request(id, 4)) == "");
  REQUIRE(why(SchedulerFixture::Request(200, 4)) == "prefill queue full (50 prompts)");
}

TEST_CASE("what fell out of the window is given back, unless it is handed over") {
  constexpr int kPages = 20, kPrompt = 40, kPromptPages = kPrompt / kPageTokens, kWindow = 6;
  const bool all_layers = GENERATE(true, false), handed_over = GENERATE(true, false);
  const std::vector<int> windows{all_layers ? kWindow : 0, kWindow, kWindow};
  SchedulerFixture b(kPages, 8, 4, nullptr, true, windows);
  b.Admit(SchedulerFixture::Request(1, kPrompt, handed_over ? kPeer : 0));
  REQUIRE(b.Step(8) == (handed_over ? 0 : 8));
  b.Promise(1);
  for (int done = handed_over ? 0 : 8; done < kPrompt; done += b.Step(8)) {
    if (done == 0) continue;
    const int passed = handed_over ? 0 : b.pool->layout().PagesPassed(done);
    REQUIRE(b.scheduler->prompts().pages_held() == kPromptPages - (all_layers ? passed : 0));
    REQUIRE(b.pool->free() == kPages - kPromptPages + passed * (all_layers ? 3 : 2) / 3);
  }
  REQUIRE(b.pool->held() == (handed_over ? kPromptPages : 0));
  if (handed_over) {
    REQUIRE(b.commits.size() == 1);
    b.EndHandoff(1);
  }
  REQUIRE(b.pool->free() == kPages);
  HashBackend reference(kPageTokens, 3, windows);
  const SequentialTokens expected = SequentialRun(
      &reference, SchedulerFixture::Request(1, kPrompt).tokens, 1, {.temperature = 0});
  REQUIRE(b.tokens.size() == 1);
  REQUIRE(b.tokens[0].token == expected.tokens[0]);
}

}  // namespace
}  // namespace baton
