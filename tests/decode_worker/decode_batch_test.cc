#include "tests/decode_worker/decode_batch_fixture.h"

namespace baton {
namespace {

TEST_CASE("a row's range of longrope follows from its prompt and the tokens wanted") {
  DecodeBatchFixture b(8, 200, nullptr, {}, LongropeFrom(9));
  for (const auto& [id, max_tokens] : {std::pair<RequestId, int>{1, 4}, {2, 5}}) {
    b.batch->Expect(DecodeBatchFixture::Request(id, 5, max_tokens), b.now);
    b.Arrive(b.Kv(id, 5, 3));
  }
  REQUIRE(b.Step() == 2);
  const StepBatch batch = b.builder.batch();
  REQUIRE((batch.ropes[0] == RopeRange::kShort && batch.ropes[1] == RopeRange::kLong));
  while (b.Step() > 0) {
  }
}

TEST_CASE("pages are expected for sequences of other workers only") {
  DecodeBatchFixture b;
  DecodeRequest local = DecodeBatchFixture::Request(1, 5, 4);
  local.is_local = true;  // the prompt has taken pages for it
  b.batch->Expect(local, b.now);
  REQUIRE(b.batch->expected_pages() == 0);
  b.batch->Expect(DecodeBatchFixture::Request(2, 5, 4), b.now);
  REQUIRE(b.batch->expected_pages() >= 2);
  b.batch->CancelAll();
}

TEST_CASE("a sequence joins at the next step, whichever of request and KV comes first") {
  DecodeBatchFixture b;
  b.batch->Expect(DecodeBatchFixture::Request(1, 5, 4), b.now);
  REQUIRE(b.Step() == 0);
  REQUIRE(b.batch->n_waiting() == 1);
  REQUIRE(b.batch->expected_pages() >= 2);
  b.Arrive(b.Kv(1, 5, 2));
  b.Arrive(b.Kv(2, 9, 4));
  REQUIRE(b.Step() == 1);
  b.batch->Expect(DecodeBatchFixture::Request(2, 9, 6), b.now);
  REQUIRE(b.Step() == 2);
  while (b.Step() > 0) {
  }
  b.CheckExact(1, 5, 4);
  b.CheckExact(2, 9, 6);
  REQUIRE(b.ends[1].reason == EndReason::kLength);
  REQUIRE(b.ends[1].transfer_us == 11);
  REQUIRE(b.ends[1].compute_us == 3000);
  REQUIRE(b.ends[1].first_step_us == 1000);
  REQUIRE(b.pool->held() == 0);
}

TEST_CASE("a finished row leaves in its step and a waiting one takes its place in the next") {
  DecodeBatchFixture b(2);
  for (RequestId id = 1; id <= 5; ++id) {
    b.batch->Expect(DecodeBatchFixture::Request(id, 4, 1 + static_cast<int>(id)), b.now);
    b.Arrive(b.Kv(id, 4, 3));
  }
  REQUIRE(b.batch->n_waiting() == 5);
  REQUIRE(b.Step() == 2);  // request 1 ends in this step: it wanted one more token
  REQUIRE(b.ends.contains(1));
  REQUIRE(b.batch->n_rows() == 1);
  int rows = 0;
  while ((rows = b.Step()) > 0) REQUIRE(rows <= 2);
  for (RequestId id = 1; id <= 5; ++id) b.CheckExact(id, 4, 1 + static_cast<int>(id));
  REQUIRE(b.pool->held() == 0);
}

TEST_CASE("a stop token ends a row, the first token too") {
  HashBackend reference(kPageTokens);
  const SequentialTokens all =
      SequentialRun(&reference, DecodeBatchFixture::Prompt(1, 6), 10, {.temperature = 0});
  const int at = GENERATE(0, 1, 4);
  DecodeBatchFixture b;
  DecodeRequest request = DecodeBatchFixture::Request(1, 6, 10);
  request.stop_tokens = {all.tokens[at]};
  b.batch->Expect(request, b.now);
  b.Arrive(b.Kv(1, 6, 4));
  while (b.Step() > 0) {
  }
  REQUIRE(b.ends[1].reason == EndReason::kStopToken);
  b.CheckExact(1, 6, 10, request.stop_tokens);
  REQUIRE(b.pool->held() == 0);
}

TEST_CASE("a row counts the prompt, earlier attempts' tokens, the first token and its own") {
  const std::vector<int32_t> prompt = DecodeBatchFixture::Prompt(1, 6);
  const SamplingParams sampling{.temperature = 0,
                                .presence_penalty = 0.75f,
                                .frequency_penalty = 0.5f,
                                .repetition_penalty = 1.5f,
                                .min_tokens = 9,
                                .bad_words = {{3, 4}, {5}},
                                .top_logprobs = 4};
  HashBackend reference(kPageTokens);
  const std::vector<int32_t> stops = {7, 11, 13, 17, 19, 23};
  const SequentialTokens all = SequentialRun(&reference, prompt, 20, sampling, stops);
  const int done = GENERATE(0, 1, 5);  // tokens of earlier attempts
  std::vector<int32_t> history = prompt;
  history.insert(history.end(), all.tokens.begin(), all.tokens.begin() + done);
  const int n_prompt = static_cast<int>(history.size());
  DecodeBatchFixture b;
  DecodeRequest request = DecodeBatchFixture::Request(1, n_prompt, 20 - done);
  request.sampling = sampling;
  request.stop_tokens = stops;
  request.n_generated = done;
  request.tokens = history;
  HandoffArrived kv;
  kv.ticket_id = request.ticket_id;
  kv.epoch = 1;
  kv.request_id = 1;
  REQUIRE(b.pool->Take(8, &kv.pages));
  b.builder.Clear();
  b.builder.AddPiece(history, 0, kv.pages);
  b.backend.Begin(b.builder.batch());
  b.backend.RunLayers(0, 3);
  kv.record = {.first_token = all.tokens[static_cast<size_t>(done)], .n_tokens = n_prompt};
  const bool request_first = GENERATE(true, false);
  if (request_first) b.batch->Expect(request, b.now);
  b.Arrive(std::move(kv));
  b.batch->Expect(request, b.now);  // or said twice
  while (b.Step() > 0) {
  }
  CHECK(b.tokens[1] == std::vector<int32_t>(all.tokens.begin() + done + 1, all.tokens.end()));
  CHECK(b.logprobs[1] ==
        std::vector<std::vector<TokenLogprob>>(all.beside.begin() + done + 1, all.beside.end()));
  CHECK(all.tokens.size() >= 9);
  CHECK(b.pool->held() == 0);
}

TEST_CASE("a request whose tokens are missing, others than came or of another vocabulary") {
  DecodeBatchFixture b;
  const auto refusal = [&b](RequestId id, std::vector<int32_t> tokens) {
    DecodeRequest request = DecodeBatchFixture::Request(id, 5, 4);
    request.tokens = std::move(tokens);
    b.batch->Expect(request, b.now);
    b.Arrive(b.Kv(id, 5, 3));
    b.Collect();
    CHECK(b.ends[id].reason == EndReason::kFailed);
    return b.ends[id].message;
  };
  CHECK(refusal(1, {}) == "a decode request without prompt or tokens to make");
  CHECK(refusal(2, {1, 2}) == "KV of 5 tokens came for a prompt of 2");
  CHECK(refusal(3, {1, 2, 3, 4, 61}) == "token id 61 in the prompt, vocabulary of 61");
  DecodeRequest request = DecodeBatchFixture::Request(4, 5, 4);
  request.n_generated = 5;
  b.batch->Expect(request, b.now);
  b.Collect();
  CHECK(b.ends[4].reason == EndReason::kFailed);
  CHECK(b.pool->held() == 0);
}

TEST_CASE("KV whose request never comes is given back at its deadline") {
  DecodeBatchFixture b;
  b.Arrive(b.Kv(1, 5, 2));
  b.now += absl::Seconds(4);
  b.Arrive(b.Kv(2, 5, 2));
  REQUIRE(b.batch->NextDeadline() == absl::UnixEpoch() + absl::Seconds(10));
  b.now = b.batch->NextDeadline();
  b.batch->OnTime(b.now);
  REQUIRE(b.pool->held() == 2);
  b.batch->Expect(DecodeBatchFixture::Request(2, 5, 3), b.now);  // in time
  b.now += absl::Seconds(10);
  b.batch->OnTime(b.now);
  REQUIRE(b.batch->n_sequences() == 1);
  while (b.Step() > 0) {
  }
  b.CheckExact(2, 5, 3);
  REQUIRE_FALSE(b.ends.contains(1));  // no request for 1 came from the router here
  REQUIRE(b.pool->held() == 0);
}

TEST_CASE("time alone ends a sequence in every state") {
  DecodeBatchFixture b(1);
  b.batch->Expect(DecodeBatchFixture::Request(1, 5, 4), b.now);  // the KV of request 1 never comes
  b.batch->Expect(DecodeBatchFixture::Request(2, 5, 4), b.now);
  b.Arrive(b.Kv(2, 5, 2));
  b.batch->Expect(DecodeBatchFixture::Request(3, 5, 4), b.now);
  b.Arrive(b.Kv(3, 5, 2));  // one row: waits
  b.Arrive(b.Kv(4, 5, 2));  // no request for 4 comes
  REQUIRE(b.Step() == 1);
  REQUIRE(b.batch->NextDeadline() == absl::UnixEpoch() + absl::Seconds(10));
  while (b.batch->n_sequences() > 0) {
    REQUIRE(b.batch->NextDeadline() > b.now);
    REQUIRE(b.batch->NextDeadline() < absl::InfiniteFuture());
    b.now = b.batch->NextDeadline();
    b.batch->OnTime(b.now);
    b.Collect();
  }
  REQUIRE(b.batch->NextDeadline() == absl::InfiniteFuture());
  REQUIRE(b.ends[1].message == "decode: expected for 30m without progress");
  REQUIRE(b.ends[2].message == "decode: decoding for 10m without progress");
  REQUIRE(b.ends[3].message == "decode: ready for 10m without progress");
  REQUIRE_FALSE(b.ends.contains(4));
  REQUIRE(b.handoff_cancels == 1);
  REQUIRE(b.pool->held() == 0);
  REQUIRE(b.Step() == 0);
}

TEST_CASE("every state of a sequence has a deadline, and every transition can be taken") {
  const MachineTable& table = SequenceTable();
  for (const StateRow& state : table.states) {
    CAPTURE(state.name);
    REQUIRE(state.deadline.empty() == (&state == &table.states.back()));
    REQUIRE(state.on_deadline.empty() == state.deadline.empty());
  }
  TransitionCounts counts;
  DecodeBatchFixture b(1, 200, &counts);
  const auto expect = [&](RequestId id) {
    b.batch->Expect(DecodeBatchFixture::Request(id, 5, 4), b.now);
  };
  const auto arrive = [&](RequestId id) { b.Arrive(b.Kv(id, 5, 2)); };
  for (const RequestId id : {1, 2}) {
    expect(id);
    arrive(id);
  }
  b.Step();
  b.batch->Cancel(2, 1);  // ready
  arrive(3);
  expect(3);
  arrive(4);
  b.batch->Cancel(4, 1);  // orphan
  expect(5);
  b.batch->Cancel(5, 1);  // expected
  while (b.Step() > 0) {
  }
  for (const TransitionRow& row : table.transitions) {
    CAPTURE(table.states[row.from].name, table.states[row.to].name);
    REQUIRE(counts.count(table, row) > 0);
  }
  REQUIRE(b.pool->held() == 0);
}

TEST_CASE("a row takes pages as it grows; without any the youngest that is not covered goes") {
  DecodeBatchFixture b(8, 8);
  for (const RequestId id : {1, 2, 3}) {
    b.batch->Expect(DecodeBatchFixture::Request(id, 4, 13), b.now);  // whole: 4 pages
    b.Arrive(b.Kv(id, 4, id == 2 ? 4 : 1));
  }
  REQUIRE(b.pool->free() == 2);
  REQUIRE(b.Step() == 3);  // requests 1 and 3 take the last pages
  REQUIRE(b.batch->growth_pages() == 2);
  for (int i = 1; i < 4; ++i) REQUIRE(b.Step() == 3);
  REQUIRE(b.ends.empty());
  REQUIRE(b.Step() == 2);
  REQUIRE(b.ends.at(3).reason == EndReason::kPreempted);
  REQUIRE(b.tokens[3].size() == 4);
  while (b.Step() > 0) {
  }
  b.CheckExact(1, 4, 13);
  b.CheckExact(2, 4, 13);
  REQUIRE(b.ends.size() == 3);
  REQUIRE(b.ends[1].reason == EndReason::kLength);
  REQUIRE(b.pool->held() == 0);
}

TEST_CASE("sequences that wait for a row are preempted before any row") {
  DecodeBatchFixture b(1, 3);
  for (const RequestId id : {1, 2}) {
    b.batch->Expect(DecodeBatchFixture::Request(id, 4, 9), b.now);
    b.Arrive(b.Kv(id, 4, 1));
  }
  while (b.Step() > 0) {
  }
  REQUIRE(b.ends[2].reason == EndReason::kPreempted);
  b.CheckExact(1, 4, 9);
  REQUIRE(b.pool->held() == 0);
}

TEST_CASE("a row without a page waits for those on their way back, and goes when it is alone") {
  DecodeBatchFixture b(4, 2);
  b.batch->Expect(DecodeBatchFixture::Request(1, 4, 9), b.now);
  b.Arrive(b.Kv(1, 4, 1));
  std::vector<int32_t> lent;
  REQUIRE(b.pool->Take(1, &lent));
  b.n_lent = b.reclaimable = 1;
  REQUIRE(b.Step() == 0);
  REQUIRE(b.batch->n_rows() == 1);
  REQUIRE(b.batch->growth_pages() == 1);
  b.pool->Give(lent);
  b.n_lent = 0;
  for (int i = 0; i < 4; ++i) REQUIRE(b.Step() == 1);
  b.reclaimable = 0;  // all pages have holders: a wait for them could be a circle
  REQUIRE(b.Step() == 0);
  REQUIRE(b.ends[1].reason == EndReason::kPreempted);
  REQUIRE(b.pool->held() == 0);
}

TEST_CASE("cancel ends every attempt up to its epoch, and KV that comes later is given back") {
  DecodeBatchFixture b;
  b.batch->Expect(DecodeBatchFixture::Request(1, 5, 4), b.now);
  DecodeRequest second = DecodeBatchFixture::Request(1, 5, 4);
  second.epoch = 2;
  b.batch->Expect(second, b.now);
  b.batch->Cancel(1, 1);
  b.batch->Cancel(1, 1);
  b.Collect();
  REQUIRE(b.handoff_cancels == 1);
  REQUIRE(b.batch->n_sequences() == 1);
  b.Arrive(b.Kv(1, 5, 2));  // epoch 1: was under way
  REQUIRE(b.pool->held() == 0);
  HandoffArrived kv = b.Kv(1, 5, 2);
  kv.epoch = 2;
  b.Arrive(std::move(kv));
  REQUIRE(b.Step() == 1);
  b.batch->Cancel(1, 2);
  b.Collect();
  REQUIRE(b.pool->held() == 0);
  REQUIRE(b.Step() == 0);
}

TEST_CASE("a later attempt ends the earlier ones, also those that are told of after it") {
  DecodeBatchFixture b;
  b.Arrive(b.Kv(1, 5, 2));
  DecodeRequest third = DecodeBatchFixture::Request(1, 5, 4);
  third.epoch = 3;
  b.batch->Expect(third, b.now);
  DecodeRequest second = DecodeBatchFixture::Request(1, 5, 4);
  second.epoch = 2;
  b.batch->Expect(second, b.now);
  b.Collect();
  REQUIRE(b.batch->n_sequences() == 1);
  REQUIRE(b.pool->held() == 0);
  HandoffArrived kv = b.Kv(1, 5, 2);
  kv.epoch = 3;
  b.Arrive(std::move(kv));
  while (b.Step() > 0) {
  }
  b.CheckExact(1, 5, 4);
}

TEST_CASE("an aborted handoff fails its sequence; one that has its KV is not touched by it") {
  DecodeBatchFixture b;
  b.batch->Expect(DecodeBatchFixture::Request(1, 5, 4), b.now);
  b.batch->On(HandoffAborted{.ticket_id = {},
                             .epoch = 1,
                             .request_id = 1,
                             .status = absl::UnavailableError("peer lost")},
              b.now);
  b.Collect();
  REQUIRE(b.ends[1].reason == EndReason::kFailed);
  REQUIRE(b.batch->n_sequences() == 0);
}

TEST_CASE("KV that does not fit its request fails the request by name") {
  DecodeBatchFixture b;
  b.batch->Expect(DecodeBatchFixture::Request(1, 6, 4), b.now);
  b.Arrive(b.Kv(1, 5, 3));
  b.batch->Expect(DecodeBatchFixture::Request(2, 5, 100), b.now);
  HandoffArrived narrow = b.Kv(2, 5, 2);
  b.pool->Give(std::span(&narrow.pages.back(), 1));
  narrow.pages.pop_back();
  b.Arrive(std::move(narrow));
  HandoffArrived wild = b.Kv(3, 5, 3);
  wild.record.first_token = HashBackend::kVocab;
  b.batch->Expect(DecodeBatchFixture::Request(3, 5, 4), b.now);
  b.Arrive(std::move(wild));
  b.batch->Expect(DecodeBatchFixture::Request(4, 5, 0), b.now);
  b.Collect();
  REQUIRE(b.ends[1].message == "KV of 5 tokens came for a prompt of 6");
  REQUIRE(b.ends[2].message == "1 pages promised, 2 needed");
  REQUIRE(b.ends[3].message == "first token 61, vocabulary of 61");
  REQUIRE(b.ends[4].reason == EndReason::kFailed);
  for (RequestId id = 10; id < 31; ++id)
    b.batch->Expect(DecodeBatchFixture::Request(id, 5, 4), b.now);
  b.Collect();
  REQUIRE(b.ends[30].message == "decode queue full (20 requests)");
  REQUIRE(b.pool->held() == 0);
}

TEST_CASE("rows give back what fell out of the window, and go on in what others gave back") {
  constexpr int kPrompt = 30, kTokens = 60, kWindow = 10;
  const bool all_layers = GENERATE(true, false);
  // Per row: the page where the window begins, and the pages of its tokens with the row's own; with
  // a window in two of three layers, also a third of all pages.
  const int in_window = kWindow / kPageTokens + 2, whole = (kPrompt + kTokens) / kPageTokens + 1;
  const int n_pages = all_layers ? 8 + in_window : 2 * ((whole + 2 * in_window) / 3 + 1);
  DecodeBatchFixture b(8, n_pages, nullptr, {all_layers ? 3 : 0, kWindow, kWindow});
  REQUIRE(n_pages < whole);
  for (const RequestId id : {1, 2}) {
    b.batch->Expect(DecodeBatchFixture::Request(id, kPrompt, kTokens), b.now);
    b.Arrive(b.Kv(id, kPrompt, 8));
    if (all_layers) REQUIRE(b.pool->held() <= in_window * static_cast<int>(id));
  }
  while (b.Step() > 0) {
    REQUIRE(b.batch->n_rows() != 1);  // neither row was preempted
    if (all_layers) REQUIRE(b.pool->held() <= 2 * in_window);
  }
  for (const RequestId id : {1, 2}) {
    REQUIRE(b.ends[id].reason == EndReason::kLength);
    b.CheckExact(id, kPrompt, kTokens);
  }
  REQUIRE(b.pool->held() == 0);
  REQUIRE(b.pool->free() == n_pages);
}

}  // namespace
}  // namespace baton
