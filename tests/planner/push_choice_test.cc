// The choice of the ranks that push a relay's KV, compared with figures of an independently written
// event simulation, and in clear cases.

#include "planner/push_choice.h"

#include <catch2/catch.hpp>
#include <limits>
#include <vector>

#include "planner/partition.h"
#include "tests/planner/simulated_cost.h"

namespace baton {
namespace {

struct PushFixture {
  PushFixture(double tokens, size_t ranks, double chain_rate, double sink_rate)
      : speeds(ranks, 1.0),
        sinks(ranks, ChainLink{sink_rate, 10e-6}),
        link{chain_rate, 10e-6},
        slices(ClosedForm(SimulatedCost(), link, tokens, 0, speeds)) {}
  PushedChain view() const { return {slices, 0, speeds, link, sinks}; }
  PushChoice Choose() const { return ChoosePush(SimulatedCost(), view()); }
  double Delay(RelayPush push) const { return PushBy(push, SimulatedCost(), view()).delay; }

  std::vector<double> speeds;
  std::vector<ChainLink> sinks;
  ChainLink link;
  std::vector<double> slices;
};

}  // namespace

TEST_CASE("who pushes is who was sooner in the event simulation") {
  struct Row {
    double rate;
    size_t ranks;
    double tokens;
    RelayPush sooner;
  };
  constexpr Row kRows[] = {
      {50e9, 4, 8192, RelayPush::kAll},   {50e9, 8, 32768, RelayPush::kAll},
      {50e9, 8, 131072, RelayPush::kAll}, {25e9, 4, 8192, RelayPush::kAll},
      {25e9, 8, 32768, RelayPush::kAll},  {25e9, 8, 131072, RelayPush::kAll},
      {10e9, 4, 8192, RelayPush::kTail},  {10e9, 8, 32768, RelayPush::kTail},
      {10e9, 8, 131072, RelayPush::kAll},
  };
  for (const Row& row : kRows) {
    CAPTURE(row.rate, row.ranks, row.tokens);
    CHECK(PushFixture(row.tokens, row.ranks, row.rate, row.rate).Choose().push == row.sooner);
  }
}

TEST_CASE("free links delay nothing, and all push") {
  constexpr double kFree = std::numeric_limits<double>::infinity();
  const PushFixture chain(8192, 4, kFree, kFree);
  CHECK(chain.Choose().push == RelayPush::kAll);
  CHECK(chain.Choose().delay == 0);
}

TEST_CASE("pushes of heads delay a chain whose links are busy; the tail's never do") {
  const PushFixture slow(8192, 4, 5e9, 5e9);
  CHECK(slow.Delay(RelayPush::kAll) > 0);
  CHECK(slow.Delay(RelayPush::kTail) == 0);
  CHECK(slow.Choose().push == RelayPush::kTail);
  CHECK(slow.Choose().delay == 0);
  // The heads' links to the decode worker are fast; only the chain's link is slow.
  const PushFixture slow_chain(8192, 4, 5e9, 1e12);
  CHECK(slow_chain.Choose().push == RelayPush::kAll);
}

TEST_CASE("a tail that is badly connected to the decode worker gets help") {
  PushFixture chain(32768, 4, 50e9, 50e9);
  chain.sinks.back().bytes_per_second = 5e9;
  CHECK(chain.Choose().push == RelayPush::kAll);
  // Heads with slow links do not push: their pushes would end last.
  PushFixture heads(32768, 4, 50e9, 50e9);
  for (size_t i = 0; i + 1 < 4; ++i) heads.sinks[i].bytes_per_second = 2e9;
  CHECK(heads.Choose().push == RelayPush::kTail);
}

}  // namespace baton
