// The ledger: the parts that the router has sent and that have not ended, exact at any time, so
// that a burst between two reports of a worker does not run to one worker. Counts prompts that
// wait, KV that is under way, and pages and rows that are held. Part of the Router, on its thread.
// Calls but Reserve ignore unknown workers and requests.
#pragma once

#include "absl/container/btree_map.h"
#include "absl/container/flat_hash_map.h"
#include "router/arrival_record.h"
#include "router/mixed_steps.h"
#include "router/output_record.h"
#include "router/policy.h"

namespace baton {

class Ledger {
 public:
  // A request's parts on one worker; both when it prefills and decodes there.
  struct Part {
    bool decodes = false;
    AttemptSpec spec;  // what the decode part asks for
    int32_t page_tokens = 0;
    DecodeReservation held;
    RowSums row{};  // itself, if it decodes
    bool runs = false;
    std::vector<Incarnation> sources{};  // workers whose KV for it may be under way
    std::optional<TokensTo> sending{};   // what this worker sends
  };
  struct Prompt {  // still to be computed, or a slice of it
    PrefillWork work;
    int64_t left = 0;  // tokens of it, as far as the worker has told
    bool is_slice = false;
    absl::Time sent;
  };
  struct Account {  // one worker's
    absl::flat_hash_map<RequestId, Part> parts;
    absl::btree_map<RequestId, Prompt> prompts;
    std::vector<TokensTo> sending{};  // sums over parts, as the other ones
    int64_t pages_held = 0;
    RowSums held, running;  // running: of those held, whose decode worker has told a token
    ArrivalRecord arrivals{};
    uint64_t last_chosen = 0;  // number of the last Reserve that took the worker; 0: none
  };

  // Enters what an attempt takes, until released.
  void Reserve(RequestId request, const Plan& plan, const AttemptSpec& spec, int32_t page_tokens,
               absl::Time now);
  void OnPrefillComputed(Incarnation worker, RequestId request);  // shortens the worker's queue
  // The worker has told that so many tokens are queued of the prompts sent before `seen_until`.
  // Takes what the worker has done from them in the order in which workers compute: least tokens
  // left first.
  void OnQueued(Incarnation worker, int64_t tokens, absl::Time seen_until);
  // The decode worker's token has come: its KV is there.
  void OnTokensLeft(Incarnation worker, RequestId request, int32_t tokens_left);
  void OnEnded(int32_t tokens) { outputs_.Add(tokens); }  // a request, with so many tokens
  void Release(RequestId request, const Plan& plan);
  // Closes the worker's account; returns the requests that had a part there, in no order.
  std::vector<RequestId> Leave(Incarnation worker);

  // Empty: the worker has no part, and no request has chosen it since it joined.
  const Account& At(Incarnation worker) const;
  // Prompts not computed yet, at all workers: those there now, or on average when recent requests
  // were dispatched, whichever is more.
  double waiting_prompts() const;
  int64_t pages_held() const;  // at all workers
  const OutputRecord& outputs() const { return outputs_; }

 private:
  Part* Find(Incarnation worker, RequestId request);
  void Hold(Account* account, Part* part, int32_t made, int32_t tokens_left) const;
  void Arrived(Incarnation source, RequestId request);
  static void Count(Account* account, const Part& part, int sign);

  absl::flat_hash_map<Incarnation, Account> accounts_;
  uint64_t choices_ = 0;
  OutputRecord outputs_;
  int n_prompts_ = 0;         // not computed, at all workers
  double found_waiting_ = 0;  // prompts that recent requests found, a moving average
};

}  // namespace baton
