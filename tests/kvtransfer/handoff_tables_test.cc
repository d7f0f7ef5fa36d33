// The state tables of this room's machines: time alone ends every state except the last.
#include <algorithm>
#include <memory>
#include <set>

#include "kvtransfer/protocol/transfer_core.h"
#include "tests/kvtransfer/handoff_rigs.h"

#include <catch2/catch.hpp>

namespace baton {
namespace {

std::unique_ptr<SourceRig> SourceIn(HandoffSource::State state) {
  using State = HandoffSource::State;
  auto rig = std::make_unique<SourceRig>(2, state == State::kSending || state == State::kEnding);
  if (state == State::kConnecting) rig->source.ConnectionLost(absl::UnavailableError("cut"), 0);
  if (state == State::kWaiting) rig->source.Handle(wire::NoRoom{rig->source.handoff(), 9}, 0);
  if (state == State::kEnding) {
    rig->Announce();
    rig->source.End(absl::CancelledError("owner"), 0);
  }
  return rig;
}

std::unique_ptr<SinkRig> SinkIn(HandoffSink::State state, SinkRig::Kind kind) {
  using State = HandoffSink::State;
  auto rig = std::make_unique<SinkRig>(2, state != State::kWaiting, kind);
  if (state == State::kSuspended) rig->sink.ConnectionLost(0);
  if (state == State::kAborting) {
    rig->sink.Claim(rig->Page(0));
    rig->Abort(absl::CancelledError("owner"), 0);
  }
  return rig;
}

void RequireSound(const MachineTable& table) {
  std::set<int> reached = {0};
  for (size_t pass = 0; pass < table.states.size(); ++pass)
    for (const TransitionRow& row : table.transitions)
      if (reached.contains(row.from)) reached.insert(row.to);
  REQUIRE(reached.size() == table.states.size());
  REQUIRE_FALSE(table.owner.empty());
  for (size_t i = 0; i < table.states.size(); ++i) {
    INFO(table.machine << ": " << table.states[i].name);
    const auto leaves = [&](const TransitionRow& row) { return row.from == int(i); };
    const bool is_final = std::none_of(table.transitions.begin(), table.transitions.end(), leaves);
    REQUIRE(table.states[i].deadline.empty() == is_final);
    REQUIRE(table.states[i].on_deadline.empty() == is_final);
  }
}

TEST_CASE("every state but the last has a deadline and is left when nothing but time passes") {
  using Kind = SinkRig::Kind;
  const Kind kind = GENERATE(Kind::kOrdinary, Kind::kInflow, Kind::kPart);
  RequireSound(HandoffSourceTable());
  RequireSound(HandoffSinkTable());
  RequireSound(PagePromiseTable());
  RequireSound(ConnectionTable());
  for (size_t i = 0; i < HandoffSourceTable().states.size(); ++i) {
    if (HandoffSourceTable().states[i].deadline.empty()) continue;
    INFO("source " << HandoffSourceTable().states[i].name);
    const auto state = static_cast<HandoffSource::State>(i);
    const auto rig = SourceIn(state);
    REQUIRE(rig->source.state() == state);
    int64_t now_us = 0;
    while (rig->source.state() == state && !rig->Effects().close_connection &&
           now_us < 2 * kIdleTimeoutUs)
      rig->source.Tick(now_us += 10'000);
    CHECK(now_us <= kIdleTimeoutUs);
    if (rig->Effects().close_connection) rig->source.Released(0, now_us);
    REQUIRE(rig->source.ended());
    CHECK_FALSE(FindEvent<HandoffEnded>(rig->setup)->status.ok());
  }
  for (size_t i = 0; i < HandoffSinkTable().states.size(); ++i) {
    if (HandoffSinkTable().states[i].deadline.empty()) continue;
    INFO("sink " << HandoffSinkTable().states[i].name);
    const auto state = static_cast<HandoffSink::State>(i);
    const auto rig = SinkIn(state, kind);
    REQUIRE(rig->sink.state() == state);
    int64_t now_us = 0;
    while (rig->sink.state() == state && !rig->Effects().close_connection &&
           now_us < 2 * kIdleTimeoutUs)
      rig->Tick(now_us += 10'000);
    CHECK(now_us <= kIdleTimeoutUs);
    if (rig->Effects().close_connection) rig->Land(rig->Page(0), false);
    REQUIRE(rig->sink.ended());
    CHECK(rig->promise.state() == PagePromise::State::kFailed);
    if (kind != Kind::kInflow) CHECK_FALSE(FindEvent<HandoffAborted>(rig->setup)->status.ok());
    if (kind == Kind::kInflow) {  // an engine that did not ask gets no event
      CHECK(rig->setup.events.size() == (state == HandoffSink::State::kWaiting ? 0 : 1));
      for (const TransferEvent& event : rig->setup.events)
        CHECK_FALSE(std::get<InflowFailed>(event).status.ok());
    }
    CHECK(rig->receive_pool.free_pages() == 8);
  }
}

}  // namespace
}  // namespace baton
