// Priorities: cells of a handoff in the order that a rank needs, and chunks of a relay's chain
// before those for decode workers. Measurements of links: exact bytes, rates, latency.
#include <algorithm>
#include <deque>
#include <map>

#include "kvtransfer/protocol/link_meter.h"
#include "tests/kvtransfer/core_pair.h"
#include "tests/kvtransfer/handoff_rigs.h"

#include <catch2/catch.hpp>

namespace baton {
namespace {

TEST_CASE("source: pending cells go in order of plane and page, however they were given") {
  TestPool pool(8, {100, 100, 100});
  TransferSetup setup = MakeSetup(1, pool.view(), nullptr);
  const auto order_of = [&](const Ticket& ticket, const std::vector<CellRect>& given) {
    HandoffSource source(ticket, &setup, 0);
    REQUIRE(source.StartConnect(0));
    source.Connected(0);
    for (const CellRect& rect : given) {
      SendCells cells{.ticket_id = ticket.id,
                      .plane = rect.plane,
                      .n_planes = rect.n_planes,
                      .first_page = rect.first_page,
                      .pages = {}};
      for (int32_t i = 0; i < rect.n_pages; ++i) cells.pages.push_back(rect.first_page + i);
      source.Add(std::move(cells));
    }
    source.Handle(wire::Promise{source.handoff(), 100, 250}, 0);
    std::vector<std::pair<int32_t, int32_t>> order;
    while (const HandoffSource::Chunk* chunk = source.NextChunk()) {
      order.emplace_back(chunk->cut.rect.plane, chunk->cut.rect.first_page);
      CHECK(chunk->cut.page_ids[0] == chunk->cut.rect.first_page);
      const uint32_t seq = chunk->seq;
      source.Begun();
      REQUIRE(source.Announced(seq, 7, 0));
      source.Released(seq, 0);
      source.Handle(wire::Ack{source.handoff(), seq}, 0);
    }
    source.Commit({}, 0);
    CHECK(FindMessage<wire::Commit>(source.TakeEffects()) != nullptr);
    return order;
  };
  using Order = std::vector<std::pair<int32_t, int32_t>>;
  const Order in_order = {{0, 0}, {0, 1}, {0, 2}, {1, 0}, {1, 1}, {1, 2}, {2, 0}, {2, 1}, {2, 2}};
  // A rank's own slice of the first planes, then the passed-on planes, whose later pages were given
  // before their first ones.
  CHECK(order_of(
            MakeTicket(1, 2, 3, 0),
            {{0, 1, 2, 1}, {1, 1, 2, 1}, {2, 1, 0, 3}, {0, 1, 0, 2}, {1, 1, 1, 1}, {1, 1, 0, 1}}) ==
        in_order);
  // All planes at once, as pages that were computed earlier: a rank gets them plane by plane, a
  // decode worker page by page.
  CHECK(order_of(MakeTicket(1, 2, 3, 0), {{0, 3, 0, 3}}) == in_order);
  CHECK(order_of(MakeTicket(1, 2, 3, 3), {{0, 3, 0, 3}}) ==
        Order{{0, 0}, {1, 0}, {2, 0}, {0, 1}, {1, 1}, {2, 1}, {0, 2}, {1, 2}, {2, 2}});
}

// A worker that is a rank of a relay and also hands over to decode workers.
struct Rank {
  explicit Rank(uint64_t seed) : cluster(seed) {
    for (int32_t page = 0; page < 16; ++page) {
      rank.pool.FillPage(page, 5);
      rank.owned.erase(page);
      rank.kept.insert(page);
    }
    decode.Lend(16, cluster.now_us);
    tail.core->Handle(AwaitInflow{chain.id, 1, Pages()}, cluster.now_us);
    rank.tap.on_announce = [this](TappedLink::Announced* announced) {
      const auto header = wire::DecodeChunkHeader(
          {reinterpret_cast<const char*>(announced->header.data()), announced->header.size()});
      OnAnnounce(*header);
    };
    rank.tap.on_event = [this](LinkEvent* event) {
      const auto* message = std::get_if<MessageArrived>(event);
      if (message == nullptr) return;
      const auto decoded = wire::Decode(message->bytes);
      if (const auto* ack = std::get_if<wire::Ack>(&*decoded))
        under_way[ack->handoff.ticket_id == chain.id].erase(
            {ack->handoff.ticket_id.high, ack->chunk_seq});
    };
  }
  static std::vector<int32_t> Pages() {
    std::vector<int32_t> pages(8);
    std::iota(pages.begin(), pages.end(), 0);
    return pages;
  }
  void OnAnnounce(const wire::ChunkHeader& header) {
    const bool of_chain = header.handoff.ticket_id == chain.id;
    if (of_chain) {
      REQUIRE(header.length == kChainChunks.at(n_chain++));
    } else if (Bytes(true) > 0) {
      // The chain's next chunk did not fit into its window, and this chunk is the only other one.
      if (n_chain < kChainChunks.size()) REQUIRE(Bytes(true) + kChainChunks[n_chain] > kWindow);
      REQUIRE(Bytes(false) == 0);
      ++n_beside_chain;
    } else {
      REQUIRE((!chain_given || n_chain == kChainChunks.size()));
    }
    under_way[of_chain][{header.handoff.ticket_id.high, header.chunk_seq}] = header.length;
  }
  int64_t Bytes(bool of_chain) {
    int64_t bytes = 0;
    for (const auto& [chunk, length] : under_way[of_chain]) bytes += length;
    return bytes;
  }
  void Open(const Ticket& ticket, CoreNode& to) {
    rank.core->Handle(OpenHandoff{ticket, to.options.facts.incarnation, to.link->address()},
                      cluster.now_us);
  }
  void Send(const Ticket& ticket) {
    for (int32_t plane = 0; plane < 3; ++plane)
      rank.core->Handle(SendCells{.ticket_id = ticket.id, .plane = plane, .pages = Pages()},
                        cluster.now_us);
    rank.core->Handle(CommitHandoff{ticket.id, {}}, cluster.now_us);
  }

  static constexpr int64_t kWindow = 1'000;  // the window of CorePair
  // 8 pages of planes of 100, 260 and 40 bytes, in chunks of at most 400.
  const std::vector<uint32_t> kChainChunks = {400, 400, 260, 260, 260, 260,
                                              260, 260, 260, 260, 320};
  const Ticket chain = MakeTicket(1, 2, 8, 0);
  CoreCluster cluster;
  CoreNode& rank = cluster.Add(CorePair::Options(1, 400), 16, kPlanes);
  CoreNode& tail = cluster.Add(CorePair::Options(2, 400), 16, kPlanes);
  CoreNode& decode = cluster.Add(CorePair::Options(3, 400), 16, kPlanes);
  std::map<std::pair<uint64_t, uint32_t>, int64_t> under_way[2];  // index: of the chain
  bool chain_given = false;
  size_t n_chain = 0;
  int n_beside_chain = 0;
};

TEST_CASE("a chain's chunks go before those for decode workers, which still get on") {
  int n_beside_chain = 0;
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    INFO("seed " << seed);
    Rank rig(seed);
    const Ticket pushes[] = {MakeTicket(2, 3, 8, 8), MakeTicket(3, 3, 8, 8)};
    for (const Ticket& ticket : pushes) rig.Open(ticket, rig.decode);
    rig.Open(rig.chain, rig.tail);
    rig.cluster.RunUntilQuiet();
    for (const Ticket& ticket : pushes) rig.Send(ticket);
    for (uint64_t n = seed % 20; n > 0; --n) rig.cluster.Step();
    rig.Send(rig.chain);
    rig.chain_given = true;
    // Chunks already under way when the chain gets its first chunk do not count.
    while (rig.Bytes(false) > 0 && rig.n_chain == 0) rig.cluster.Step();
    rig.cluster.RunUntilIdle(1'000'000);
    n_beside_chain += rig.n_beside_chain;
    const std::vector<LinkReport> links = rig.rank.core->links().links();
    REQUIRE(links.size() == 2);
    CHECK(links[0].rate.peer == 2);
    CHECK(links[0].address == rig.tail.link->address());
    CHECK(links[0].bytes == std::array<uint64_t, kTraffics>{8 * 400, 0});
    CHECK(links[1].rate.peer == 3);
    CHECK(links[1].bytes == std::array<uint64_t, kTraffics>{0, 2 * 8 * 400});
  }
  CHECK(n_beside_chain > 50);
}

TEST_CASE("peers handed over to are remembered up to a bound, the idle are forgotten") {
  CorePair pair(1);
  for (uint64_t n = 1; n <= LinkStats::kMaxPeers + 50; ++n) {
    pair.source.core->Handle(OpenHandoff{MakeTicket(n, 2, 1, 1), n, "mem:absent"},
                             pair.cluster.now_us);
    if (n != 7) pair.source.core->Handle(CancelHandoff{{n, ~n}, 1}, pair.cluster.now_us);
  }
  const std::vector<LinkReport> links = pair.source.core->links().links();
  CHECK(links.size() == LinkStats::kMaxPeers);
  CHECK(std::any_of(links.begin(), links.end(),
                    [](const LinkReport& l) { return l.rate.peer == 7; }));
  CHECK(links.back().rate.peer == LinkStats::kMaxPeers + 50);
}

// Sends chunks of 1 MiB over a link that carries one after another; each is announced when fewer
// than `window` are under way and `pause_us` after the previous one.
struct MeteredLink {
  explicit MeteredLink(double rate) : bytes_per_us(rate / 1e6) {}
  void Carry(int n, size_t window, int64_t pause_us) {
    std::deque<int64_t> acks;
    for (int i = 0; i < n || !acks.empty();) {
      const bool announces = i < n && acks.size() < window && (acks.empty() || next_us < acks[0]);
      now_us = announces ? std::max(now_us, next_us) : acks[0];
      if (announces) {
        if (acks.empty()) meter.Began(now_us);
        free_us = std::max(free_us, now_us + kLatencyUs) + int64_t(kChunk / bytes_per_us);
        acks.push_back(free_us + kLatencyUs);
        next_us = now_us + pause_us;
        ++i;
      } else {
        acks.pop_front();
        meter.Acked(kChunk, now_us);
      }
    }
  }
  static constexpr int64_t kChunk = 1 << 20, kLatencyUs = 2'000;
  double bytes_per_us;
  int64_t now_us = 0, next_us = 0, free_us = 0;
  LinkMeter meter;
};

TEST_CASE("a link's rate is measured, whatever its latency and the gaps between its chunks") {
  const double rate = GENERATE(2e7, 1e9);
  const int64_t pause_us = GENERATE(0, 100, 100'000);  // at once, sometimes, one by one
  for (const size_t window : {1, 2, 8}) {
    MeteredLink link(rate);
    CHECK(link.meter.bytes_per_second() == 0);
    link.meter.Answered(2 * MeteredLink::kLatencyUs);
    link.Carry(200, window, pause_us);
    CHECK(link.meter.bytes_per_second() < 1.05 * rate);
    CHECK(link.meter.bytes_per_second() > (window == 8 && pause_us == 0 ? 0.95 : 0.2) * rate);
  }
}

TEST_CASE("a link that becomes slow is soon known to be") {
  MeteredLink link(1e9);
  link.Carry(1'000, 8, 0);
  CHECK(link.meter.bytes_per_second() == Approx(1e9).epsilon(0.05));
  link.bytes_per_us /= 100;
  const int64_t before_us = link.now_us;
  link.Carry(20, 8, 0);
  CHECK(link.now_us - before_us < 3'000'000);
  CHECK(link.meter.bytes_per_second() < 2e7);
}

TEST_CASE("one late answer tells of a link that became slow, and a stall is soon forgotten") {
  MeteredLink link(1e9);
  link.Carry(1'000, 8, 0);
  link.bytes_per_us /= 4'000;  // four seconds per chunk
  link.Carry(1, 1, 0);
  CHECK(link.meter.bytes_per_second() < 1e6);
  link.bytes_per_us *= 4'000;
  link.Carry(500, 8, 0);  // half a second
  CHECK(link.meter.bytes_per_second() > 5e8);
}

TEST_CASE("round trips of a link are smoothed") {
  LinkMeter meter;
  CHECK(meter.round_trip_us() == 0);
  meter.Answered(800);
  CHECK(meter.round_trip_us() == 800);
  meter.Answered(1'600);
  CHECK(meter.round_trip_us() == 900);
}

}  // namespace
}  // namespace baton
