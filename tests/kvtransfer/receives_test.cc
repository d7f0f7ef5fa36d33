// Receives alone: where a chunk is received, when it counts, and which chunks wait for a slot.
#include "kvtransfer/protocol/receives.h"

#include "kvtransfer/protocol/crc32c.h"
#include "tests/kvtransfer/recording_link.h"

#include <catch2/catch.hpp>

namespace baton {
namespace {

constexpr wire::Handoff kFirst{{1, 1}, 1}, kSecond{{2, 2}, 1};

// Planes of 60 and 40 bytes with a gap, so that only one plane lies in one piece.
struct Rig {
  Rig() : setup(MakeSetup(2, pool.view(), &link, /*n_slots=*/1)), receives(&setup) {
    payload.resize(100, std::byte{0x5a});
  }
  Receive Chunk(const wire::Handoff& handoff, uint32_t n_planes, AnnouncementId announcement) {
    wire::ChunkHeader header{.handoff = handoff,
                             .n_planes = n_planes,
                             .first_page = 1,
                             .n_pages = 1,
                             .length = n_planes == 1 ? 60u : 100u,
                             .chunk_seq = static_cast<uint32_t>(announcement)};
    header.payload_crc = ExtendCrc32c(wire::IdentityCrc(header), payload.data(), header.length);
    return {announcement, header, {RectOf(header), page_ids}};
  }
  // The bytes of the newest receive land.
  bool Land(bool wanted = true, bool ok = true) {
    const auto [announcement, operation, destination] = link.accepted.back();
    std::copy_n(payload.begin(), receives.header(operation).length, destination);
    return receives.Land({operation, ok}, wanted) == Receives::Landing::kInPlace;
  }

  TestPool pool{4, {60, 40}, /*gap=*/8};
  RecordingLink link;
  TransferSetup setup;
  Receives receives;
  const std::vector<int32_t> page_ids = {3};
  std::vector<std::byte> payload;
};

TEST_CASE("receives: bytes that lie in one piece land in the pool, others after a check") {
  Rig rig;
  rig.receives.Accept(rig.Chunk(kFirst, 1, 4));
  REQUIRE(rig.link.accepted.size() == 1);
  CHECK(rig.link.accepted[0].announcement == 4);
  CHECK(rig.link.accepted[0].destination == rig.pool.cell(3, 0).data());
  CHECK(rig.Land());
  rig.pool.FillCanary(3);
  rig.receives.Accept(rig.Chunk(kFirst, 2, 5));
  CHECK(rig.Land());
  for (const int32_t plane : {0, 1})
    for (const std::byte byte : rig.pool.cell(3, plane)) CHECK(byte == std::byte{0x5a});
  CHECK(rig.setup.counters.chunks_received == 2);
  CHECK(rig.setup.counters.bytes_received == 160);
  CHECK(rig.receives.size() == 0);
}

TEST_CASE("receives: what is damaged, lost or not wanted reaches no page through a slot") {
  Rig rig;
  rig.pool.FillCanary(3);
  Receive chunk = rig.Chunk(kFirst, 2, 5);
  rig.receives.Accept(chunk);
  CHECK_FALSE(rig.Land(/*wanted=*/false));
  rig.receives.Accept(chunk);
  CHECK_FALSE(rig.Land(/*wanted=*/true, /*ok=*/false));
  CHECK(Refused(rig.setup.counters) == 0);
  ++chunk.header.payload_crc;
  rig.receives.Accept(chunk);
  CHECK_FALSE(rig.Land());
  CHECK(Refused(rig.setup.counters, ChunkRefusal::kPayload) == 1);
  CHECK(rig.setup.counters.chunks_received == 0);
  CHECK(rig.pool.HasCanary(3));
}

TEST_CASE("receives: without a free slot a chunk is held, in order, until one ends") {
  Rig rig;
  for (const AnnouncementId id : {4, 5, 6}) rig.receives.Accept(rig.Chunk(kFirst, 2, id));
  rig.receives.Accept(rig.Chunk(kFirst, 1, 7));  // needs no slot
  REQUIRE(rig.link.accepted.size() == 2);
  CHECK(rig.link.accepted[1].announcement == 7);
  CHECK(rig.receives.size() == 4);
  rig.receives.PostHeld();  // the slot is in use
  CHECK(rig.link.accepted.size() == 2);
  rig.receives.Land({rig.link.accepted[0].operation, true}, true);
  CHECK(rig.link.accepted.size() == 2);
  rig.receives.PostHeld();
  REQUIRE(rig.link.accepted.size() == 3);
  CHECK(rig.link.accepted[2].announcement == 5);
}

TEST_CASE("receives: held chunks of a handoff that is over are refused, and no others") {
  Rig rig;
  rig.receives.Accept(rig.Chunk(kFirst, 2, 4));
  rig.receives.Accept(rig.Chunk(kFirst, 2, 5));
  rig.receives.Accept(rig.Chunk(kSecond, 2, 6));
  rig.receives.Accept(rig.Chunk(kFirst, 2, 7));
  const std::vector<wire::ChunkHeader> refused = rig.receives.RefuseHeld(kFirst);
  REQUIRE(refused.size() == 2);
  CHECK(refused[0].chunk_seq == 5);
  CHECK(rig.link.refused == std::vector<AnnouncementId>{5, 7});
  CHECK(rig.receives.size() == 2);  // one is posted, one of the other handoff is held
}

}  // namespace
}  // namespace baton
