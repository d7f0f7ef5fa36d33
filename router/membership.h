// The workers that are here: what each announced, whether it takes requests, when it was heard
// last, whether its engine turns, and the load it reported. Part of the Router, on its thread.
// CheckLoad, OnLoad, OnNoRoom, OnDraining and At take workers that have joined; other calls ignore
// unknown workers.
#pragma once

#include "absl/container/btree_map.h"
#include "common/state_machine.h"
#include "planner/partition_table.h"
#include "router/pool_sizing.h"
#include "router/router_messages.h"

namespace baton {

enum class MemberState { kPresent, kDraining, kGone };
const MachineTable& MembershipTable();

class Membership {
 public:
  struct Member {
    WorkerAnnounce about;
    MachineState<MemberState> state;
    absl::Time heard_at;
    // The turn of its engine that was told last lasts for so long, as far as is known; the engine
    // stands still when that reaches the turn's patience. Infinite: no turn has been told.
    absl::Duration turned{}, patience = absl::InfiniteDuration();
    uint64_t turns = 0;
    WorkerLoad load{};  // before the first one: nothing is queued, and all pages are free
    absl::Time load_at{};
    absl::Time no_room_until = absl::InfinitePast();
    int32_t no_room_pages = 0;  // that were wanted then

    bool stands() const { return turned >= patience; }
    bool takes_work() const { return state == MemberState::kPresent && !stands(); }
  };

  // table: slices tuned for one model, which every worker must have; null: any model.
  // engine_patience: as in RouterOptions.
  Membership(const PartitionTable* table, absl::Duration engine_patience,
             TransitionCounts* transitions)
      : table_(table), engine_patience_(engine_patience), transitions_(transitions) {}

  // FailedPrecondition: the worker is here already, or does not fit to the workers that are here or
  // to the partition table; the error names the field and both values.
  absl::Status Join(const WorkerAnnounce& worker, absl::Time now);
  void Leave(Incarnation worker);
  // Something came from this worker: its engine turns or stands still.
  void OnHeard(Incarnation worker, const EngineTurn& turn, absl::Time now);
  // Restarts every worker's silence: the router itself stood still, so silence proves nothing yet.
  void ForgiveSilence(absl::Time now);
  std::vector<Incarnation> NotHeardSince(absl::Time time) const;  // ascending
  // InvalidArgument: the load is more than the worker announced.
  absl::Status CheckLoad(Incarnation worker, const WorkerLoad& load) const;
  void OnLoad(Incarnation worker, const WorkerLoad& load, absl::Time now);
  // The worker says that a sequence must wait this long for room for so many pages. Forgotten when
  // a load report shows them free.
  void OnNoRoom(Incarnation worker, int32_t pages, absl::Duration expected_wait, absl::Time now);
  // The worker's clock now. As what it told took some time to come, it is rather later there: by
  // the delay of one report.
  int64_t ClockOf(Incarnation worker, absl::Time now) const {
    const Member& member = members_.at(worker);
    return member.load.clock_us + absl::ToInt64Microseconds(now - member.load_at);
  }
  // The worker takes nothing new from now on.
  void OnDraining(Incarnation worker) { members_.at(worker).state = MemberState::kDraining; }

  const absl::btree_map<Incarnation, Member>& all() const { return members_; }
  const Member& At(Incarnation worker) const { return members_.at(worker); }
  // Null: unknown worker. The announce is valid until the next Join or Leave.
  const WorkerAnnounce* Find(Incarnation worker) const;
  bool serves() const;  // at least one worker takes requests, or will once its engine turns again
  // Tokens per page, equal on all workers; 0 if there are none.
  int32_t page_tokens() const;
  // Costs of the first worker of each role that has measured them, and its size.
  PoolSizing::Worker Typical() const;
  // Workers, context and pages of the view.
  void FillView(ClusterView* view) const;

 private:
  absl::Status CheckTable(const WorkerAnnounce& worker) const;

  const PartitionTable* const table_;
  const absl::Duration engine_patience_;
  TransitionCounts* const transitions_;
  absl::btree_map<Incarnation, Member> members_;
};

}  // namespace baton
