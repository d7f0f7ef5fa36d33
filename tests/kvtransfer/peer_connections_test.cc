// Connections alone: who is let in, what counts as a message about handoffs, silence and the end.
#include "kvtransfer/protocol/peer_connections.h"

#include "tests/kvtransfer/connected_peers.h"

#include <catch2/catch.hpp>

namespace baton {
namespace {

constexpr wire::Handoff kHandoff{{1, 1}, 1};

struct Rig : ConnectedPeers {
  std::vector<ConnectionEffect> Effects() { return connections.TakeEffects(); }
};

TEST_CASE("connections: one for each peer and address, ready when its HELLO is answered") {
  Rig rig;
  const ConnectionId id = rig.connections.ConnectTo(7, "there", 0);
  CHECK(rig.connections.ConnectTo(7, "there", 0) == id);
  CHECK(rig.connections.ConnectTo(8, "there", 0) != id);  // the process there was restarted
  CHECK(rig.link.connected.size() == 2);
  CHECK(rig.Effects().empty());
  rig.Answer(id);
  CHECK(Only<ConnectionReady>(rig.Effects()).connection == id);
  rig.connections.ConnectTo(7, "there", 0);
  CHECK(Only<ConnectionReady>(rig.Effects()).connection == id);
}

TEST_CASE("connections: an answer of another process, or a refusal, gives the peer up") {
  const auto loss_after = [](const std::function<void(wire::HelloAck&)>& change) {
    Rig rig;
    const ConnectionId id = rig.connections.ConnectTo(7, "there", 0);
    rig.Answer(id, change);
    CHECK(rig.link.closed == std::vector<ConnectionId>{id});
    return Only<ConnectionOver>(rig.Effects());
  };
  CHECK(loss_after([](wire::HelloAck& ack) { ack.from = 8; }).loss == Loss::kGone);
  const ConnectionOver refused = loss_after([](wire::HelloAck& ack) {
    ack.code = static_cast<uint32_t>(absl::StatusCode::kFailedPrecondition);
    ack.difference = "KV layout differs";
  });
  CHECK(refused.loss == Loss::kGone);
  CHECK(refused.status == absl::FailedPreconditionError("KV layout differs"));
}

TEST_CASE("connections: only messages that this end may get are handed on, once HELLO is over") {
  Rig rig;
  const ConnectionId in = rig.Accept(5);
  const ConnectionId out = rig.connections.ConnectTo(7, "there", 0);
  rig.Answer(out);
  rig.Effects();
  rig.Receive(in, wire::Done{kHandoff, 1, 2});
  const auto from_source = Only<SourceMessage>(rig.Effects());
  CHECK(from_source.connection == in);
  CHECK(from_source.source == 5);
  CHECK(std::get<wire::Done>(from_source.message).digest == 2);
  rig.Receive(out, wire::Ack{kHandoff, 3});
  CHECK(Only<SinkMessage>(rig.Effects()).connection == out);
  for (const ConnectionId both : {in, out}) {
    rig.Receive(both, wire::Cancel{kHandoff, 1, "x"});
    CHECK(rig.Effects().size() == 1);
  }
  rig.Receive(in, wire::Hello{});  // repeated greetings
  rig.Receive(out, wire::HelloAck{});
  rig.Receive(out, wire::Challenge{});
  CHECK(rig.Effects().empty());
  CHECK(rig.link.closed.empty());

  rig.Receive(in, wire::Ack{kHandoff, 3});  // a source acknowledges nothing
  CHECK(Only<ConnectionOver>(rig.Effects()).loss == Loss::kGone);
  rig.Receive(out, wire::Open{});
  CHECK(Only<ConnectionOver>(rig.Effects()).loss == Loss::kGone);
  CHECK(rig.link.closed == std::vector<ConnectionId>{in, out});
  rig.Receive(out, wire::Ack{kHandoff, 3});  // the connection is closed
  CHECK(rig.Effects().empty());

  rig.Begin(9'000);
  rig.Receive(9'000, wire::Done{kHandoff, 1, 2});
  CHECK(Only<ConnectionOver>(rig.Effects()).loss == Loss::kGone);
}

TEST_CASE("connections: damage breaks a connection, its peer may come back") {
  Rig rig;
  const ConnectionId id = rig.Accept(5);
  rig.connections.On(MessageArrived{id, "garbage"}, 0);
  CHECK(Only<ConnectionOver>(rig.Effects()).loss == Loss::kBroken);
  rig.connections.On(ConnectionLost{rig.Accept(5), absl::UnavailableError("cut")}, 0);
  const auto over = Only<ConnectionOver>(rig.Effects());
  CHECK(over.loss == Loss::kBroken);
  CHECK(over.status.message() == "cut");
  CHECK(rig.link.closed == std::vector<ConnectionId>{id});  // the link knows of the other
}

TEST_CASE("connections: a silent peer is asked, and given up after its timeout") {
  Rig rig;
  const ConnectionId id = rig.Accept(5);
  int64_t now_us = 0;
  const auto pass = [&](int64_t us) {
    for (const int64_t end_us = now_us + us; now_us < end_us;)
      rig.connections.Tick(now_us += 10'000);
  };
  pass(790'000);
  CHECK(rig.link.sent.empty());
  pass(10'000);
  const uint64_t seq = rig.link.Take<wire::Ping>(id).seq;
  rig.Receive(id, wire::Pong{seq}, now_us);
  CHECK(rig.Effects().empty());  // only links that carry KV from here are measured
  pass(3'990'000);
  CHECK(rig.link.sent.size() == 4);
  CHECK(rig.Effects().empty());
  pass(10'000);
  const auto over = Only<ConnectionOver>(rig.Effects());
  CHECK(over.connection == id);
  CHECK(over.loss == Loss::kGone);

  rig.link.sent.clear();
  rig.Accept(6, now_us);
  now_us += 60'000'000;  // this process itself was stopped
  pass(3'990'000);
  CHECK(rig.Effects().empty());
  CHECK(rig.link.closed == std::vector<ConnectionId>{id});  // and not the other
}

TEST_CASE("connections: one without HELLO ends as broken") {
  Rig rig;
  rig.Begin(9'000);
  rig.connections.ConnectTo(7, "there", 0);
  rig.connections.Tick(1'990'000);
  CHECK(rig.Effects().empty());
  rig.connections.Tick(2'000'000);
  const auto effects = rig.Effects();
  REQUIRE(effects.size() == 2);
  for (const ConnectionEffect& effect : effects)
    CHECK(std::get<ConnectionOver>(effect).loss == Loss::kBroken);
}

TEST_CASE(
    "connections: round trips over outgoing connections are measured, if they are plausible") {
  Rig rig;
  const ConnectionId id = rig.connections.ConnectTo(7, "there", 0);
  rig.Answer(id);
  rig.Effects();
  rig.Receive(id, wire::Pong{100}, 350);
  const auto trip = Only<RoundTrip>(rig.Effects());
  CHECK(trip.peer == 7);
  CHECK(trip.us == 250);
  rig.Receive(id, wire::Pong{400}, 350);  // of the future
  rig.Receive(id, wire::Pong{uint64_t{1} << 63}, 350);
  rig.Receive(id, wire::Pong{100}, 6'000'000);  // older than the peer's timeout
  CHECK(rig.Effects().empty());
  rig.Receive(id, wire::Ping{3}, 350);
  CHECK(rig.link.Take<wire::Pong>(id).seq == 3);
}

TEST_CASE("connections: a chunk is offered only if its header is whole and names both ends") {
  const auto announce = [](const std::function<void(ChunkAnnounced&, wire::ChunkHeader&)>& change) {
    auto rig = std::make_unique<Rig>();
    ChunkAnnounced event{
        .connection = rig->Accept(5), .announcement = 4, .header = {}, .length = 60};
    wire::ChunkHeader header{.handoff = kHandoff, .length = 60, .sender = 5, .receiver = 2};
    change(event, header);
    const wire::ChunkHeaderBytes bytes = wire::Encode(header);
    event.header.insert(0, reinterpret_cast<const char*>(bytes.data()), bytes.size());
    rig->connections.On(event, 0);
    return rig;
  };
  const auto good = announce([](auto&, auto&) {});
  CHECK(Only<ChunkOffered>(good->Effects()).announcement == 4);
  CHECK(good->link.refused.empty());

  const auto refused = [&](ChunkRefusal why, Loss loss, const auto& change) {
    const auto rig = announce(change);
    CHECK(Only<ConnectionOver>(rig->Effects()).loss == loss);
    CHECK(rig->link.refused == std::vector<AnnouncementId>{4});
    CHECK(Refused(rig->setup.counters) == 1);
    CHECK(Refused(rig->setup.counters, why) == 1);
  };
  refused(ChunkRefusal::kHeader, Loss::kBroken, [](auto& event, auto&) { event.header = "x"; });
  refused(ChunkRefusal::kLength, Loss::kBroken, [](auto& event, auto&) { event.length = 61; });
  refused(ChunkRefusal::kPeer, Loss::kGone, [](auto&, auto& header) { header.sender = 6; });
  refused(ChunkRefusal::kPeer, Loss::kGone, [](auto&, auto& header) { header.receiver = 3; });
}

TEST_CASE("connections: bounded in number, and none comes in once this process shuts down") {
  Rig rig;
  for (size_t i = 0; i < PeerConnections::kMaxPeers; ++i) rig.Accept(5 + i);
  rig.link.closed.clear();
  const std::string said = rig.Begin(50'000);
  rig.Receive(50'000, rig.Hello(4, said));
  const auto ack = rig.link.Take<wire::HelloAck>(50'000);
  CHECK(ack.code == static_cast<uint32_t>(absl::StatusCode::kResourceExhausted));
  CHECK(Refused(rig.setup.counters, PeerRefusal::kCrowded) == 1);
  rig.connections.CloseAll();
  CHECK(rig.Effects().size() == PeerConnections::kMaxPeers + 1);
  rig.setup.shutting_down = true;
  rig.connections.On(ConnectionAccepted{50'001, "there"}, 0);
  CHECK(rig.link.closed.back() == 50'001);
  CHECK(rig.Effects().empty());
}

TEST_CASE("connections: strangers have few places, and half of them for one host") {
  constexpr size_t kPlaces = PeerConnections::kMaxStrangers;
  Rig rig;
  const ConnectionId member = rig.Accept(5);
  std::map<ConnectionId, std::string> said;
  for (ConnectionId id = 1; id <= kPlaces; ++id)  // the first host takes half, and not more
    said[id] = rig.Begin(id, "first:1");
  CHECK(rig.link.closed.size() == kPlaces / 2);
  for (ConnectionId id = kPlaces + 1; id <= 2 * kPlaces; ++id)
    said[id] = rig.Begin(id, absl::StrCat("10.0.0.", id, ":", id));
  CHECK(rig.link.closed.size() == kPlaces);  // all of the first host, and nobody else
  CHECK(Refused(rig.setup.counters, PeerRefusal::kCrowded) == kPlaces);
  for (const ConnectionId id : rig.link.closed) CHECK(id <= kPlaces);
  rig.Effects();
  // A member among them is let in, and takes no place any more; nobody else noticed.
  const ConnectionId newest = 2 * kPlaces;
  rig.Receive(newest, rig.Hello(6, said[newest]));
  CHECK(rig.link.Take<wire::HelloAck>(newest).code == 0);
  for (const ConnectionId id : {member, newest}) {
    rig.Receive(id, wire::Ping{3});
    CHECK(rig.link.Take<wire::Pong>(id).seq == 3);
  }
  CHECK(rig.Effects().empty());
  rig.connections.Tick(2'000'000);
  CHECK(rig.Effects().size() == kPlaces - 1);
  CHECK(Refused(rig.setup.counters, PeerRefusal::kSilent) == kPlaces - 1);
}

TEST_CASE("connections: a HELLO is good for its connection only, whoever recorded it") {
  Rig rig;
  const std::string first = rig.Begin(1), second = rig.Begin(2);
  CHECK(first != second);
  const wire::Hello recorded = rig.Hello(5, first);
  rig.Receive(1, recorded);
  CHECK(rig.link.Take<wire::HelloAck>(1).code == 0);
  rig.Receive(2, recorded);
  CHECK(rig.link.sent.empty());
  CHECK(Only<ConnectionOver>(rig.Effects()).connection == 2);
  CHECK(Refused(rig.setup.counters, PeerRefusal::kProof) == 1);
  rig.Receive(1, wire::Ping{3});  // the member did not notice
  rig.link.Take<wire::Pong>(1);

  ClusterKey other = kTestKey;
  other[0] ^= 1;
  const std::string third = rig.Begin(3);
  wire::Hello foreign = rig.Hello(5, third);
  foreign.key_id = KeyIdOf(other);
  wire::Sign(other, third, foreign);
  rig.Receive(3, foreign);
  CHECK(Refused(rig.setup.counters, PeerRefusal::kOtherKey) == 1);
  rig.Begin(4);
  rig.Receive(4, wire::Ping{1});
  CHECK(Refused(rig.setup.counters, PeerRefusal::kNoHello) == 1);
  CHECK(rig.link.closed == std::vector<ConnectionId>{2, 3, 4});
}

// An attacker between the ends cannot make them do without MACs.
TEST_CASE("connections: who wants MACs is part of what HELLO proves") {
  NodeOptions options = TestOptions(2);
  options.trusted_cidrs = "10.1.0.0/16";
  TestPool pool(4, {60, 40});
  RecordingLink link;
  TransferSetup setup{
      .options = options, .facts = options.facts, .pool = pool.view(), .link = &link, .copier = {}};
  PeerConnections connections(&setup);
  const auto challenge = [&](ConnectionId id, const std::string& from) {
    connections.On(ConnectionAccepted{id, from}, 0);
    return link.Take<wire::Challenge>(id);
  };
  CHECK(challenge(1, "10.1.2.3:5").wants_mac == 0);
  CHECK(challenge(2, "127.0.0.1:5").wants_mac == 0);  // this machine: listen_host
  wire::Challenge wanted = challenge(3, "10.2.2.3:5");
  CHECK(wanted.wants_mac == 1);
  wanted.wants_mac = 0;  // as the peer gets it
  const ConnectedPeers peer;
  const wire::Hello hello = peer.Hello(5, wire::Encode(wanted));
  connections.On(MessageArrived{3, wire::Encode(hello)}, 0);
  CHECK(Refused(setup.counters, PeerRefusal::kProof) == 1);
  // Where MACs are agreed on, greetings, which have none, do nothing any more.
  const wire::Challenge kept = challenge(4, "10.2.2.3:6");
  connections.On(MessageArrived{4, wire::Encode(peer.Hello(5, wire::Encode(kept)))}, 0);
  CHECK(link.Take<wire::HelloAck>(4).code == 0);
  for (const wire::Message& forged :
       {wire::Message(wire::HelloAck{}), wire::Message(kept), wire::Message(wire::Hello{})})
    connections.On(MessageArrived{4, wire::Encode(forged)}, 0);
  CHECK(Refused(setup.counters, PeerRefusal::kForged) == 3);
  CHECK(link.closed == std::vector<ConnectionId>{3});
}

}  // namespace
}  // namespace baton
