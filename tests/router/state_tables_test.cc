// The router's state tables: every state except the last has a deadline and ends by time alone, and
// the cases below take every transition of the tables.
#include <catch2/catch.hpp>

#include "router/membership.h"
#include "router/request.h"
#include "tests/support/router_harness.h"

namespace baton {
namespace {

void CheckTable(const MachineTable& table) {
  INFO(table.machine);
  CHECK_FALSE(table.owner.empty());
  std::vector<bool> leaves(table.states.size()), reached(table.states.size());
  for (const TransitionRow& row : table.transitions) {
    leaves[row.from] = true;
    reached[row.to] = true;
  }
  for (size_t i = 0; i < table.states.size(); ++i) {
    const StateRow& state = table.states[i];
    INFO(state.name);
    const bool is_last = state.deadline.empty();
    CHECK(leaves[i] == !is_last);
    CHECK(state.on_deadline.empty() == is_last);
    CHECK((i == 0 || reached[i]));
  }
}

void CheckAllTaken(const MachineTable& table, const TransitionCounts& counts) {
  for (const TransitionRow& row : table.transitions) {
    INFO(table.machine << ": " << table.states[row.from].name << " to "
                       << table.states[row.to].name);
    CHECK(counts.count(table, row) > 0);
  }
}

RouterOptions Short(TransitionCounts* counts) {
  RouterOptions options;
  options.max_attempts = 2;
  options.attempt_silence = absl::Seconds(20);
  options.worker_wait = absl::Seconds(10);
  options.end_wait = absl::Seconds(5);
  options.local = false;  // prompts are those of kP1
  options.transitions = counts;
  return options;
}

}  // namespace

TEST_CASE("the router's tables are whole") {
  CheckTable(RequestTable());
  CheckTable(MembershipTable());
}

TEST_CASE("time alone ends every state of a request") {
  TransitionCounts counts;
  const std::vector<Incarnation> both = {kP1, kD1};
  {  // prefilling: no report comes, twice; then the parts never end
    PairHarness r(Short(&counts));
    const RequestId id = r.Submit(20, 4);
    r.AdvanceWith(absl::Seconds(60), both);
    CHECK(r.End(id).status.code() == absl::StatusCode::kUnavailable);
    CHECK(r.router.View().ending == 0);
  }
  {  // streaming
    PairHarness r(Short(&counts));
    const RequestId id = r.Submit(20, 4);
    REQUIRE(r.Report(kP1, {Token(id, 20, 7), Ended(id, true)}).ok());
    r.AdvanceWith(absl::Seconds(80), both);
    CHECK(r.End(id).status.code() == absl::StatusCode::kUnavailable);
  }
  {  // waiting
    PairHarness r(Short(&counts));
    const RequestId id = r.Submit(20, 4);
    r.Advance(absl::Seconds(15));  // the workers are silent, and no new worker comes
    CHECK(r.End(id).status.code() == absl::StatusCode::kUnavailable);
    CHECK(r.router.View().waiting == 0);
  }
  {  // ending, from each state that has parts
    PairHarness r(Short(&counts));
    const RequestId a = r.Submit(20, 4), b = r.Submit(20, 4);
    REQUIRE(r.Report(kP1, {Token(b, 20, 7)}).ok());
    r.Cancel(a);
    r.Cancel(b);
    CHECK(r.router.View().ending == 2);
    r.AdvanceWith(absl::Seconds(6), both);
    CHECK(r.router.View().ending == 0);
    CHECK(r.released.at(a).overdue);
    CHECK(r.released.at(b).overdue);
  }
  CheckAllTaken(RequestTable(), counts);
}

TEST_CASE("time alone ends every state of a worker's membership") {
  TransitionCounts counts;
  RouterHarness r(Short(&counts));
  r.Join(kP1, Role::kPrefill);
  r.Join(kD1, Role::kDecode);
  REQUIRE(r.Report(kD1, {WorkerLoad{.draining = true}}).ok());
  r.Advance(absl::Seconds(4));
  CHECK(r.closed.size() == 2);
  r.Join(kP1, Role::kPrefill);
  r.Lose(kP1);
  CHECK(r.router.View().prefill_workers == 0);
  CHECK(r.router.NextDeadline() == absl::InfiniteFuture());
  CheckAllTaken(MembershipTable(), counts);
}

}  // namespace baton
