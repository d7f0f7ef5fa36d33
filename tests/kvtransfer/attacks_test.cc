// Somebody on the way who changes bytes and makes the checksums right again, and tickets that are
// not for this handoff: each is refused under its name, and nobody else notices.
#include "kvtransfer/protocol/crc32c.h"
#include "kvtransfer/protocol/tombstones.h"
#include "tests/kvtransfer/core_pair.h"

#include <catch2/catch.hpp>

namespace baton {
namespace {

constexpr int32_t kKvPages = 3;
const Ticket kTicket = MakeTicket(1, 2, kKvPages, 4);
const std::string kNobody, kAll = "0.0.0.0/0";

std::unique_ptr<CorePair> PairOf(const std::string& trusted, uint64_t seed = 1) {
  return std::make_unique<CorePair>(seed, 16, 260, trusted);
}

void Begin(CorePair& pair) {
  pair.Open(kTicket);
  pair.SendAll(kTicket);
  pair.Commit(kTicket);
}

void RequireArrived(CorePair& pair) {
  const auto* arrived = CoreCluster::Find<HandoffArrived>(pair.sink);
  REQUIRE(arrived != nullptr);
  CHECK(arrived->record.first_token == 42);
  for (int32_t i = 0; i < kKvPages; ++i)
    CHECK(SamePage(pair.source.pool, i, pair.sink.pool, arrived->pages[size_t(i)]));
  pair.RequireQuiet();
}

TEST_CASE("with MACs handoffs arrive as without, over broken connections, too") {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    const auto pair = PairOf(kNobody, seed);
    uint64_t n_signed = 0, n_chunks = 0;
    pair->source.tap.on_announce = [&](TappedLink::Announced* chunk) {
      const std::string_view bytes(reinterpret_cast<const char*>(chunk->header.data()),
                                   chunk->header.size());
      n_signed += wire::DecodeChunkHeader(bytes)->number != 0;
      ++n_chunks;
    };
    Begin(*pair);
    for (uint64_t i = 0; i < 3 * seed; ++i) pair->cluster.Step();
    if (seed % 2 == 0) pair->cluster.CutConnections(pair->source);
    pair->cluster.RunUntilIdle(10'000'000);
    RequireArrived(*pair);
    CHECK(n_chunks > 2);
    CHECK(n_signed == n_chunks);
    CHECK(Refused(pair->sink.core->counters()) == 0);
  }
}

// One byte of the first chunk, and its CRC.
void ChangeAChunk(CorePair& pair, std::vector<std::byte>* buffer) {
  pair.source.tap.on_announce = [buffer](TappedLink::Announced* chunk) {
    if (!buffer->empty()) return;
    const std::string_view bytes(reinterpret_cast<const char*>(chunk->header.data()),
                                 chunk->header.size());
    wire::ChunkHeader header = *wire::DecodeChunkHeader(bytes);
    buffer->assign(chunk->payload, chunk->payload + chunk->length);
    buffer->front() ^= std::byte{1};
    header.payload_crc = ExtendCrc32c(wire::IdentityCrc(header), buffer->data(), buffer->size());
    chunk->header = wire::Encode(header);
    chunk->payload = buffer->data();
  };
}

TEST_CASE("a chunk that somebody changed is taken without a MAC, and refused with one") {
  std::vector<std::byte> buffer;
  const auto open = PairOf(kAll);
  ChangeAChunk(*open, &buffer);
  Begin(*open);
  open->cluster.RunUntilIdle(10'000'000);
  CHECK(Refused(open->sink.core->counters()) == 0);

  buffer.clear();
  const auto guarded = PairOf(kNobody);
  ChangeAChunk(*guarded, &buffer);
  Begin(*guarded);
  guarded->cluster.RunUntilIdle(10'000'000);
  CHECK(Refused(guarded->sink.core->counters(), ChunkRefusal::kMac) == 1);
  CHECK(guarded->source.core->counters().resent_chunks == 1);
  RequireArrived(*guarded);
}

// The first COMMIT tells another token.
void ChangeACommit(CorePair& pair, bool is_sealed) {
  auto changed = std::make_shared<bool>(false);
  pair.source.tap.on_send = [changed, is_sealed](std::string* bytes) {
    const size_t n = bytes->size() - (is_sealed ? std::min(bytes->size(), Session::kSealBytes) : 0);
    const absl::StatusOr<wire::Message> message = wire::Decode(bytes->substr(0, n));
    const auto* commit = message.ok() ? std::get_if<wire::Commit>(&*message) : nullptr;
    if (commit == nullptr || std::exchange(*changed, true)) return;
    wire::Commit other = *commit;
    ++other.first_token;
    *bytes = wire::Encode(other) + bytes->substr(n);
  };
}

TEST_CASE("a message that somebody changed is taken without a MAC, and with one it is sent again") {
  const auto open = PairOf(kAll);
  ChangeACommit(*open, false);
  Begin(*open);
  open->cluster.RunUntilIdle(10'000'000);
  const auto* arrived = CoreCluster::Find<HandoffArrived>(open->sink);
  REQUIRE(arrived != nullptr);
  CHECK(arrived->record.first_token == 43);

  const auto guarded = PairOf(kNobody);
  ChangeACommit(*guarded, true);
  Begin(*guarded);
  guarded->cluster.RunUntilIdle(10'000'000);
  CHECK(Refused(guarded->sink.core->counters(), PeerRefusal::kForged) == 1);
  CHECK(guarded->source.core->counters().handoffs_resumed == 1);
  RequireArrived(*guarded);
}

TEST_CASE("a message that comes again on its connection is counted and does nothing") {
  const auto pair = PairOf(kNobody);
  pair->cluster.network.set_faults({.duplicate_message = 1});
  Begin(*pair);
  pair->cluster.RunUntilIdle(10'000'000);
  CHECK(Refused(pair->sink.core->counters(), PeerRefusal::kRepeated) >= 3);  // OPEN, DONE, COMMIT
  RequireArrived(*pair);
}

TEST_CASE(
    "a ticket that is expired or from elsewhere is refused by name, and nobody else notices") {
  const auto ended_with = [](TicketRefusal why, absl::StatusCode code, const char* text,
                             const auto& change) {
    INFO(NameOf(why));
    const auto pair = PairOf(kAll);
    Begin(*pair);
    for (int i = 0; i < 25; ++i) pair->cluster.Step();
    Ticket ticket = MakeTicket(2, 2, 2, 3);
    change(ticket, pair->cluster.now_us);
    pair->Open(ticket);
    pair->cluster.RunUntilIdle(10'000'000);
    CHECK(Refused(pair->sink.core->counters(), why) == 1);
    const HandoffEnded* refused = nullptr;
    for (const TransferEvent& event : pair->source.events)
      if (const auto* ended = std::get_if<HandoffEnded>(&event))
        if (ended->ticket_id == ticket.id) refused = ended;
    REQUIRE(refused != nullptr);
    CHECK(refused->status.code() == code);
    CHECK(refused->status.message().find(text) != absl::string_view::npos);
    RequireArrived(*pair);
  };
  using enum absl::StatusCode;
  ended_with(TicketRefusal::kExpired, kDeadlineExceeded, "expired", [](Ticket& t, int64_t now_us) {
    t.expires_us = now_us;
    SignTicket(kTestKey, t);
  });
  ended_with(TicketRefusal::kOtherSource, kPermissionDenied, "another source",
             [](Ticket& t, int64_t) { t = From(9, t); });
  ended_with(TicketRefusal::kOtherSink, kFailedPrecondition, "another worker",
             [](Ticket& t, int64_t) { t = MakeTicket(2, 3, 2, 3); });
  ended_with(TicketRefusal::kOtherKey, kPermissionDenied, "another cluster key",
             [](Ticket& t, int64_t) { SignTicket(ClusterKey{7}, t); });
  ended_with(TicketRefusal::kSignature, kPermissionDenied, "signature",
             [](Ticket& t, int64_t) { ++t.promise_pages; });
  ended_with(TicketRefusal::kSignature, kPermissionDenied, "signature",
             [](Ticket& t, int64_t) { --t.expires_us; });
  ended_with(TicketRefusal::kMalformed, kInvalidArgument, "range", [](Ticket& t, int64_t) {
    t.first_page = INT32_MAX;
    SignTicket(kTestKey, t);
  });
}

TEST_CASE("an ended ticket is good once, also when its end is long forgotten") {
  Tombstones ended;
  const absl::Status cancelled = absl::CancelledError("x");
  ended.Add({1, 1}, 1, absl::OkStatus(), 500);
  ended.Add({2, 2}, 1, cancelled);  // never opened
  CHECK(ended.forgotten_us() == 0);
  for (uint64_t n = 0; n < Tombstones::kMaxEntries; ++n) {
    CHECK(ended.forgotten_us() <= 500);
    ended.Add({3, n}, 1, cancelled, 1'000);
  }
  CHECK(ended.Find({1, 1}, 1) == nullptr);
  CHECK(ended.forgotten_us() == 500);  // younger tickets are taken
}

// The limit is for the first OPEN; a handoff that has begun has the times of its states.
TEST_CASE("a handoff whose ticket expires under it goes on, over another connection, too") {
  const auto pair = PairOf(kAll);
  Ticket ticket = kTicket;
  ticket.expires_us = pair->cluster.now_us + 500'000;
  SignTicket(kTestKey, ticket);
  pair->Open(ticket);
  pair->SendAll(ticket);
  pair->cluster.RunUntilQuiet();
  pair->cluster.now_us += 1'000'000;
  pair->cluster.CutConnections(pair->source);
  pair->cluster.RunUntilQuiet();
  pair->Commit(ticket);
  pair->cluster.RunUntilIdle(10'000'000);
  CHECK(pair->source.core->counters().handoffs_resumed == 1);
  RequireArrived(*pair);
}

}  // namespace
}  // namespace baton
