// A router with relays, whose workers the test plays by hand.
#pragma once

#include <map>
#include <vector>

#include "lab/relay_lab.h"
#include "tests/support/prefill_parts.h"
#include "tests/support/router_harness.h"

namespace baton {

using Incarnations = std::vector<Incarnation>;

// Incarnations are ordered as the processes number themselves: decode workers below prefill
// workers.
inline constexpr Incarnation kDecode1 = 1, kDecode2 = 2, kTail = 11, kHead = 12, kThird = 13;

inline RouterOptions Relays(RouterOptions options = {}) {
  options.relay.min_tokens = 40;
  options.local = false;  // ranks are prefill workers, although the decode worker is idle
  return options;
}

struct RelayHarness : RouterHarness {  // two prefill workers and a decode worker
  explicit RelayHarness(RouterOptions options = Relays()) : RouterHarness(options) {
    Join(kDecode1, Role::kDecode);
    Join(kTail, Role::kPrefill);
    Join(kHead, Role::kPrefill);
    REQUIRE(Report(kTail, {MeasuredLoad(1000)}).ok());  // the other workers are assumed to be equal
  }
  bool LastIsRelay() const { return !LastPrefill().wants_first_token; }
  std::vector<Incarnation> Cancelled() const {
    std::vector<Incarnation> workers;
    for (const auto& [worker, cancel] : Sent<CancelRequest>()) workers.push_back(worker);
    return workers;
  }
};

inline PartEnded Failed(RequestId id, bool was_prefill, PartFault fault, Epoch epoch = 1) {
  PartEnded ended = Ended(id, was_prefill, EndReason::kFailed, epoch);
  ended.fault = fault;
  return ended;
}

// Ends the second attempt at a request of n_prompt and three tokens: the tail brings the first one,
// kDecode1 the others.
inline void FinishSecondAttempt(RouterHarness* r, RequestId id, int32_t n_prompt,
                                Incarnation tail) {
  const auto ended = [id](bool was_prefill) {
    return Ended(id, was_prefill, EndReason::kLength, 2);
  };
  REQUIRE(r->Report(tail, {Token(id, n_prompt, 7, 2), ended(true)}).ok());
  REQUIRE(r->Report(kDecode1,
                    {Token(id, n_prompt + 1, 8, 2), Token(id, n_prompt + 2, 9, 2), ended(false)})
              .ok());
  CHECK(r->tokens[id] == std::vector<int32_t>{7, 8, 9});
}

// Three ranks of 32 tokens each, and a request dispatched to them.
struct LongRelayHarness : RelayHarness {
  LongRelayHarness() : RelayHarness(Three()) {
    Join(kThird, Role::kPrefill);
    id = Submit(96, 3);
    REQUIRE(sent.size() == 4);
    sent.clear();
  }
  static RouterOptions Three() {
    RouterOptions options = Relays();
    options.relay.max_ranks = 3;
    return options;
  }
  // Returns the receivers of prefill parts.
  Incarnations Ranks() const {
    Incarnations ranks;
    for (const auto& [worker, request] : Sent<PrefillRequest>()) ranks.push_back(worker);
    return ranks;
  }
  RequestId id = 0;
};

// Prompts on three workers that take slices of two pages: 176 tokens are two rounds of slices, by
// kThird, kHead and kTail.
struct Ring : RouterHarness {
  explicit Ring(RelayPush push) : RouterHarness(Options(push)) {
    for (const Incarnation worker : {kDecode1, kTail, kHead, kThird})
      JoinWith(worker, worker == kDecode1 ? Role::kDecode : Role::kPrefill, 32);
    id = Submit(176, 3);
    requests = Requests();
    sent.clear();
  }
  static RouterOptions Options(RelayPush push) {
    RouterOptions options = Relays();
    options.relay.max_ranks = options.relay.min_ranks = 3;
    options.relay.sharing = SharingOf({.push = push});
    return options;
  }
  void JoinWith(Incarnation worker, Role role, int max_slice_tokens) {
    WorkerAnnounce announce = Announce(worker, role);
    announce.max_slice_tokens = max_slice_tokens;
    REQUIRE(Report(worker, {announce}).ok());
  }
  std::map<Incarnation, PrefillRequest> Requests() const {
    std::map<Incarnation, PrefillRequest> to;
    for (const auto& [worker, request] : Sent<PrefillRequest>()) to[worker] = request;
    return to;
  }
  RequestId id = 0;
  std::map<Incarnation, PrefillRequest> requests;  // requests of the first attempt
};

}  // namespace baton
