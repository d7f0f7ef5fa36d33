// Sources over connections that exist only in the test: who connects, whose chunk goes next, and
// what happens to handoffs when a connection ends. HandoffSource has its own cases.
#include "kvtransfer/protocol/sources.h"

#include "tests/kvtransfer/connected_peers.h"

#include <catch2/catch.hpp>

namespace baton {
namespace {

constexpr Incarnation kPeer = 7;

struct Rig : ConnectedPeers {
  using ConnectedPeers::ConnectedPeers;
  // Gives what connections have to tell to the sources.
  void Settle(int64_t now_us = 0) {
    for (const ConnectionEffect& effect : connections.TakeEffects()) {
      if (const auto* ready = std::get_if<ConnectionReady>(&effect)) sources.On(*ready, now_us);
      if (const auto* over = std::get_if<ConnectionOver>(&effect)) sources.On(*over, now_us);
      if (const auto* message = std::get_if<SinkMessage>(&effect)) sources.On(*message, now_us);
    }
  }
  void Open(const Ticket& ticket, Incarnation peer = kPeer) {
    OpenHandoff open{ticket, peer, "there"};
    sources.On(open, 0);
    Settle();
  }
  void FromSink(ConnectionId id, const wire::Message& message) {
    Receive(id, message);
    Settle();
  }
  // Opens the ticket over a ready connection and promises its pages.
  void Begin(const Ticket& ticket) {
    Open(ticket);
    if (link.sent.empty()) Answer(1), Settle();
    REQUIRE(link.Take<wire::Open>(1).ticket == ticket);
    FromSink(1, wire::Promise{{ticket.id, ticket.epoch}, 100, 250});
  }
  void Give(const Ticket& ticket) {
    SendCells cells{.ticket_id = ticket.id, .n_planes = 2, .pages = {}};
    for (int32_t page = 0; page < ticket.kv_pages; ++page) cells.pages.push_back(page);
    sources.On(cells, 0);
  }
  std::vector<uint64_t> Announced() const {
    std::vector<uint64_t> tickets;
    for (const auto& chunk : link.announced) tickets.push_back(chunk.header.handoff.ticket_id.high);
    return tickets;
  }

  LinkStats links;
  Sources sources{&setup, &connections, &links};
};

const Ticket kFirst = MakeTicket(1, kPeer, 2, 2), kSecond = MakeTicket(2, kPeer, 2, 2);

TEST_CASE("sources: handoffs to one peer share a connection, and OPEN waits for its HELLO") {
  Rig rig;
  rig.Open(kFirst);
  rig.Open(kSecond);
  CHECK(rig.link.connected == std::vector<std::string>{"there"});
  rig.Answer(1);
  CHECK(rig.link.sent.empty());
  rig.Settle();
  CHECK(rig.link.Take<wire::Open>(1).ticket == kFirst);
  CHECK(rig.link.Take<wire::Open>(1).ticket == kSecond);
  rig.Open(MakeTicket(3, kPeer, 1, 1));  // the connection is ready
  CHECK(rig.link.Take<wire::Open>(1).ticket.id.high == 3);
}

TEST_CASE("sources: each source in turn announces one chunk") {
  Rig rig;
  for (const Ticket& ticket : {kFirst, kSecond}) rig.Begin(ticket);
  for (const Ticket& ticket : {kFirst, kSecond}) rig.Give(ticket);
  CHECK_FALSE(rig.sources.Pump(0));
  CHECK(rig.Announced() == std::vector<uint64_t>{1, 2, 1, 2});
  CHECK(rig.sources.n_operations() == 4);
  CHECK(rig.setup.counters.chunks_sent == 4);
  CHECK(rig.links.under_way(Traffic::kDecode) == 400);
  CHECK(rig.link.announced[0].header.sender == ConnectedPeers::kSelf);
  CHECK(rig.link.announced[0].payload == rig.pool.page(0).data());  // without a copy
}

TEST_CASE("sources: beside a chain one other chunk is under way, and one slot stays for chains") {
  const Ticket chain = MakeTicket(3, kPeer, 2, 0), other_chain = MakeTicket(5, kPeer, 2, 0);
  const Ticket third = MakeTicket(4, kPeer, 2, 2), fourth = MakeTicket(6, kPeer, 2, 2);
  Rig rig(/*gap=*/8, /*n_slots=*/8);
  for (const Ticket& ticket : {kFirst, kSecond, chain, third, other_chain, fourth})
    rig.Begin(ticket);
  rig.Give(kFirst);
  rig.Give(chain);
  rig.sources.Pump(0);
  CHECK(rig.Announced() == std::vector<uint64_t>{3, 3, 3, 1});
  for (const Ticket& ticket : {kSecond, third, fourth}) rig.Give(ticket);
  rig.sources.Pump(0);
  CHECK(rig.link.announced.size() == 4);  // the chain's bytes are not acknowledged
  for (const uint32_t seq : {0u, 1u, 2u}) rig.FromSink(1, wire::Ack{{chain.id, 1}, seq});
  rig.sources.Pump(0);
  CHECK(rig.Announced() == std::vector<uint64_t>{3, 3, 3, 1, 2, 4, 6, 1, 2});  // one is left
  rig.Give(other_chain);
  rig.sources.Pump(0);
  CHECK(rig.Announced() == std::vector<uint64_t>{3, 3, 3, 1, 2, 4, 6, 1, 2, 5, 5, 5});
}

TEST_CASE("sources: a slot is taken until its chunk was read") {
  Rig rig(/*gap=*/8, /*n_slots=*/1);
  rig.Begin(kFirst);
  rig.Give(kFirst);
  rig.sources.Pump(0);
  REQUIRE(rig.link.announced.size() == 1);
  rig.FromSink(1, wire::Ack{{kFirst.id, 1}, 0});
  rig.sources.Pump(0);
  CHECK(rig.link.announced.size() == 1);
  rig.sources.On(ChunkSent{rig.link.announced[0].operation}, 0);
  rig.sources.Pump(0);
  REQUIRE(rig.link.announced.size() == 2);
  CHECK(rig.link.announced[1].payload == rig.link.announced[0].payload);
}

TEST_CASE("sources: a broken connection is made anew, that of a peer given up ends its handoffs") {
  Rig rig;
  rig.Begin(kFirst);
  rig.Open(MakeTicket(2, 8, 2, 2), 8);
  rig.TakeEvents();
  rig.connections.On(ConnectionLost{1, absl::UnavailableError("cut")}, 0);
  rig.Settle();
  CHECK(rig.setup.counters.connections_lost == 1);
  CHECK(rig.TakeEvents().empty());
  CHECK(rig.link.connected.size() == 2);
  rig.sources.Tick(10'000);
  CHECK(rig.link.connected.size() == 3);
  rig.Answer(3);
  rig.Settle();
  CHECK(rig.link.Take<wire::Open>(3).resume_from == 0);
  rig.FromSink(3, wire::Open{});  // no sink opens a handoff
  const auto ended = Only<HandoffEnded>(rig.TakeEvents());
  CHECK(ended.ticket_id == kFirst.id);
  CHECK(ended.status.code() == absl::StatusCode::kInvalidArgument);
  CHECK(rig.setup.counters.handoffs_failed == 1);
  CHECK(rig.setup.counters.handoffs_cancelled == 0);
  CHECK_FALSE(rig.sources.empty());  // the other peer's
}

TEST_CASE("sources: a message of another connection or epoch is not for the handoff") {
  Rig rig;
  rig.Begin(kFirst);
  rig.TakeEvents();
  const wire::Handoff later{kFirst.id, 2};
  rig.FromSink(1, wire::Cancel{later, 1, "stale"});
  CHECK(rig.link.Take<wire::Cancelled>(1).handoff == later);
  const ConnectionId other = rig.connections.ConnectTo(8, "elsewhere", 0);
  rig.Answer(other);
  rig.Settle();
  rig.FromSink(other, wire::Cancelled{{kFirst.id, 1}, 1, "not its sink"});
  CHECK(rig.TakeEvents().empty());
  rig.FromSink(1, wire::Cancelled{{kFirst.id, 1}, 1, "its sink"});
  CHECK(Only<HandoffEnded>(rig.TakeEvents()).status == absl::CancelledError("its sink"));
  CHECK(rig.setup.counters.handoffs_cancelled == 1);
  CHECK(rig.setup.counters.handoffs_failed == 0);
  CHECK(rig.sources.empty());
}

TEST_CASE("sources: cancels count for their epoch and earlier ones; commands may come too late") {
  Rig rig;
  const Ticket ticket = MakeTicket(1, kPeer, 2, 2, /*epoch=*/3);
  rig.Begin(ticket);
  rig.TakeEvents();
  rig.sources.On(CancelHandoff{ticket.id, 2}, 0);
  CHECK(rig.TakeEvents().empty());
  rig.sources.On(CancelHandoff{ticket.id, 3}, 0);
  CHECK(rig.link.Take<wire::Cancel>(1).handoff.epoch == 3);
  CHECK(Only<HandoffEnded>(rig.TakeEvents()).status.code() == absl::StatusCode::kCancelled);
  CHECK(rig.setup.counters.handoffs_cancelled == 1);
  CHECK(rig.setup.counters.handoffs_failed == 0);
  rig.Give(ticket);
  CommitHandoff commit{ticket.id, {}};
  rig.sources.On(commit, 0);
  CHECK(rig.TakeEvents().empty());
  CHECK(rig.links.links()[0].rate.peer == kPeer);
}

TEST_CASE("sources: one that waits for its chunk to be read closes the connection after a while") {
  Rig rig;
  rig.Begin(kFirst);
  rig.Give(kFirst);
  rig.sources.Pump(0);
  rig.sources.On(CancelHandoff{kFirst.id, 1}, 0);
  rig.TakeEvents();
  rig.sources.Tick(kDrainTimeoutUs - 1);
  CHECK(rig.link.closed.empty());
  rig.sources.Tick(kDrainTimeoutUs);
  CHECK(rig.link.closed == std::vector<ConnectionId>{1});
  rig.Settle();
  CHECK(rig.TakeEvents().empty());
  for (const auto& chunk : rig.link.announced) rig.sources.On(ChunkSent{chunk.operation}, 0);
  CHECK(Only<HandoffEnded>(rig.TakeEvents()).ticket_id == kFirst.id);
}

TEST_CASE("sources: when this worker shuts down, handoffs end, and new ones at once") {
  Rig rig;
  rig.Begin(kFirst);
  rig.TakeEvents();
  rig.setup.shutting_down = true;
  rig.sources.EndAll(0);
  CHECK(rig.link.Take<wire::Cancel>(1).code ==
        static_cast<uint32_t>(absl::StatusCode::kUnavailable));
  CHECK(Only<HandoffEnded>(rig.TakeEvents()).ticket_id == kFirst.id);
  rig.Open(kSecond);
  CHECK(Only<HandoffEnded>(rig.TakeEvents()).ticket_id == kSecond.id);
  CHECK(rig.link.sent.empty());
  CHECK(rig.sources.empty());
}

}  // namespace
}  // namespace baton
