// A decode batch over the backend that hashes, with requests and KV as others would bring them.
#pragma once

#include <catch2/catch.hpp>
#include <map>
#include <optional>

#include "decode_worker/decode_batch.h"
#include "tests/support/hash_backend.h"
#include "tests/support/sequential_run.h"

namespace baton {

inline constexpr int kPageTokens = 4;

struct DecodeBatchFixture {
  explicit DecodeBatchFixture(int max_batch = 8, int n_pages = 200,
                              TransitionCounts* transitions = nullptr,
                              const std::vector<int>& windows = {}, const RopeDesc& rope = {})
      : backend(kPageTokens, 3, windows, rope) {
    DecodeOptions options;
    options.transitions = transitions;
    options.max_batch = max_batch;
    options.max_sequences = 20;
    pool = std::move(*KvPool::Create(backend.kv_layout(), n_pages));
    backend.SetPages(pool->pages());
    index.emplace(pool.get());
    batch = std::make_unique<DecodeBatch>(options, backend.model(), pool.get(), &*index);
  }

  static std::vector<int32_t> Prompt(RequestId id, int n) {
    std::vector<int32_t> prompt;
    for (int i = 0; i < n; ++i)
      prompt.push_back(static_cast<int32_t>((id * 13 + i * 5) % HashBackend::kVocab));
    return prompt;
  }
  static DecodeRequest Request(RequestId id, int n_prompt, int max_tokens) {
    DecodeRequest request;
    request.request_id = id;
    request.epoch = 1;
    request.ticket_id = {.high = 0, .low = id};
    request.tokens = Prompt(id, n_prompt);
    request.max_tokens = max_tokens;
    request.sampling.temperature = 0;
    request.want_digests = true;
    return request;
  }
  // Returns KV of a prompt and its first token, as a prefill makes them.
  HandoffArrived Kv(RequestId id, int n_prompt, int n_pages) {
    HandoffArrived kv;
    kv.ticket_id = {.high = 0, .low = id};
    kv.epoch = 1;
    kv.request_id = id;
    kv.transfer_us = 11;
    REQUIRE(pool->Take(n_pages, &kv.pages));
    const std::vector<int32_t> prompt = Prompt(id, n_prompt);
    builder.Clear();
    builder.WantLogits(builder.AddPiece(prompt, 0, kv.pages) + n_prompt - 1);
    backend.Begin(builder.batch());
    backend.RunLayers(0, 3);
    kv.record = {
        .first_token = sampler.Sample(backend.logits(0), {.temperature = 0}, n_prompt).token,
        .n_tokens = n_prompt};
    return kv;
  }
  void Arrive(HandoffArrived kv) { batch->On(kv, now); }
  int Step() {
    builder.Clear();
    const int rows = batch->Contribute(now, reclaimable, &builder);
    if (rows > 0) {
      now += absl::Milliseconds(1);
      backend.Begin(builder.batch());
      backend.RunLayers(0, 3);
      std::vector<RowSampling> sampling;
      StepOutput out;
      REQUIRE(batch->CanSample());
      batch->AddSampling(&sampling);
      backend.Sample(sampling, &out);
      batch->StepDone(out.sampled, now);
    }
    Collect();
    return rows;
  }
  void Collect() {
    for (const DecodeEffect& effect : batch->TakeEffects()) {
      if (const auto* command = std::get_if<TransferCommand>(&effect)) {
        handoff_cancels += std::holds_alternative<CancelHandoff>(*command);
        if (const auto* lend = std::get_if<LendHeld>(command)) {
          held.push_back(*lend);
          n_lent += static_cast<int>(lend->pages.size());
        }
        continue;
      }
      const WorkerEvent& event = std::get<WorkerEvent>(effect);
      if (auto* token = std::get_if<TokenOut>(&event)) {
        tokens[token->request_id].push_back(token->token);
        digests[token->request_id].push_back(token->digest);
        logprobs[token->request_id].push_back(token->logprobs);
      }
      if (auto* part = std::get_if<PartEnded>(&event)) ends[part->request_id] = *part;
    }
    REQUIRE(pool->held() == batch->pages_held() + n_lent);
  }
  // Checks every token except the first, which the prefill made.
  void CheckExact(RequestId id, int n_prompt, int max_tokens,
                  const std::vector<int32_t>& stops = {}) {
    HashBackend reference(kPageTokens, 3, backend.model().windows);
    SequentialTokens expected =
        SequentialRun(&reference, Prompt(id, n_prompt), max_tokens, {.temperature = 0}, stops);
    expected.tokens.erase(expected.tokens.begin());
    expected.digests.erase(expected.digests.begin());
    REQUIRE(tokens[id] == expected.tokens);
    REQUIRE(digests[id] == expected.digests);
  }

  HashBackend backend;
  std::unique_ptr<KvPool> pool;
  std::optional<PrefixIndex> index;
  std::unique_ptr<DecodeBatch> batch;
  StepBuilder builder;
  Sampler sampler;
  absl::Time now = absl::UnixEpoch();
  std::map<RequestId, std::vector<int32_t>> tokens;
  std::map<RequestId, std::vector<uint64_t>> digests;
  std::map<RequestId, std::vector<std::vector<TokenLogprob>>> logprobs;
  std::map<RequestId, PartEnded> ends;
  int handoff_cancels = 0;
  std::vector<LendHeld> held;
  int reclaimable = 0;
  int n_lent = 0;
};

}  // namespace baton
