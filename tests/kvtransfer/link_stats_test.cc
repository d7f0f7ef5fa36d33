// Measurements of links alone: bytes by kind of traffic, and which peers are remembered. LinkMeter
// has its cases in traffic_test.cc.
#include "kvtransfer/protocol/link_stats.h"

#include <catch2/catch.hpp>

namespace baton {
namespace {

TEST_CASE("links: bytes count once, under way by kind of traffic and arrived by peer") {
  LinkStats stats;
  LinkStats::Flow chain = stats.Begin(7, "a", Traffic::kChain);
  LinkStats::Flow decode = stats.Begin(7, "a", Traffic::kDecode);
  LinkStats::Flow other = stats.Begin(8, "b", Traffic::kDecode);
  stats.Measure(&chain, 0, 300, 10);
  stats.Measure(&decode, 0, 50, 10);
  stats.Measure(&other, 0, 20, 10);
  CHECK(stats.under_way(Traffic::kChain) == 300);
  CHECK(stats.under_way(Traffic::kDecode) == 70);
  const uint64_t version = stats.version();
  stats.Measure(&chain, 0, 300, 20);
  CHECK(stats.version() == version);  // nothing arrived
  stats.Measure(&chain, 200, 100, 1'000'010);
  stats.Measure(&decode, 50, 0, 1'000'010);
  stats.Measure(&decode, 50, 0, 1'000'020);  // the same again
  CHECK(stats.version() == version + 2);
  CHECK(stats.under_way(Traffic::kChain) == 100);
  CHECK(stats.under_way(Traffic::kDecode) == 20);
  const std::vector<LinkReport> links = stats.links();
  REQUIRE(links.size() == 2);
  CHECK(links[0].rate.peer == 7);
  CHECK(links[0].address == "a");
  CHECK(links[0].bytes == std::array<uint64_t, kTraffics>{200, 50});
  CHECK(links[1].bytes == std::array<uint64_t, kTraffics>{0, 0});
}

TEST_CASE("links: a rate and a round trip are those of the peer") {
  LinkStats stats;
  LinkStats::Flow flow = stats.Begin(7, "a", Traffic::kDecode);
  stats.Measure(&flow, 0, 2 << 20, 0);
  stats.Measure(&flow, 1 << 20, 1 << 20, 1'000'000);  // first of its spell, with the latency
  stats.Measure(&flow, 2 << 20, 0, 2'000'000);
  CHECK(stats.links()[0].rate.bytes_per_second == Approx(1 << 20));
  stats.On(RoundTrip{7, 800}, 0);
  stats.On(RoundTrip{9, 100}, 0);  // not a peer that is handed over to
  REQUIRE(stats.links().size() == 1);
  CHECK(stats.links()[0].rate.round_trip_us == 800);
}

TEST_CASE("links: beyond the bound a peer without a handoff is forgotten, never another") {
  LinkStats stats;
  std::vector<LinkStats::Flow> flows;
  for (Incarnation peer = 1; peer <= LinkStats::kMaxPeers; ++peer)
    flows.push_back(stats.Begin(peer, "a", Traffic::kDecode));
  stats.Begin(5'000, "a", Traffic::kDecode);
  CHECK(stats.links().size() == LinkStats::kMaxPeers + 1);  // all have handoffs
  stats.End(flows[3]);
  stats.End(flows[9]);
  stats.Begin(5'001, "a", Traffic::kDecode);
  const std::vector<LinkReport> links = stats.links();
  CHECK(links.size() == LinkStats::kMaxPeers + 1);
  CHECK(links[3].rate.peer == 5);  // 4 is forgotten
  CHECK(links[8].rate.peer == 10);
}

}  // namespace
}  // namespace baton
