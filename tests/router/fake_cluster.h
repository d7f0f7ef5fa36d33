// A cluster of scripted workers around a Router, on one thread: messages and reports travel in
// order per worker and in any order between workers; a random schedule picks the next event and the
// faults. The "model" is a hash of all tokens before, so every continuation can be checked against
// the one true sequence.
#pragma once

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <random>

#include "tests/support/prefill_parts.h"
#include "tests/support/router_harness.h"

namespace baton {

inline int32_t NextToken(const std::vector<int32_t>& history, uint64_t seed) {
  uint64_t hash = seed * 0x9E3779B97F4A7C15;
  for (const int32_t token : history) hash = (hash ^ static_cast<uint64_t>(token)) * 0x100000001B3;
  return static_cast<int32_t>((hash >> 17) % 50);
}

inline std::vector<int32_t> TrueTokens(const GenerateRequest& request) {
  std::vector<int32_t> history = request.prompt, tokens;
  while (static_cast<int32_t>(tokens.size()) < request.max_tokens) {
    tokens.push_back(NextToken(history, request.sampling.seed));
    history.push_back(tokens.back());
    if (std::count(request.stop_tokens.begin(), request.stop_tokens.end(), tokens.back()) > 0)
      break;
  }
  return tokens;
}

struct FaultRates {  // chances in 1,000 per turn
  int lose_worker = 0, join_worker = 0, fail_part = 0, no_room = 0, cancel = 0, wait = 0,
      preempt = 0;
  bool spare_last_worker = false;
};

class FakeCluster {
 public:
  FakeCluster(uint64_t seed, FaultRates faults, RouterOptions options)
      : router(options), faults_(faults), random_(seed) {}

  void Join(Role role) {
    // Incarnations order workers by role as the processes do: decode, both, prefill.
    const Incarnation order = role == Role::kDecode ? 0 : role == Role::kBoth ? 1 : 2;
    const Incarnation id = order << 62 | next_worker_++;
    workers_[id];
    router.Join(id, role);
    PostSent();
  }
  RequestId Submit(GenerateRequest request) {
    const RequestId id = router.Submit(request);
    requests_[id] = std::move(request);
    PostSent();
    return id;
  }
  // Runs until every request has ended and every wire is empty.
  void Run() {
    for (int turn = 0;; ++turn) {
      REQUIRE(turn < 1000000);
      if (!AllEnded()) Strike();
      if (!Turn()) {
        if (AllEnded()) break;
        // Only the clock can still make requests move that wait for workers.
        REQUIRE(router.router.NextDeadline() != absl::InfiniteFuture());
        for (const auto& [id, worker] : workers_) REQUIRE(router.Report(id, {}).ok());
        router.Advance(router.router.NextDeadline() - router.now);
        PostSent();
      }
    }
    Check();
  }
  size_t n_ended(EndReason reason) const {
    size_t n = 0;
    for (const auto& [id, end] : router.ends) n += end.reason == reason;
    return n;
  }
  int attempts() const {
    int n = 0;
    for (const auto& [id, end] : router.ends) n += end.timeline.attempts;
    return n;
  }

  uint64_t relays() const { return router.router.View().relays; }
  int preemptions() const {
    int n = 0;
    for (const auto& [id, count] : preempted_) n += count;
    return n;
  }

  RouterHarness router;

 private:
  using Part = std::pair<RequestId, Epoch>;
  struct Prefill {
    PrefillRequest request;
    bool computed = false;
    bool reported_no_room = false;
  };
  struct Arrived {  // KV that has come from a relay's head
    TicketId ticket_id;
    std::vector<int32_t> history;
  };
  struct Decode {
    std::optional<DecodeRequest> request;
    std::vector<int32_t> history;  // prompt and tokens; empty until the KV has arrived
    int32_t produced = 1;
  };
  struct Worker {
    std::deque<RouterMessage> inbox;
    std::deque<WorkerEvent> outbox;
    std::map<Part, Prefill> prefills;
    std::map<Part, Arrived> inflows;
    std::map<Part, Decode> decodes;
    std::map<RequestId, Epoch> cancelled;
  };

  uint64_t Pick(uint64_t n) { return random_() % n; }
  bool Chance(int per_mille) { return static_cast<int>(Pick(1000)) < per_mille; }
  bool AllEnded() const { return router.ends.size() == requests_.size(); }

  void PostSent() {
    for (auto& [worker, message] : router.sent)
      if (const auto it = workers_.find(worker); it != workers_.end())
        it->second.inbox.push_back(std::move(message));
    router.sent.clear();
  }

  void Strike() {
    if (Chance(faults_.lose_worker) && workers_.size() > (faults_.spare_last_worker ? 1 : 0)) {
      const auto it =
          std::next(workers_.begin(), static_cast<std::ptrdiff_t>(Pick(workers_.size())));
      const Incarnation id = it->first;
      workers_.erase(it);
      router.Lose(id);
      PostSent();
    }
    if (Chance(faults_.join_worker)) Join(static_cast<Role>(1 + Pick(3)));
    if (Chance(faults_.cancel)) {
      router.Cancel(
          std::next(requests_.begin(), static_cast<std::ptrdiff_t>(Pick(requests_.size())))->first);
      PostSent();
    }
    if (Chance(faults_.wait)) {
      for (const auto& [id, worker] : workers_) REQUIRE(router.Report(id, {}).ok());
      router.Advance(absl::Milliseconds(100));
      PostSent();
    }
  }

  // Lets one worker read, work or report. False: no worker has anything to do.
  bool Turn() {
    std::vector<std::pair<Incarnation, int>> choices;
    for (const auto& [id, worker] : workers_) {
      if (!worker.inbox.empty()) choices.emplace_back(id, 0);
      if (!worker.outbox.empty()) choices.emplace_back(id, 1);
      if (!worker.prefills.empty()) choices.emplace_back(id, 2);
      for (const auto& [part, decode] : worker.decodes)
        if (decode.request && !decode.history.empty()) {
          choices.emplace_back(id, 3);
          break;
        }
    }
    if (choices.empty()) return false;
    const auto [id, action] = choices[Pick(choices.size())];
    if (action == 0) Read(id);
    if (action == 1) Report(id);
    if (action == 2) StepPrefill(id);
    if (action == 3) StepDecode(id);
    return true;
  }

  void Read(Incarnation id) {
    Worker& worker = workers_.at(id);
    RouterMessage message = std::move(worker.inbox.front());
    worker.inbox.pop_front();
    if (auto* prefill = std::get_if<PrefillRequest>(&message)) {
      for (const SliceSpec& slice : prefill->slices)
        for (const KvOutput& output : slice.outputs)
          REQUIRE(VerifyTicket(TestKey(), output.ticket));
      const Part part(prefill->request_id, prefill->epoch);
      worker.prefills[part].request = std::move(*prefill);
    } else if (auto* decode = std::get_if<DecodeRequest>(&message)) {
      // A new epoch ends what an earlier attempt still has at the worker.
      if (decode->epoch > 1)
        Cancel(worker, {.request_id = decode->request_id, .epoch = decode->epoch - 1});
      worker.decodes[{decode->request_id, decode->epoch}].request = std::move(*decode);
    } else if (const auto* cancel = std::get_if<CancelRequest>(&message)) {
      Cancel(worker, *cancel);
    }
  }

  static void Cancel(Worker& worker, const CancelRequest& cancel) {
    worker.cancelled[cancel.request_id] = cancel.epoch;
    std::erase_if(worker.inflows, [&](const auto& entry) {
      return entry.first.first == cancel.request_id && entry.first.second <= cancel.epoch;
    });
    const auto sweep = [&](auto& parts, bool is_prefill) {
      for (auto it = parts.begin(); it != parts.end();) {
        if (it->first.first != cancel.request_id || it->first.second > cancel.epoch) {
          ++it;
          continue;
        }
        worker.outbox.push_back(PartEnded{.request_id = it->first.first,
                                          .epoch = it->first.second,
                                          .was_prefill = is_prefill,
                                          .reason = EndReason::kCancelled});
        it = parts.erase(it);
      }
    };
    sweep(worker.prefills, true);
    sweep(worker.decodes, false);
  }

  // Sends one to three events; a token and the end of its part go together.
  void Report(Incarnation id) {
    Worker& worker = workers_.at(id);
    std::vector<WorkerEvent> events;
    for (uint64_t n = 1 + Pick(3); n > 0 && !worker.outbox.empty(); --n) {
      do {
        events.push_back(std::move(worker.outbox.front()));
        worker.outbox.pop_front();
      } while (!worker.outbox.empty() && std::holds_alternative<PartEnded>(worker.outbox.front()));
    }
    REQUIRE(router.Report(id, std::move(events)).ok());
    PostSent();
  }

  void StepPrefill(Incarnation id) {
    Worker& worker = workers_.at(id);
    const auto it = std::next(worker.prefills.begin(),
                              static_cast<std::ptrdiff_t>(Pick(worker.prefills.size())));
    Prefill& prefill = it->second;
    const PrefillRequest& request = prefill.request;
    PartEnded ended{.request_id = request.request_id, .epoch = request.epoch, .was_prefill = true};
    if (Chance(faults_.fail_part)) {
      ended.reason = EndReason::kFailed;
      ended.fault = static_cast<PartFault>(1 + Pick(2));
      ended.message = "prefill failed";
      worker.cancelled[request.request_id] = request.epoch;  // the worker takes no inflow for it
    } else if (!prefill.computed && !prefill.reported_no_room && Chance(faults_.no_room)) {
      prefill.reported_no_room = true;
      worker.outbox.push_back(
          NoRoomNotice{.request_id = request.request_id,
                       .epoch = request.epoch,
                       .expected_wait_us = static_cast<int64_t>(Pick(1000000))});
      return;
    } else if (InflowTokens(request) > 0 && !worker.inflows.contains(it->first)) {
      return;  // the rank before this one is not done
    } else if (!request.wants_first_token) {
      if (InflowTokens(request) > 0) CheckInflow(request, worker.inflows.at(it->first));
      if (!HandToRank(request)) {
        ended.reason = EndReason::kFailed;
        ended.fault = PartFault::kHandoff;
        ended.message = "the next rank is gone";
      }
    } else if (!prefill.computed) {
      if (InflowTokens(request) > 0) CheckInflow(request, worker.inflows.at(it->first));
      prefill.computed = true;
      worker.outbox.push_back(TokenOut{.request_id = request.request_id,
                                       .epoch = request.epoch,
                                       .position = static_cast<int32_t>(request.tokens.size()),
                                       .token = NextToken(request.tokens, request.sampling.seed)});
      return;
    } else if (MainOf(request).peer.incarnation != 0 && !HandOver(request)) {
      ended.reason = EndReason::kFailed;
      ended.fault = PartFault::kHandoff;
      ended.message = "the decode worker is gone";
    }
    worker.inflows.erase(it->first);
    worker.prefills.erase(it);
    worker.outbox.push_back(ended);
  }

  static void CheckInflow(const PrefillRequest& request, const Arrived& arrived) {
    REQUIRE(arrived.ticket_id == LastSlice(request).inflow);
    REQUIRE(arrived.history.size() == static_cast<size_t>(InflowTokens(request)));
    REQUIRE(std::equal(arrived.history.begin(), arrived.history.end(), request.tokens.begin()));
  }

  // Returns the worker a handoff goes to; null: it is gone, or gives up the request.
  Worker* SinkOf(const PrefillRequest& request) {
    REQUIRE(TicketOf(request).sink == MainOf(request).peer.incarnation);
    const auto sink = workers_.find(MainOf(request).peer.incarnation);
    if (sink == workers_.end()) return nullptr;
    const auto cancelled = sink->second.cancelled.find(request.request_id);
    if (cancelled != sink->second.cancelled.end() && cancelled->second >= request.epoch)
      return nullptr;
    return &sink->second;
  }

  bool HandToRank(const PrefillRequest& request) {
    REQUIRE(TicketOf(request).promise_pages == 0);
    REQUIRE(request.tokens.size() == static_cast<size_t>(TicketOf(request).kv_pages * 16));
    Worker* const next = SinkOf(request);
    if (next == nullptr) return false;
    next->inflows[{request.request_id, request.epoch}] = {TicketOf(request).id, request.tokens};
    return true;
  }

  bool HandOver(const PrefillRequest& request) {
    Worker* const sink = SinkOf(request);
    if (sink == nullptr) return false;
    Decode& decode = sink->decodes[{request.request_id, request.epoch}];
    decode.history = request.tokens;
    decode.history.push_back(NextToken(request.tokens, request.sampling.seed));
    return true;
  }

  void StepDecode(Incarnation id) {
    Worker& worker = workers_.at(id);
    std::vector<Part> ready;
    for (const auto& [part, decode] : worker.decodes)
      if (decode.request && !decode.history.empty()) ready.push_back(part);
    const Part part = ready[Pick(ready.size())];
    Decode& decode = worker.decodes.at(part);
    const DecodeRequest& request = *decode.request;
    const auto stops = [&](int32_t token) {
      return std::count(request.stop_tokens.begin(), request.stop_tokens.end(), token) > 0;
    };
    PartEnded ended{.request_id = part.first, .epoch = part.second};
    if (Chance(faults_.fail_part)) {
      ended.reason = EndReason::kFailed;
      ended.message = "decode failed";
    } else if (preempted_[part.first] < 3 && Chance(faults_.preempt)) {
      ++preempted_[part.first];
      ended.reason = EndReason::kPreempted;
    } else if (!stops(decode.history.back())) {
      const auto position = static_cast<int32_t>(decode.history.size());
      decode.history.push_back(NextToken(decode.history, request.sampling.seed));
      ++decode.produced;
      worker.outbox.push_back(TokenOut{.request_id = part.first,
                                       .epoch = part.second,
                                       .position = position,
                                       .token = decode.history.back()});
      if (stops(decode.history.back())) {
        ended.reason = EndReason::kStopToken;
      } else if (decode.produced < request.max_tokens) {
        return;
      }
    } else {
      ended.reason = EndReason::kStopToken;  // the first token is a stop token
    }
    worker.decodes.erase(part);
    worker.outbox.push_back(ended);
  }

  void Check() {
    for (const auto& [id, request] : requests_) {
      const std::vector<int32_t> wanted = TrueTokens(request);
      const std::vector<int32_t>& got = router.tokens[id];
      const EmitEnd& end = router.End(id);
      REQUIRE(got.size() <= wanted.size());
      REQUIRE(std::equal(got.begin(), got.end(), wanted.begin()));
      const bool stopped =
          std::count(request.stop_tokens.begin(), request.stop_tokens.end(), wanted.back()) > 0;
      if (end.reason == EndReason::kLength || end.reason == EndReason::kStopToken) {
        REQUIRE(got.size() == wanted.size());
        REQUIRE((end.reason == EndReason::kStopToken) == stopped);
        REQUIRE(end.status.ok());
      } else {
        REQUIRE((end.reason == EndReason::kFailed) == !end.status.ok());
      }
    }
    const ClusterView view = router.router.View();
    REQUIRE(view.running == 0);
    REQUIRE(view.waiting == 0);
    REQUIRE(view.kv_pages_promised == 0);
    REQUIRE(view.ending == 0);
    for (const auto& [id, worker] : workers_) {  // no worker may still work on an ended request
      REQUIRE(worker.prefills.empty());
      REQUIRE(worker.inflows.empty());
      REQUIRE(worker.decodes.empty());
    }
  }

  const FaultRates faults_;
  std::mt19937_64 random_;
  Incarnation next_worker_ = 1;
  std::map<Incarnation, Worker> workers_;
  std::map<RequestId, GenerateRequest> requests_;
  std::map<RequestId, int> preempted_;
};

}  // namespace baton
