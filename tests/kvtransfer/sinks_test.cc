// Sinks over connections that exist only in the test: who is promised pages, which attempt lives,
// what fails together, and what is answered after the end. HandoffSink has its own cases.
#include "kvtransfer/protocol/sinks.h"

#include "kvtransfer/protocol/crc32c.h"
#include "tests/kvtransfer/connected_peers.h"

#include <catch2/catch.hpp>

namespace baton {
namespace {

constexpr Incarnation kSource = kTestSource, kOther = 6;

struct Rig : ConnectedPeers {  // each chunk needs one of two slots
  explicit Rig(int32_t lent = 8) : ConnectedPeers(/*gap=*/8), from(Accept(kSource)) {
    LendPages lend{.pages = {}, .expected_wait_us = 55};
    for (int32_t page = 0; page < lent; ++page) lend.pages.push_back(page);
    sinks.On(lend, 0);
    Settle();
    TakeEvents();
  }
  void Settle(int64_t now_us = 0) {
    for (const ConnectionEffect& effect : connections.TakeEffects()) {
      if (const auto* over = std::get_if<ConnectionOver>(&effect)) sinks.On(*over, now_us);
      if (const auto* message = std::get_if<SourceMessage>(&effect)) sinks.On(*message, now_us);
      if (const auto* chunk = std::get_if<ChunkOffered>(&effect)) sinks.On(*chunk, now_us);
    }
    sinks.Settle(now_us);
  }
  void FromSource(ConnectionId id, const wire::Message& message) {
    Receive(id, message);
    Settle();
  }
  void Cancel(const TicketId& id, Epoch epoch) {
    sinks.On(CancelHandoff{id, epoch}, 0);
    Settle();
  }
  void Await(const Ticket& ticket, std::vector<int32_t> pages, Epoch epoch = 1) {
    AwaitInflow await{ticket.id, epoch, std::move(pages)};
    sinks.On(await, 0);
    Settle();
  }
  // Announces both planes of a page and returns the payload's CRC.
  uint32_t Announce(const Ticket& ticket, uint32_t page, uint32_t seq) {
    wire::ChunkHeader header{.handoff = {ticket.id, ticket.epoch},
                             .n_planes = 2,
                             .first_page = page,
                             .n_pages = 1,
                             .length = 100,
                             .sender = kSource,
                             .receiver = kSelf,
                             .chunk_seq = seq};
    header.payload_crc = ExtendCrc32c(wire::IdentityCrc(header), payload.data(), payload.size());
    const wire::ChunkHeaderBytes bytes = wire::Encode(header);
    connections.On(
        ChunkAnnounced{from, ++announcement,
                       std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()), 100},
        0);
    Settle();
    return header.payload_crc;
  }
  void Land(size_t n) {
    std::copy(payload.begin(), payload.end(), link.accepted.at(n).destination);
    sinks.On(ChunkLanded{link.accepted.at(n).operation, true}, 0);
    Settle();
  }
  // Sends all of a handoff, from announcement to COMMIT.
  void Bring(const Ticket& ticket) {
    uint64_t digest = 0;
    for (int32_t page = 0; page < ticket.n_pages; ++page) {
      const auto seq = static_cast<uint32_t>(page);
      const auto at = static_cast<uint32_t>(ticket.first_page) + seq;
      digest += wire::ChunkDigest(seq, Announce(ticket, at, seq));
      Land(link.accepted.size() - 1);
      link.Take<wire::Ack>(from);
    }
    FromSource(from, wire::Done{{ticket.id, ticket.epoch}, 0, digest});
    FromSource(from, wire::Commit{{ticket.id, ticket.epoch}, 4, 5});
  }
  // The events of one kind since the last call; ReceivePoolChanged are dropped with all others.
  template <typename E>
  std::vector<E> Take() {
    std::vector<E> taken;
    for (TransferEvent& event : TakeEvents())
      if (auto* e = std::get_if<E>(&event)) taken.push_back(std::move(*e));
    return taken;
  }

  Sinks sinks{&setup, &connections};
  const ConnectionId from;
  std::vector<std::byte> payload = std::vector<std::byte>(100, std::byte{0x5a});
  AnnouncementId announcement = 0;
};

const Ticket kTicket = MakeTicket(1, 2, 2, 3);

TEST_CASE("sinks: a handoff is promised, received, and answered the same after its end") {
  Rig rig;
  rig.FromSource(rig.from, wire::Open{kTicket});
  rig.link.Take<wire::Promise>(rig.from);
  CHECK(rig.sinks.receive_pool().free_pages() == 5);
  rig.Bring(kTicket);
  rig.link.Take<wire::Committed>(rig.from);
  const auto arrived = rig.Take<HandoffArrived>();
  REQUIRE(arrived.size() == 1);
  CHECK(arrived[0].pages.size() == 3);
  for (const int32_t plane : {0, 1})
    CHECK(rig.pool.cell(arrived[0].pages[1], plane)[0] == std::byte{0x5a});
  CHECK(rig.sinks.empty());
  CHECK(rig.sinks.n_operations() == 0);
  rig.FromSource(rig.from, wire::Commit{{kTicket.id, 1}, 4, 5});
  rig.link.Take<wire::Committed>(rig.from);
  rig.FromSource(rig.from, wire::Open{kTicket});
  rig.link.Take<wire::Committed>(rig.from);
  CHECK(rig.TakeEvents().empty());
}

TEST_CASE("sinks: who asked first is promised first, and a suspended one keeps its place") {
  Rig rig(/*lent=*/3);
  const ConnectionId other = rig.Accept(kOther);
  const Ticket second = MakeTicket(2, 2, 2, 3), third = From(kOther, MakeTicket(3, 2, 1, 1));
  rig.FromSource(rig.from, wire::Open{kTicket});
  rig.link.Take<wire::Promise>(rig.from);
  rig.FromSource(rig.from, wire::Open{second});
  CHECK(rig.link.Take<wire::NoRoom>(rig.from).expected_wait_us == 55);
  rig.FromSource(other, wire::Open{third});
  rig.link.Take<wire::NoRoom>(other);
  CHECK(rig.Take<ReceivePoolChanged>().back().waiting == 2);
  rig.connections.Break(rig.from, "cut");
  rig.Settle();
  rig.Cancel(kTicket.id, 1);
  rig.link.Take<wire::Promise>(other);  // the second cannot be answered now
  CHECK(rig.sinks.receive_pool().free_pages() == 2);
  const ConnectionId again = rig.Accept(kSource);
  rig.FromSource(again, wire::Open{second});
  rig.link.Take<wire::NoRoom>(again);
  rig.Cancel(third.id, 1);
  rig.link.Take<wire::Cancel>(other);
  rig.link.Take<wire::Promise>(again);
  CHECK(rig.sinks.receive_pool().free_pages() == 0);
}

TEST_CASE("sinks: pages of an inflow are named before its OPEN or after it") {
  const Ticket inflow = MakeTicket(1, 2, 2, 0);
  for (const bool before : {true, false}) {
    Rig rig;
    if (before) rig.Await(inflow, {10, 11});
    CHECK(rig.sinks.empty() != before);
    rig.FromSource(rig.from, wire::Open{inflow});
    if (!before) {
      CHECK(rig.link.Take<wire::NoRoom>(rig.from).expected_wait_us == 0);
      rig.Await(inflow, {10, 11});
    }
    rig.link.Take<wire::Promise>(rig.from);
    rig.Bring(inflow);
    rig.link.Take<wire::Committed>(rig.from);
    CHECK(rig.Take<InflowArrived>().back().n_planes == 2);
    CHECK(rig.pool.cell(11, 1)[0] == std::byte{0x5a});
    CHECK(rig.sinks.receive_pool().free_pages() == 8);
  }
  Rig rig;
  rig.Await(inflow, {10, 11, 12});  // not the pages of the ticket
  rig.FromSource(rig.from, wire::Open{inflow});
  CHECK(rig.link.Take<wire::Cancelled>(rig.from).code ==
        static_cast<uint32_t>(absl::StatusCode::kInvalidArgument));
  CHECK(rig.Take<InflowFailed>().size() == 1);
  CHECK(rig.sinks.empty());
}

TEST_CASE("sinks: held pages are not asked for, and come out first") {
  const bool before = GENERATE(true, false);  // before the OPEN, or while it waits for room
  Rig rig(/*lent=*/before ? 8 : 1);
  const auto hold = [&](std::vector<int32_t> pages) {
    LendHeld held{kTicket.promise, 1, std::move(pages)};
    rig.sinks.On(held, 0);
    rig.Settle();
  };
  if (before) hold({12});
  rig.FromSource(rig.from, wire::Open{kTicket});
  if (!before) {
    rig.link.Take<wire::NoRoom>(rig.from);
    hold({12});
    CHECK(rig.Take<ReceivePoolChanged>().back().held_pages == 1);
    LendPages more{.pages = {1}};
    rig.sinks.On(more, 0);
    rig.Settle();
  }
  CHECK(rig.link.Take<wire::Promise>(rig.from).held_pages == 1);
  CHECK(rig.sinks.receive_pool().free_pages() == (before ? 6 : 0));
  hold({13});  // too late
  CHECK(rig.Take<PagesReturned>().at(0).pages == std::vector<int32_t>{13});
  const uint64_t digest = wire::ChunkDigest(0, rig.Announce(kTicket, 1, 0));
  rig.Land(0);
  rig.link.Take<wire::Ack>(rig.from);
  rig.FromSource(rig.from, wire::Done{{kTicket.id, 1}, 1, digest});
  rig.FromSource(rig.from, wire::Commit{{kTicket.id, 1}, 4, 5});
  rig.link.Take<wire::Committed>(rig.from);
  const auto arrived = rig.Take<HandoffArrived>();
  REQUIRE(arrived.size() == 1);
  CHECK(arrived[0].pages.size() == 3);
  CHECK(arrived[0].pages[0] == 12);
  CHECK(rig.pool.cell(arrived[0].pages[1], 1)[0] == std::byte{0x5a});
  CHECK(rig.sinks.bound_pages() == 0);
  CHECK(rig.sinks.empty());
}

TEST_CASE("sinks: held pages come back whole, whatever becomes of their promise") {
  Rig rig(/*lent=*/2);
  LendHeld held{kTicket.promise, 1, {12, 13}};
  const auto returned = [&] {
    std::vector<int32_t> pages;
    for (const PagesReturned& back : rig.Take<PagesReturned>())
      pages.insert(pages.end(), back.pages.begin(), back.pages.end());
    return pages;
  };
  SECTION("cancelled before its OPEN") {
    rig.sinks.On(held, 0);
    CHECK_FALSE(rig.sinks.empty());
    rig.Cancel(kTicket.promise, 1);
  }
  SECTION("cancelled before they were lent") {
    rig.Cancel(kTicket.promise, 1);
    rig.sinks.On(held, 0);
  }
  SECTION("replaced by a later attempt") {
    rig.sinks.On(held, 0);
    rig.FromSource(rig.from, wire::Open{MakeTicket(1, 2, 2, 2, /*epoch=*/2)});
    CHECK(rig.link.Take<wire::Promise>(rig.from).held_pages == 0);
    CHECK(returned() == std::vector<int32_t>{12, 13});
    rig.Cancel(kTicket.promise, 2);
    held = {kTicket.promise, 2, {12, 13}};  // over
    rig.sinks.On(held, 0);
  }
  SECTION("cancelled while it is filled") {
    rig.sinks.On(held, 0);
    rig.FromSource(rig.from, wire::Open{kTicket});
    CHECK(rig.link.Take<wire::Promise>(rig.from).held_pages == 2);
    rig.Cancel(kTicket.promise, 1);
  }
  SECTION("reclaimed before its OPEN, and while it waits") {
    rig.sinks.On(held, 0);
    ReclaimHeld reclaim;
    rig.sinks.On(reclaim, 0);
    CHECK(returned() == std::vector<int32_t>{12, 13});
    rig.FromSource(rig.from, wire::Open{kTicket});  // three pages, two are lent
    rig.link.Take<wire::NoRoom>(rig.from);
    held.pages = {12};
    rig.sinks.On(held, 0);
    rig.sinks.On(reclaim, 0);
    CHECK(returned() == std::vector<int32_t>{12});
    rig.Cancel(kTicket.promise, 1);
    held.pages = {12, 13};
    rig.sinks.On(held, 0);
  }
  SECTION("more than the prompt has") {
    held.pages = {12, 13, 14};
    rig.sinks.On(held, 0);
    rig.FromSource(rig.from, wire::Open{kTicket});
    CHECK(returned() == std::vector<int32_t>{12, 13, 14});
    rig.Cancel(kTicket.promise, 1);
    held.pages = {12, 13};
    rig.sinks.On(held, 0);
  }
  SECTION("this worker shuts down") {
    rig.sinks.On(held, 0);
    rig.sinks.On(CancelPromises{}, 0);
  }
  CHECK(returned() == std::vector<int32_t>{12, 13});
  CHECK(rig.sinks.receive_pool().free_pages() == 2);  // held pages are never lent for other KV
  CHECK(rig.sinks.empty());
}

TEST_CASE("sinks: of one ticket the latest epoch lives, opened or awaited") {
  const auto of_epoch = [](Epoch epoch) { return MakeTicket(1, 2, 2, 0, epoch); };
  Rig rig;
  rig.FromSource(rig.from, wire::Open{of_epoch(2)});
  rig.link.Take<wire::NoRoom>(rig.from);
  rig.FromSource(rig.from, wire::Open{of_epoch(1)});
  CHECK(rig.link.Take<wire::Cancelled>(rig.from).handoff.epoch == 1);
  rig.Await(of_epoch(1), {10, 11}, 1);
  CHECK(Only<InflowFailed>(rig.TakeEvents()).epoch == 1);
  rig.Await(of_epoch(3), {10, 11}, 3);
  CHECK(rig.link.Take<wire::Cancel>(rig.from).handoff.epoch == 2);
  rig.FromSource(rig.from, wire::Open{of_epoch(4)});
  rig.link.Take<wire::NoRoom>(rig.from);
  CHECK(Only<InflowFailed>(rig.TakeEvents()).epoch == 3);
  rig.Cancel(of_epoch(4).id, 5);
  rig.link.Take<wire::Cancel>(rig.from);
  rig.FromSource(rig.from, wire::Open{of_epoch(5)});
  rig.link.Take<wire::Cancelled>(rig.from);
  CHECK(rig.sinks.empty());
}

TEST_CASE("sinks: several sources fill a promise, the first OPEN takes its pages") {
  const Ticket last = MakeMain(1, 2, 3, 4, /*first_page=*/2);
  const Ticket first = MakePart(last, 2, 0, 2);
  for (const bool in_order : {true, false}) {
    Rig rig(/*lent=*/4);
    const std::vector<Ticket> tickets =
        in_order ? std::vector{first, last} : std::vector{last, first};
    for (const Ticket& ticket : tickets) {
      rig.FromSource(rig.from, wire::Open{ticket});
      rig.link.Take<wire::Promise>(rig.from);
      CHECK(rig.sinks.receive_pool().owed() == 4);
    }
    for (const Ticket& ticket : tickets) {
      CHECK(rig.Take<HandoffArrived>().empty());
      rig.Bring(ticket);
      rig.link.Take<wire::Committed>(rig.from);
    }
    const auto arrived = rig.Take<HandoffArrived>();
    REQUIRE(arrived.size() == 1);
    CHECK(arrived[0].ticket_id == last.promise);
    CHECK(arrived[0].pages.size() == 4);
    CHECK(rig.sinks.empty());
    CHECK(rig.sinks.bound_pages() == 0);
  }
}

TEST_CASE("sinks: one source fails, all fail, and pages come back when nothing writes them") {
  const Ticket last = MakeMain(1, 2, 3, 4, /*first_page=*/2);
  const Ticket first = MakePart(last, 2, 0, 1), second = MakePart(last, 3, 1, 1);
  Rig rig;
  for (const Ticket& ticket : {last, first, second}) rig.FromSource(rig.from, wire::Open{ticket});
  rig.Announce(first, 0, 0);
  rig.link.sent.clear();
  rig.TakeEvents();
  SECTION("cancelled by its source") {
    rig.FromSource(rig.from, wire::Cancel{{second.id, 1}, 1, "gone"});
  }
  SECTION("one that has pages of another comes") {
    const ConnectionId other = rig.Accept(kOther);
    rig.FromSource(other, wire::Open{From(kOther, MakePart(last, 4, 1, 1))});
  }
  SECTION("cancelled by the engine, after one is committed") {
    rig.link.sent.clear();
    rig.Bring(second);
    rig.link.Take<wire::Committed>(rig.from);
    rig.Cancel(last.promise, 1);
  }
  CHECK(rig.sinks.bound_pages() >= 1);  // a receive of the first may still write
  CHECK(rig.Take<HandoffAborted>().empty());
  rig.Land(0);
  CHECK(rig.Take<HandoffAborted>().size() == 1);
  CHECK(rig.sinks.empty());
  CHECK(rig.sinks.receive_pool().free_pages() == 8);
  rig.link.sent.clear();
  rig.FromSource(rig.from, wire::Open{MakePart(last, 5, 1, 1)});  // too late
  rig.link.Take<wire::Cancelled>(rig.from);
}

TEST_CASE("sinks: a broken connection keeps what arrived, that of a peer given up ends it") {
  Rig rig;
  rig.FromSource(rig.from, wire::Open{kTicket});
  rig.link.Take<wire::Promise>(rig.from);
  rig.Announce(kTicket, 0, 0);
  rig.Land(0);
  rig.link.Take<wire::Ack>(rig.from);
  // The source is back before its old connection is known to be over.
  const ConnectionId again = rig.Accept(kSource);
  rig.FromSource(again, wire::Open{kTicket, /*resume_from=*/0});
  CHECK(rig.link.closed == std::vector<ConnectionId>{rig.from});
  CHECK(rig.setup.counters.connections_lost == 1);
  CHECK(rig.link.Take<wire::Ack>(again).chunk_seq == 0);
  rig.link.Take<wire::Promise>(again);
  CHECK(rig.Take<HandoffAborted>().empty());
  rig.FromSource(again, wire::Promise{});  // no source promises
  CHECK(rig.Take<HandoffAborted>().size() == 1);
  CHECK(rig.setup.counters.connections_lost == 2);
  CHECK(rig.sinks.receive_pool().free_pages() == 8);
}

TEST_CASE("sinks: a chunk of another connection or handoff is refused with a reason") {
  Rig rig;
  const ConnectionId other = rig.Accept(kOther);
  rig.FromSource(other, wire::Open{From(kOther, kTicket)});
  rig.link.Take<wire::Promise>(other);
  rig.Announce(kTicket, 0, 0);  // of the first source
  CHECK(rig.link.Take<wire::Nack>(rig.from).reason == wire::NackReason::kUnknownTicket);
  CHECK(Refused(rig.setup.counters, ChunkRefusal::kUnknownHandoff) == 1);
  CHECK(rig.link.refused.size() == 1);
  CHECK(rig.link.accepted.empty());
  CHECK(rig.sinks.bound_pages() == 0);
}

TEST_CASE("sinks: chunks without a slot are held, and refused when their handoff ends") {
  Rig rig;
  const Ticket ticket = MakeTicket(1, 2, 4, 4);
  rig.FromSource(rig.from, wire::Open{ticket});
  rig.link.Take<wire::Promise>(rig.from);
  for (const uint32_t page : {0u, 1u}) rig.Announce(ticket, page, page);
  const Ticket second = MakeTicket(2, 2, 1, 1);
  rig.FromSource(rig.from, wire::Open{second});
  rig.link.Take<wire::Promise>(rig.from);
  rig.Announce(second, 0, 0);
  CHECK(rig.link.accepted.size() == 2);
  CHECK(rig.sinks.n_operations() == 3);
  SECTION("a slot is free again") {
    rig.Land(0);
    REQUIRE(rig.link.accepted.size() == 3);
    CHECK(rig.link.accepted[2].announcement == 3);
  }
  SECTION("its handoff ends") {
    rig.Cancel(second.id, 1);
    CHECK(rig.link.refused == std::vector<AnnouncementId>{3});
    CHECK(rig.Take<HandoffAborted>().size() == 1);
    CHECK(rig.sinks.n_operations() == 2);
  }
}

TEST_CASE("sinks: without a router nothing stays promised, and what comes later opens") {
  Rig rig;
  // One of two ranks has sent its part; nobody sends the other.
  const Ticket whole = MakeTicket(1, 2, 3, 4);
  const Ticket part = MakePart(whole, 2, 0, 2);
  rig.FromSource(rig.from, wire::Open{part});
  rig.link.Take<wire::Promise>(rig.from);
  rig.Bring(part);
  rig.link.Take<wire::Committed>(rig.from);
  const Ticket inflow = MakeTicket(3, 2, 2, 0);
  rig.Await(inflow, {10, 11});
  LendHeld held{TicketId{9, 9}, 1, {12}};
  rig.sinks.On(held, 0);
  rig.TakeEvents();
  rig.sinks.On(CancelPromises{}, 0);
  rig.Settle();
  CHECK(rig.sinks.empty());
  CHECK(rig.sinks.receive_pool().free_pages() == 8);
  const std::vector<TransferEvent> events = rig.TakeEvents();
  REQUIRE(events.size() == 4);
  CHECK(std::get<PagesReturned>(events[0]).pages == std::vector<int32_t>{12});
  CHECK(std::get<HandoffAborted>(events[1]).ticket_id == whole.promise);
  CHECK(std::get<InflowFailed>(events[2]).ticket_id == inflow.id);
  rig.FromSource(rig.from, wire::Open{MakeTicket(5, 2, 1, 1)});
  rig.link.Take<wire::Promise>(rig.from);
}

TEST_CASE(
    "sinks: of a lost router's requests no promise stays, and every one of another router's") {
  const auto of_router = [](RouterId router, uint64_t n) {
    Ticket ticket = MakeTicket(n, 2, 2, 3);
    ticket.request_id = MakeRequestId(router, n);
    SignTicket(kTestKey, ticket);
    return ticket;
  };
  Rig rig;
  const Ticket lost = of_router(1, 5), other = of_router(2, 6);
  for (const Ticket& ticket : {lost, other}) {
    rig.FromSource(rig.from, wire::Open{ticket});
    rig.link.Take<wire::Promise>(rig.from);
  }
  const Ticket inflow = MakeTicket(7, 2, 2, 0);
  rig.Await(inflow, {10, 11});
  LendHeld held{TicketId{9, 9}, 1, {12}};
  rig.sinks.On(held, 0);
  rig.TakeEvents();
  rig.sinks.On(CancelPromises{1}, 0);
  rig.Settle();
  CHECK(rig.link.Take<wire::Cancel>(rig.from).handoff.ticket_id == lost.id);
  CHECK(rig.Take<HandoffAborted>().at(0).request_id == lost.request_id);
  rig.sinks.On(CancelPromises{2}, 0);
  rig.Settle();
  CHECK(rig.link.Take<wire::Cancel>(rig.from).handoff.ticket_id == other.id);
  CHECK(rig.Take<HandoffAborted>().at(0).request_id == other.request_id);
  rig.sinks.On(CancelPromises{}, 0);
  CHECK(rig.sinks.empty());
}

TEST_CASE("sinks: when this worker shuts down, nothing stays open or awaited, and nothing opens") {
  Rig rig;
  const Ticket inflow = MakeTicket(2, 2, 2, 0);
  rig.FromSource(rig.from, wire::Open{kTicket});
  rig.Await(inflow, {10, 11});
  rig.link.sent.clear();
  rig.TakeEvents();
  rig.setup.shutting_down = true;
  rig.sinks.On(CancelPromises{}, 0);
  rig.link.Take<wire::Cancel>(rig.from);
  CHECK(rig.sinks.empty());
  const std::vector<TransferEvent> events = rig.TakeEvents();
  REQUIRE(events.size() == 2);
  CHECK(std::get<HandoffAborted>(events[0]).status.code() == absl::StatusCode::kUnavailable);
  CHECK(std::get<InflowFailed>(events[1]).ticket_id == inflow.id);
  rig.FromSource(rig.from, wire::Open{MakeTicket(3, 2, 1, 1)});
  CHECK(rig.link.Take<wire::Cancelled>(rig.from).code ==
        static_cast<uint32_t>(absl::StatusCode::kUnavailable));
  rig.Await(MakeTicket(4, 2, 2, 0), {10, 11});
  CHECK(rig.Take<InflowFailed>().size() == 1);
  ReclaimPages all{.n = 100};
  rig.sinks.On(all, 0);
  CHECK(rig.Take<PagesReturned>().at(0).pages.size() == 8);
}

}  // namespace
}  // namespace baton
