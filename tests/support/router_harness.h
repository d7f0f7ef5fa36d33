// A Router with its effects sorted for tests: messages per worker, tokens and ends per request.
// Checks the rules that always hold: indices ascend from 0, one end, nothing after it.
#pragma once

#include <catch2/catch.hpp>

#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "router/router.h"

namespace baton {

inline ClusterKey TestKey() { return ClusterKey{1, 2, 3}; }

inline uint64_t CountedId() {
  static uint64_t next = 1;
  return next++;
}

inline WorkerAnnounce Announce(Incarnation id, Role role) {
  WorkerAnnounce announce;
  announce.incarnation = id;
  announce.name = "w" + std::to_string(id);
  announce.role = role;
  announce.transfer = {.incarnation = id, .address = "127.0.0.1:" + std::to_string(1000 + id)};
  announce.model_fingerprint = 7;
  announce.numerics_id = "cpu-x86";
  announce.layout_id = "L";
  announce.page_tokens = 16;
  announce.pages_total = 1000;
  announce.max_context = 2048;
  announce.max_batch = 8;
  return announce;
}

// Returns the load of a worker whose prompts cost the same per token at any length.
inline WorkerLoad MeasuredLoad(double tokens_per_s) {
  constexpr int kLayers = 4;
  return {.prefill_cost = {.n_layers = kLayers,
                           .token = 1 / (kLayers * tokens_per_s),
                           .kv_bytes = 2048},
          .fitted_tokens = 1000};
}

struct RouterHarness {
  explicit RouterHarness(RouterOptions options = {}) : router(options, TestKey(), CountedId) {}

  absl::Status Report(Incarnation worker, std::vector<WorkerEvent> events) {
    const absl::Status status =
        router.OnReport(worker, {.events = std::move(events), .engine = engines[worker]}, now);
    Collect();
    return status;
  }
  void Join(Incarnation id, Role role) { REQUIRE(Report(id, {Announce(id, role)}).ok()); }
  void Lose(Incarnation id) {
    router.OnWorkerLost(id, now);
    Collect();
  }
  RequestId Submit(int32_t n_prompt, int32_t max_tokens, std::vector<int32_t> stop_tokens = {}) {
    GenerateRequest request;
    for (int32_t i = 0; i < n_prompt; ++i) request.prompt.push_back(100 + i);
    request.max_tokens = max_tokens;
    request.stop_tokens = std::move(stop_tokens);
    request.sampling.seed = 5;
    return Submit(std::move(request));
  }
  RequestId Submit(GenerateRequest request) {
    const absl::StatusOr<RequestId> id = router.Submit(std::move(request), now);
    REQUIRE(id.ok());
    Collect();
    return *id;
  }
  void Cancel(RequestId id) {
    router.Cancel(id, now);
    Collect();
  }
  // Advances the time without any report.
  void Advance(absl::Duration duration) {
    const absl::Time end = now + duration;
    while (now < end) {
      now = std::min(end, std::max(now, router.NextDeadline()));
      router.OnTime(now);
      Collect();
    }
  }
  // Advances the time while these workers send empty reports.
  void AdvanceWith(absl::Duration duration, const std::vector<Incarnation>& workers) {
    for (const absl::Time end = now + duration; now < end;) {
      for (const Incarnation worker : workers) REQUIRE(Report(worker, {}).ok());
      Advance(std::min(end - now, absl::Milliseconds(500)));
    }
  }

  void Collect() {
    for (RouterEffect& effect : router.TakeEffects()) {
      if (auto* send = std::get_if<SendToWorker>(&effect)) {
        NoteHandoffs(*send);
        sent.emplace_back(send->worker, std::move(send->message));
      } else if (auto* token = std::get_if<EmitToken>(&effect)) {
        REQUIRE(ends.count(token->request_id) == 0);
        REQUIRE(token->index == static_cast<int32_t>(tokens[token->request_id].size()));
        tokens[token->request_id].push_back(token->token);
        logprobs[token->request_id].push_back(token->logprobs);
        std::vector<PromptLogprob>& scores = prompt_logprobs[token->request_id];
        scores.insert(scores.end(), token->prompt_logprobs.begin(), token->prompt_logprobs.end());
      } else if (const auto* end = std::get_if<EmitEnd>(&effect)) {
        REQUIRE(ends.emplace(end->request_id, *end).second);
      } else if (const auto* close = std::get_if<CloseWorker>(&effect)) {
        closed.push_back(*close);
      } else {
        const EmitReleased& freed = std::get<EmitReleased>(effect);
        REQUIRE(ends.count(freed.request_id) == 1);
        REQUIRE(released.emplace(freed.request_id, freed).second);
      }
    }
  }
  void NoteHandoffs(const SendToWorker& send) {
    const auto* prefill = std::get_if<PrefillRequest>(&send.message);
    if (prefill == nullptr) return;
    for (const SliceSpec& slice : prefill->slices)
      for (const KvOutput& output : slice.outputs)
        handoffs[{prefill->request_id, prefill->epoch, send.worker, output.peer.incarnation}] =
            output.ticket.id;
  }
  // The end of a prefill part whose handoff between these workers, the last one, broke.
  PartEnded Broken(RequestId id, Incarnation from, Incarnation to, Epoch epoch = 1) const {
    return {.request_id = id,
            .epoch = epoch,
            .was_prefill = true,
            .reason = EndReason::kFailed,
            .fault = PartFault::kHandoff,
            .ticket_id = handoffs.at({id, epoch, from, to}),
            .message = "it broke"};
  }
  // Returns messages of one kind since the last call of TakeSent, with their receivers.
  template <typename Message>
  std::vector<std::pair<Incarnation, Message>> Sent() const {
    std::vector<std::pair<Incarnation, Message>> out;
    for (const auto& [worker, message] : sent)
      if (const auto* wanted = std::get_if<Message>(&message)) out.emplace_back(worker, *wanted);
    return out;
  }
  // The last PrefillRequest and its receiver: the plan of the running attempt as its workers see
  // it.
  PrefillRequest LastPrefill() const { return Sent<PrefillRequest>().back().second; }
  DecodeRequest LastDecode() const { return Sent<DecodeRequest>().back().second; }
  Incarnation LastPrefillWorker() const { return Sent<PrefillRequest>().back().first; }
  Incarnation LastDecodeWorker() const { return Sent<DecodeRequest>().back().first; }

  const EmitEnd& End(RequestId id) const {
    REQUIRE(ends.count(id) == 1);
    return ends.at(id);
  }
  bool Ended(RequestId id) const { return ends.count(id) == 1; }

  absl::Time now = absl::UnixEpoch() + absl::Hours(1);
  Router router;
  std::vector<std::pair<Incarnation, RouterMessage>> sent;
  std::map<std::tuple<RequestId, Epoch, Incarnation, Incarnation>, TicketId> handoffs;
  std::map<RequestId, std::vector<int32_t>> tokens;
  std::map<RequestId, std::vector<std::vector<TokenLogprob>>> logprobs;  // of each token
  std::map<RequestId, std::vector<PromptLogprob>> prompt_logprobs;       // of all its tokens
  std::map<RequestId, EmitEnd> ends;
  std::map<RequestId, EmitReleased> released;
  std::vector<CloseWorker> closed;
  std::map<Incarnation, EngineTurn> engines;  // told with each report
};

// --- hand-written clusters --------------------------------------------------------------------

constexpr Incarnation kP1 = 11, kP2 = 12, kD1 = 21, kD2 = 22;

inline TokenOut Token(RequestId id, int32_t position, int32_t token, Epoch epoch = 1) {
  return {.request_id = id, .epoch = epoch, .position = position, .token = token};
}
inline PartEnded Ended(RequestId id, bool was_prefill, EndReason reason = EndReason::kLength,
                       Epoch epoch = 1) {
  return {.request_id = id,
          .epoch = epoch,
          .was_prefill = was_prefill,
          .reason = reason,
          .message = reason == EndReason::kFailed ? "it broke" : "",
          .queue_us = 1000,
          .compute_us = 2000,
          .transfer_us = 500,
          .exposed_us = 300,
          .first_step_us = 700};
}

struct PairHarness : RouterHarness {  // one prefill and one decode worker
  explicit PairHarness(RouterOptions options = {}) : RouterHarness(options) {
    Join(kP1, Role::kPrefill);
    Join(kD1, Role::kDecode);
  }
};

// Checks that nothing runs, waits or is reserved, and that no deadline is left without workers.
inline void CheckIdle(RouterHarness& r) {
  const ClusterView view = r.router.View();
  CHECK(view.running == 0);
  CHECK(view.waiting == 0);
  CHECK(view.kv_pages_promised == 0);
  for (const Incarnation id : {Incarnation{1}, Incarnation{2}, kP1, kP2, Incarnation{13}, kD1, kD2})
    r.Lose(id);
  CHECK(r.router.View().ending == 0);
  CHECK(r.router.NextDeadline() == absl::InfiniteFuture());
}

}  // namespace baton
