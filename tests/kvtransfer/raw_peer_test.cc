// A sink core against a peer that sends protocol messages by hand: late, twice, wrong, or never.
#include "kvtransfer/protocol/crc32c.h"
#include "tests/kvtransfer/core_cluster.h"

#include <catch2/catch.hpp>

namespace baton {
namespace {

const std::vector<int64_t> kPlanes = {100, 60};

struct RawPeer {
  explicit RawPeer(int32_t slab_slots = 0)
      : cluster(1),
        sink(cluster.Add(Options(slab_slots), 8, kPlanes, /*gap=*/slab_slots > 0 ? 8 : 0)),
        link(cluster.network.MakeLink()) {
    sink.Lend(8, cluster.now_us);
    connection = link->Connect(sink.link->address());
  }
  ~RawPeer() { link.reset(); }
  static NodeOptions Options(int32_t slab_slots) {
    NodeOptions options = TestOptions(2);
    options.slab_slots = slab_slots;
    options.window_bytes = 400;
    options.chunk_bytes = 300;
    return options;
  }
  void Hello() {
    const std::string said = wire::Encode(Next<wire::Challenge>());
    wire::Hello hello{.from = 1,
                      .to = 2,
                      .nonce = {9},
                      .key_id = KeyIdOf(kTestKey),
                      .identity = {.model_fingerprint = 77,
                                   .numerics_id = "cpu-x86",
                                   .layout_id = "test",
                                   .n_planes = 2,
                                   .plane_digest = Crc32c(kPlanes.data(), 16)}};
    wire::Sign(kTestKey, said, hello);
    Send(hello);
    REQUIRE(Next<wire::HelloAck>().code == 0);
  }
  void Send(const wire::Message& message) { link->Send(connection, wire::Encode(message)); }
  void Run() {
    do {
      cluster.RunUntilQuiet();
    } while (link->Poll(&events));
  }
  // Returns the next message, which must be of this type.
  template <typename M>
  M Next() {
    Run();
    for (auto it = events.begin(); it != events.end(); ++it) {
      const auto* arrived = std::get_if<MessageArrived>(&*it);
      if (arrived == nullptr) continue;
      const auto message = wire::Decode(arrived->bytes);
      events.erase(it);
      REQUIRE(message.ok());
      REQUIRE(std::holds_alternative<M>(*message));
      return std::get<M>(*message);
    }
    FAIL("no message");
    return {};
  }
  bool Lost() {
    Run();
    for (const LinkEvent& event : events)
      if (std::holds_alternative<ConnectionLost>(event)) return true;
    return false;
  }
  bool Silent() {
    Run();
    for (const LinkEvent& event : events)
      if (std::holds_alternative<MessageArrived>(event)) return false;
    return true;
  }
  // Returns the header for both planes of one page, with the right CRC.
  wire::ChunkHeader Page(const Ticket& ticket, uint32_t page, uint32_t seq) {
    wire::ChunkHeader header{.handoff = {ticket.id, ticket.epoch},
                             .plane = 0,
                             .n_planes = 2,
                             .first_page = page,
                             .n_pages = 1,
                             .length = 160,
                             .sender = 1,
                             .receiver = 2,
                             .chunk_seq = seq};
    header.payload_crc = ExtendCrc32c(wire::IdentityCrc(header), payload.data(), 160);
    return header;
  }
  void Announce(const wire::ChunkHeader& header) {
    link->Announce(connection, ++operation, wire::Encode(header), payload.data(), header.length);
  }

  CoreCluster cluster;
  CoreNode& sink;
  std::unique_ptr<MemLink> link;
  ConnectionId connection;
  std::vector<LinkEvent> events;
  std::vector<std::byte> payload = std::vector<std::byte>(1'000, std::byte{0x5a});
  OperationId operation = 0;
};

const Ticket kTicket = MakeTicket(1, 2, 2, 3);
const wire::Handoff kHandoff{kTicket.id, kTicket.epoch};

TEST_CASE("OPEN, COMMIT and CANCEL that come twice, or after the end, get the same answer") {
  RawPeer peer;
  peer.Hello();
  peer.Send(wire::Open{kTicket});
  CHECK(peer.Next<wire::Promise>().chunk_bytes == 300);
  peer.Send(wire::Open{kTicket});
  peer.Next<wire::Promise>();
  CHECK(peer.sink.core->receive_pool().free_pages() == 5);
  for (const uint32_t page : {0u, 1u}) {
    peer.Announce(peer.Page(kTicket, page, page));
    CHECK(peer.Next<wire::Ack>().chunk_seq == page);
  }
  peer.Announce(peer.Page(kTicket, 1, 1));  // as if its ACK had been lost
  CHECK(peer.Next<wire::Ack>().chunk_seq == 1);
  CHECK(peer.sink.core->counters().chunks_received == 2);
  const uint64_t digest = wire::ChunkDigest(0, peer.Page(kTicket, 0, 0).payload_crc) +
                          wire::ChunkDigest(1, peer.Page(kTicket, 1, 1).payload_crc);
  peer.Send(wire::Done{kHandoff, 2, digest});
  peer.Send(wire::Commit{kHandoff, 1, 2});
  peer.Next<wire::Committed>();
  REQUIRE(CoreCluster::Find<HandoffArrived>(peer.sink) != nullptr);
  peer.sink.events.clear();
  peer.Send(wire::Commit{kHandoff, 1, 2});
  peer.Next<wire::Committed>();
  peer.Send(wire::Open{kTicket});
  peer.Next<wire::Committed>();
  peer.Send(wire::Cancel{kHandoff, 1, "too late"});
  peer.Next<wire::Committed>();
  CHECK(CoreCluster::Find<HandoffArrived>(peer.sink) == nullptr);

  const Ticket second = MakeTicket(2, 2, 1, 1);
  const wire::Handoff handoff{second.id, second.epoch};
  peer.Send(wire::Open{second});
  peer.Next<wire::Promise>();
  peer.Send(wire::Cancel{handoff, 1, "gone"});
  CHECK(peer.Next<wire::Cancelled>().reason == "gone");
  peer.Send(wire::Cancel{handoff, 1, "again"});
  CHECK(peer.Next<wire::Cancelled>().reason == "gone");
  peer.Send(wire::Open{second});
  CHECK(peer.Next<wire::Cancelled>().reason == "gone");
  peer.Send(wire::Commit{handoff, 1, 2});
  CHECK(peer.Next<wire::Cancelled>().reason == "gone");
  peer.Send(wire::Cancel{{{7, 7}, 1}, 1, "never opened"});
  peer.Next<wire::Cancelled>();
}

TEST_CASE("chunks that are not granted are refused with a reason, and write nothing") {
  using wire::NackReason;
  RawPeer peer;
  peer.Hello();
  peer.Send(wire::Open{kTicket});
  peer.Next<wire::Promise>();
  const auto reason = [&](wire::ChunkHeader header) {
    header.payload_crc =
        ExtendCrc32c(wire::IdentityCrc(header), peer.payload.data(), header.length);
    peer.Announce(header);
    return peer.Next<wire::Nack>().reason;
  };
  wire::ChunkHeader header = peer.Page(kTicket, 0, 0);
  ++header.handoff.ticket_id.low;
  CHECK(reason(header) == NackReason::kUnknownTicket);
  header = peer.Page(kTicket, 0, 0);
  --header.handoff.epoch;
  CHECK(reason(header) == NackReason::kUnknownTicket);
  CHECK(reason(peer.Page(kTicket, 2, 0)) == NackReason::kBadRange);
  header = peer.Page(kTicket, 0, 0);
  header.length = 161;
  CHECK(reason(header) == NackReason::kBadRange);
  header = peer.Page(kTicket, 0, 0);
  header.n_pages = 2, header.length = 320;
  CHECK(reason(header) == NackReason::kTooBig);
  const TransferCounters counters = peer.sink.core->counters();
  CHECK(Refused(counters, ChunkRefusal::kUnknownHandoff) == 2);
  CHECK(Refused(counters, ChunkRefusal::kBadRange) == 2);
  CHECK(Refused(counters, ChunkRefusal::kTooBig) == 1);
  CHECK(peer.sink.core->bound_pages() == 0);
  CHECK(peer.sink.core->counters().chunks_received == 0);
}

TEST_CASE("a chunk without a bounce slot waits for one, or is refused when its handoff ends") {
  for (const bool cancel : {false, true}) {
    RawPeer peer(/*slab_slots=*/1);
    peer.Hello();
    peer.Send(wire::Open{kTicket});
    peer.Next<wire::Promise>();
    peer.Announce(peer.Page(kTicket, 0, 0));
    peer.Announce(peer.Page(kTicket, 1, 1));
    // One receive is posted, one chunk is held.
    peer.cluster.network.Step(), peer.cluster.network.Step();
    peer.cluster.Turn(peer.sink);
    REQUIRE(peer.sink.core->n_operations() == 2);
    if (cancel) {
      peer.sink.core->Handle(CancelHandoff{kTicket.id, 1}, peer.cluster.now_us);
      CHECK(peer.sink.core->n_operations() == 1);
      peer.Run();
      CHECK(peer.sink.core->receive_pool().free_pages() == 8);
    } else {
      peer.Next<wire::Ack>();
      peer.Next<wire::Ack>();
    }
    CHECK(peer.sink.core->n_operations() == 0);
  }
}

TEST_CASE("a digest of other chunks fails the handoff") {
  RawPeer peer;
  peer.Hello();
  peer.Send(wire::Open{kTicket});
  peer.Next<wire::Promise>();
  for (const uint32_t page : {0u, 1u}) {
    peer.Announce(peer.Page(kTicket, page, page));
    peer.Next<wire::Ack>();
  }
  peer.Send(wire::Done{kHandoff, 2, 12345});
  peer.Send(wire::Commit{kHandoff, 1, 2});
  CHECK(peer.Next<wire::Cancel>().code == static_cast<uint32_t>(absl::StatusCode::kDataLoss));
  CHECK(CoreCluster::Find<HandoffArrived>(peer.sink) == nullptr);
  CHECK(peer.sink.core->receive_pool().free_pages() == 8);
}

TEST_CASE("a peer that breaks the protocol loses its connection, and its pages come back") {
  enum class Harm { kBreach, kDamage };
  const auto loses = [](const std::function<void(RawPeer&)>& act, Harm how = Harm::kBreach) {
    RawPeer peer;
    peer.Hello();
    peer.Send(wire::Open{kTicket});
    peer.Next<wire::Promise>();
    act(peer);
    const bool lost = peer.Lost();
    if (lost) {
      if (how == Harm::kDamage) {  // the peer may come back
        CHECK(peer.sink.core->busy());
        peer.cluster.now_us += 5'100'000;
        peer.sink.core->Tick(peer.cluster.now_us);
      }
      CHECK(CoreCluster::Find<HandoffAborted>(peer.sink) != nullptr);
      CHECK(peer.sink.core->receive_pool().free_pages() == 8);
      CHECK_FALSE(peer.sink.core->busy());
    }
    return lost;
  };
  CHECK_FALSE(loses([](RawPeer& peer) { peer.Send(wire::Ping{1}); }));
  CHECK(loses([](RawPeer& peer) { peer.link->Send(peer.connection, "garbage"); }, Harm::kDamage));
  CHECK(loses([](RawPeer& peer) { peer.link->Send(peer.connection, ""); }, Harm::kDamage));
  CHECK(loses([](RawPeer& peer) { peer.Send(wire::Promise{kHandoff, 1, 1}); }));
  CHECK(loses([](RawPeer& peer) { peer.Send(wire::HelloAck{}); }));
  CHECK(loses([](RawPeer& peer) { peer.Send(wire::Challenge{}); }));
  CHECK(loses([](RawPeer& peer) {
    wire::ChunkHeader header = peer.Page(kTicket, 0, 0);
    header.receiver = 3;
    peer.Announce(header);
  }));
  CHECK(loses([](RawPeer& peer) {
    wire::ChunkHeader header = peer.Page(kTicket, 0, 0);
    header.sender = 3;
    peer.Announce(header);
  }));
  CHECK(loses(
      [](RawPeer& peer) {  // announces other values than the header
        peer.link->Announce(peer.connection, 1, wire::Encode(peer.Page(kTicket, 0, 0)),
                            peer.payload.data(), 159);
      },
      Harm::kDamage));
  CHECK(loses(
      [](RawPeer& peer) {
        wire::ChunkHeaderBytes bytes = wire::Encode(peer.Page(kTicket, 0, 0));
        bytes[30] ^= 4;
        peer.link->Announce(peer.connection, 1, bytes, peer.payload.data(), 160);
      },
      Harm::kDamage));
}

TEST_CASE("without a valid HELLO nothing is answered and the connection ends") {
  {
    RawPeer peer;
    peer.Next<wire::Challenge>();
    peer.Send(wire::Open{kTicket});
    CHECK(peer.Silent());
    CHECK(peer.Lost());
  }
  {
    RawPeer peer;
    peer.Next<wire::Challenge>();
    wire::Hello hello;
    peer.Send(hello);  // no MAC
    CHECK(peer.Silent());
    CHECK(peer.Lost());
  }
  RawPeer peer;  // sends nothing
  CHECK_FALSE(peer.Lost());
  peer.cluster.now_us += 2'100'000;
  peer.sink.core->Tick(peer.cluster.now_us);
  CHECK(peer.Lost());
}

TEST_CASE("HELLO, NO_ROOM and CANCELLED again are harmless") {
  RawPeer peer;
  peer.Hello();
  wire::Hello hello;
  peer.Send(hello);
  peer.Send(wire::Cancelled{kHandoff, 1, ""});
  peer.Send(wire::Pong{5});
  CHECK(peer.Silent());
  CHECK_FALSE(peer.Lost());
}

}  // namespace
}  // namespace baton
