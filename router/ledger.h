// The ledger: the parts that the router has sent and that have not ended, exact at any time, so
// that a burst between two reports of a worker does not run to one worker. Counts prompts that
// wait, and pages and rows that are held. Part of the Router, on its thread. Calls but Reserve
// ignore unknown workers and requests.
#pragma once

#include "absl/container/flat_hash_map.h"
#include "router/policy.h"

namespace baton {

class Ledger {
 public:
  // A request's parts on one worker; both when it prefills and decodes there.
  struct Part {
    PrefillWork prefill;    // still to be computed
    bool is_slice = false;  // the part is a slice of a relay
    absl::Time sent;
    bool decodes = false;
    AttemptSpec spec;  // what the decode part asks for
    int32_t page_tokens = 0;
    DecodeReservation held;
  };
  struct Account {  // one worker's
    absl::flat_hash_map<RequestId, Part> parts;
    int64_t pages_held = 0;  // sums over parts
    int32_t rows_held = 0;
    uint64_t last_chosen = 0;  // number of the last Reserve that took the worker; 0: none
  };

  // Enters what an attempt takes, until released.
  void Reserve(RequestId request, const Plan& plan, const AttemptSpec& spec, int32_t page_tokens,
               absl::Time now);
  void OnPrefillComputed(Incarnation worker, RequestId request);  // shortens the worker's queue
  void OnTokensLeft(Incarnation worker, RequestId request, int32_t tokens_left);
  void Release(RequestId request, const Plan& plan);
  // Closes the worker's account; returns the requests that had a part there, in no order.
  std::vector<RequestId> Leave(Incarnation worker);

  // Empty: the worker has no part, and no request has chosen it since it joined.
  const Account& At(Incarnation worker) const;
  // Prompts not computed yet, at all workers: those there now, or on average when recent requests
  // were dispatched, whichever is more.
  double waiting_prompts() const;
  int64_t pages_held() const;  // at all workers

 private:
  Part* Find(Incarnation worker, RequestId request);
  int PromptsNow() const;

  absl::flat_hash_map<Incarnation, Account> accounts_;
  uint64_t choices_ = 0;
  double found_waiting_ = 0;  // prompts that recent requests found, a moving average
};

}  // namespace baton
