// The workers a router knows, and what it has asked of them. Loads are the workers' own reports;
// on top lies the router's exact ledger of parts it sent and that have not ended, so that a burst
// between two reports does not run to one worker. Part of the Router, on its thread. OnLoad,
// OnNoRoom, OnDraining, OwnPrefillMs and Reserve take workers that have joined; other calls ignore
// unknown workers.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"
#include "common/state_machine.h"
#include "common/status.h"
#include "router/policy.h"
#include "router/prefill_work.h"
#include "router/prefix_memory.h"
#include "router/router.h"

namespace baton {

enum class MemberState { kPresent, kDraining, kGone };
const MachineTable& MembershipTable();

class Cluster {
 public:
  Cluster(RelayRules relays, TransitionCounts* transitions)
      : relays_(std::move(relays)), transitions_(transitions) {}

  // FailedPrecondition: the worker is here already, or does not fit to the workers that are here or
  // to the partition table; the error names the field and both values.
  absl::Status Join(const WorkerAnnounce& worker, absl::Time now);
  // Forgets the worker; returns the requests that had a part there, in no order.
  std::vector<RequestId> Leave(Incarnation worker);
  // Something came from this worker.
  void OnHeard(Incarnation worker, absl::Time now);
  // Restarts every worker's silence: the router itself stood still, so silence proves nothing yet.
  void ForgiveSilence(absl::Time now);
  std::vector<Incarnation> NotHeardSince(absl::Time time) const;  // ascending
  void OnLoad(Incarnation worker, const WorkerLoad& load, absl::Time now);
  // Compares a plan's prediction with what happened; later plans are corrected by it.
  void OnFirstToken(RequestId request, const Plan& plan, const FirstTokenOutcome& outcome);
  // The worker says that a sequence must wait this long for room.
  void OnNoRoom(Incarnation worker, absl::Duration expected_wait, absl::Time now);
  // The worker takes nothing new from now on.
  void OnDraining(Incarnation worker) { workers_.at(worker).state = MemberState::kDraining; }

  bool empty() const { return workers_.empty(); }
  bool reuses_kv() const;  // at least one worker reuses KV of earlier prompts
  bool serves() const;     // at least one worker takes requests
  // Null: unknown worker. The announce is valid until the next Join or Leave.
  const WorkerAnnounce* Find(Incarnation worker) const;
  std::vector<Incarnation> Workers() const;  // ascending
  // Latest rate measured by `from`. All zero except `peer` if unknown.
  LinkRate LinkOf(Incarnation from, Incarnation to) const;

  // Returns the plan with the minimal predicted wait. Workers of `avoid` are taken only when no
  // other worker can, and never for a relay. Empty: no worker that takes requests could ever hold
  // the request.
  std::optional<Plan> Choose(const AttemptSpec& shape, const std::vector<Incarnation>& avoid,
                             absl::Time now) const;
  // Returns the relay with another worker in place of the rank or decode worker `lost`. The other
  // worker takes requests and is none of `avoid`.
  std::optional<Plan> Replace(const Plan& relay, Incarnation lost, const AttemptSpec& shape,
                              const std::vector<Incarnation>& avoid, absl::Time now) const;
  // Tokens per page, equal on all workers; 0 if there are none.
  int32_t page_tokens() const;
  // Returns what prefix caches are expected to hold of a prompt with these pages (PageHashes).
  std::vector<CachedPrefix> Cached(const std::vector<uint64_t>& pages) const;
  // Called when the plan's workers have computed the prompt.
  void OnPromptCached(const Plan& plan, const AttemptSpec& shape,
                      const std::vector<uint64_t>& pages);
  // Called when the worker reports how many tokens its prefix cache really held.
  void OnPrefixFound(const CachedPrefix& hoped, const std::vector<uint64_t>& pages,
                     int32_t found_tokens);

  // Predicted milliseconds of the prompt alone, the workers of the plan idle.
  double OwnPrefillMs(const Plan& plan, const AttemptSpec& shape) const;

  // The ledger: what an attempt takes, until released.
  void Reserve(RequestId request, const Plan& plan, const AttemptSpec& shape, absl::Time now);
  void OnPrefillComputed(Incarnation worker, RequestId request);  // shortens the worker's queue
  void OnTokensLeft(Incarnation worker, RequestId request, int32_t tokens_left);
  void Release(RequestId request, const Plan& plan);

  // Workers, context and pages of the view; the requests are the router's.
  void FillView(ClusterView* view) const;

 private:
  // A request's parts on one worker; both when it prefills and decodes there.
  struct Part {
    PrefillWork prefill;      // still to be computed
    bool is_slice = false;    // the part is a slice of a relay
    bool was_shared = false;  // the worker had other prompts meanwhile
    absl::Time sent;
    bool decodes = false;
    AttemptSpec shape;  // what the decode part asks for
    DecodeReservation holding;
  };
  struct Worker {
    Worker(const WorkerAnnounce& announce, absl::Time now, TransitionCounts* transitions)
        : about(announce),
          state(MembershipTable(), transitions),
          heard_at(now),
          prefixes(announce.reuses_kv ? static_cast<size_t>(announce.pages_total) : 0) {}
    WorkerAnnounce about;
    MachineState<MemberState> state;
    absl::Time heard_at;
    WorkerLoad load;
    double recorded_prompt_ms = 0;  // by the worker's fit, when the fit changed much last
    absl::Time load_at = absl::InfinitePast();
    absl::Time no_room_until = absl::InfinitePast();
    PrefixMemory prefixes;
    uint64_t last_chosen = 0;
    int64_t pages_held = 0;  // sums over parts
    int32_t rows_held = 0;
    absl::flat_hash_map<RequestId, Part> parts;
  };

  PrefillCost CostAt(const Worker& worker) const;
  double StepMsAt(const Worker& worker) const;
  static PrefillWork Queued(const Worker& worker);
  // Milliseconds of the worker's queue that run before a prompt of `tokens`, or before a slice of
  // it.
  static double AheadMs(const Worker& worker, const PrefillCost& cost, int32_t tokens,
                        bool is_slice);
  // Number of queued prompts and slices that a prompt of `tokens` overtakes.
  static int Passed(const Worker& worker, int32_t tokens);
  int WaitingPrompts() const;
  int PrefillWorkers() const;
  // A worker's costs come from enough work to plan prompts that several share.
  bool KnowsCosts() const;
  bool WantsRelay(const AttemptSpec& shape) const;
  Candidate Consider(const Worker& worker, const AttemptSpec& shape, absl::Time now) const;
  // Workers that take requests and are none of `avoid`.
  std::vector<Candidate> Candidates(const AttemptSpec& shape, const std::vector<Incarnation>& avoid,
                                    absl::Time now) const;
  void ReservePrefill(RequestId request, Incarnation worker, const Plan& plan,
                      const AttemptSpec& shape, absl::Time now);
  void ReleaseAt(Incarnation worker, RequestId request);

  absl::Status CheckTable(const WorkerAnnounce& worker) const;
  void RecordFit(Worker* worker);

  const RelayRules relays_;
  PlanRecord record_;
  TransitionCounts* const transitions_;
  absl::btree_map<Incarnation, Worker> workers_;
  uint64_t choices_ = 0;
  double found_waiting_ = 0;  // prompts that recent ones found, at all prefill workers
};

}  // namespace baton
