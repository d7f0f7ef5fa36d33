// Peers that send anything: messages with any bytes changed, whose checksums are right again,
// before and after HELLO, to sinks and to sources. Nothing crashes, no page is lost, and the
// handoffs of others arrive as ever.
#include "kvtransfer/protocol/crc32c.h"
#include "tests/kvtransfer/core_pair.h"
#include "tests/kvtransfer/message_mutator.h"

#include <catch2/catch.hpp>

namespace baton {
namespace {

constexpr Incarnation kAttacker = 4;

// Two good workers, and an attacker who has the cluster key, or has not.
struct Siege {
  Siege(uint64_t seed, const std::string& trusted)
      : pair(seed, 16, 260, trusted),
        mutator(seed, kAttacker),
        link(pair.cluster.network.MakeLink()) {}
  ~Siege() { link.reset(); }

  static wire::Identity Identity() {
    return {.model_fingerprint = 77,
            .numerics_id = "cpu-x86",
            .layout_id = "test",
            .n_planes = 3,
            .plane_digest = Crc32c(kPlanes.data(), 24)};
  }
  void Run() {
    do {
      pair.cluster.RunUntilQuiet();
    } while (link->Poll(&events));
  }
  // The oldest message of this type, and its bytes; the others before it are thrown away.
  template <typename M>
  std::optional<std::pair<M, std::string>> Next() {
    Run();
    for (const LinkEvent& event : std::exchange(events, {})) {
      const auto* arrived = std::get_if<MessageArrived>(&event);
      if (arrived == nullptr) continue;
      const auto message = wire::Decode(arrived->bytes);
      if (message.ok() && std::holds_alternative<M>(*message))
        return std::pair(std::get<M>(*message), arrived->bytes);
    }
    return std::nullopt;
  }
  bool Lost() {
    Run();
    bool lost = false;
    for (const LinkEvent& event : std::exchange(events, {}))
      lost |= std::holds_alternative<ConnectionLost>(event);
    return lost;
  }
  // Connects to the sink; with HELLO, changed by one time of eight, or without.
  void Connect(bool greets) {
    session.reset();
    connection = link->Connect(pair.sink.link->address());
    const auto challenge = Next<wire::Challenge>();
    REQUIRE(challenge.has_value());
    if (!greets) return;
    wire::Hello hello{.from = kAttacker,
                      .to = 2,
                      .nonce = {9},
                      .key_id = KeyIdOf(kTestKey),
                      .identity = Identity()};
    wire::Sign(kTestKey, challenge->second, hello);
    const std::string bytes = wire::Encode(hello);
    const std::string sent = mutator.Below(8) == 0 ? mutator.Change(bytes) : bytes;
    link->Send(connection, sent);
    if (sent != bytes || challenge->first.wants_mac == 0) return;
    const std::string use = "baton kv session v1 " + challenge->second + bytes;
    session.emplace(ClusterMac(kTestKey, use.data(), use.size()), true);
    REQUIRE(Next<wire::HelloAck>().has_value());
  }
  // A handoff of the good workers, from its first command to its end.
  void HandOver(uint64_t n) {
    pair.source.events.clear();
    pair.sink.events.clear();
    const Ticket ticket = MakeTicket(1'000 + n, 2, 3, 4);
    pair.Open(ticket);
    pair.SendAll(ticket);
    pair.Commit(ticket);
    Run();
    const auto* arrived = CoreCluster::Find<HandoffArrived>(pair.sink);
    REQUIRE(arrived != nullptr);
    CHECK(arrived->record.first_token == 42);
    for (int32_t i = 0; i < 3; ++i)
      REQUIRE(SamePage(pair.source.pool, i, pair.sink.pool, arrived->pages[size_t(i)]));
    const std::vector<int32_t> pages = arrived->pages;
    pair.sink.events.clear();
    for (const int32_t page : pages) pair.sink.Own(page);
    pair.sink.Lend(int32_t(pages.size()), pair.cluster.now_us);
    REQUIRE(pair.sink.PagesAccounted());
  }

  CorePair pair;
  MessageMutator mutator;
  std::unique_ptr<MemLink> link;
  ConnectionId connection = 0;
  std::optional<Session> session;  // of the attacker's end
  std::vector<LinkEvent> events;
  std::vector<std::byte> payload = std::vector<std::byte>(1'000'000, std::byte{0x66});
  OperationId operation = 0;
};

TEST_CASE("30,000 changed messages to sinks, of strangers and of members, harm nobody else") {
  constexpr int kMessages = 30'000, kPerSiege = 500;
  int n_sent = 0, n_lost = 0;
  for (uint64_t seed = 1; n_sent < kMessages; ++seed) {
    INFO("siege " << seed);
    const bool greets = seed % 4 != 0;
    Siege siege(seed, seed % 2 == 0 ? "" : "0.0.0.0/0");
    // Some are the attacker's own, one is of others.
    const std::vector<Ticket> tickets = {
        From(kAttacker, MakeTicket(1, 2, 2, 2)), From(kAttacker, MakeTicket(2, 2, 3, 4)),
        From(kAttacker, MakeTicket(3, 2, 1, 0)), MakeTicket(4, 2, 2, 2)};
    siege.Connect(greets);
    for (int i = 0; i < kPerSiege; ++i, ++n_sent) {
      if (siege.mutator.Below(3) == 0) {
        wire::ChunkHeader header = siege.mutator.Header(tickets);
        if (siege.mutator.Below(4) != 0 && header.length <= siege.payload.size())
          header.payload_crc =
              ExtendCrc32c(wire::IdentityCrc(header), siege.payload.data(), header.length);
        if (siege.session && siege.mutator.Below(8) != 0)
          siege.session->Sign(&header, siege.payload.data());
        siege.link->Announce(siege.connection, ++siege.operation, wire::Encode(header),
                             siege.payload.data(), header.length);
      } else {
        std::string bytes =
            siege.mutator.Change(wire::Encode(siege.mutator.Message(tickets, true)));
        if (siege.session && siege.mutator.Below(8) != 0)
          bytes = siege.session->Seal(std::move(bytes));
        siege.link->Send(siege.connection, std::move(bytes));
      }
      if (siege.Lost()) {
        ++n_lost;
        siege.Connect(greets);
      }
      if (i % 50 == 0) siege.HandOver(uint64_t(i));
    }
    siege.link->Close(siege.connection);
    siege.pair.cluster.RunUntilIdle(20'000'000);
    siege.pair.RequireQuiet();
  }
  WARN(n_sent << " messages, " << n_lost << " connections ended by them");
  CHECK(n_lost > 1'000);
}

TEST_CASE("6,000 changed messages to a source, of a sink with the key, harm nobody else") {
  int n_sent = 0, n_ended = 0;
  for (uint64_t seed = 1; n_sent < 6'000; ++seed) {
    INFO("siege " << seed);
    Siege siege(seed, "0.0.0.0/0");
    CorePair& pair = siege.pair;
    const Ticket ticket = MakeTicket(1, kAttacker, 3, 4);
    pair.source.core->Handle(OpenHandoff{ticket, kAttacker, siege.link->address()},
                             pair.cluster.now_us);
    pair.SendAll(ticket);
    siege.Run();
    for (const LinkEvent& event : std::exchange(siege.events, {}))
      if (const auto* accepted = std::get_if<ConnectionAccepted>(&event))
        siege.connection = accepted->connection;
    const std::string challenge = wire::Encode(wire::Challenge{.nonce = {5}});
    siege.link->Send(siege.connection, challenge);
    const auto hello = siege.Next<wire::Hello>();
    REQUIRE(hello.has_value());
    wire::HelloAck ack{.from = kAttacker, .difference = {}};
    wire::Sign(kTestKey, challenge + hello->second, ack);
    siege.link->Send(siege.connection, wire::Encode(ack));
    siege.Run();
    if (seed % 2 == 0)
      siege.link->Send(siege.connection,
                       wire::Encode(wire::Promise{{ticket.id, 1}, 1'000'000, 1'000'000}));
    for (int i = 0; i < 20; ++i, ++n_sent) {
      siege.link->Send(siege.connection,
                       siege.mutator.Change(wire::Encode(siege.mutator.Message({ticket}, false))));
      if (siege.Lost()) break;
    }
    siege.HandOver(seed);
    for (const LinkEvent& event : std::exchange(siege.events, {})) (void)event;
    pair.source.core->Handle(CancelHandoff{ticket.id, 1}, pair.cluster.now_us);
    siege.link->Close(siege.connection);
    pair.cluster.RunUntilIdle(20'000'000);
    for (const TransferEvent& event : pair.source.events)
      if (const auto* ended = std::get_if<HandoffEnded>(&event))
        n_ended += ended->ticket_id == ticket.id;
    REQUIRE_FALSE(pair.source.core->busy());
    REQUIRE(pair.source.core->n_operations() == 0);
  }
  WARN(n_sent << " messages, " << n_ended << " handoffs ended");
}

}  // namespace
}  // namespace baton
