#include "kvtransfer/protocol/cells.h"

#include <random>
#include <set>

#include "kvtransfer/protocol/chunk_slab.h"
#include "kvtransfer/protocol/crc32c.h"
#include "kvtransfer/protocol/receive_pool.h"
#include "kvtransfer/protocol/tombstones.h"
#include "tests/kvtransfer/recording_link.h"

#include <catch2/catch.hpp>

namespace baton {
namespace {

TEST_CASE("chunks cover every cell once, none is too long, and they gather what they scatter") {
  std::mt19937 random(3);
  for (int round = 0; round < 300; ++round) {
    std::vector<int64_t> planes;
    for (size_t n = random() % 6 + 1; n > 0; --n) planes.push_back(random() % 300 + 1);
    TestPool from(20, planes, random() % 2 * 7), to(20, planes, random() % 2 * 5);
    for (int32_t page = 0; page < 20; ++page) from.FillPage(page, random());
    SendCells cells{.ticket_id = {},
                    .plane = static_cast<int32_t>(random() % planes.size()),
                    .first_page = static_cast<int32_t>(random() % 5),
                    .pages = {}};
    cells.n_planes = static_cast<int32_t>(random() % (planes.size() - size_t(cells.plane)) + 1);
    for (size_t n = random() % 12; n > 0; --n) cells.pages.push_back(int32_t(random() % 20));
    const int64_t chunk_bytes = LargestPlane(from.view()) + random() % 900;

    ChunkCutter cutter(cells);
    std::set<std::pair<int32_t, int32_t>> covered;
    while (const auto cut = cutter.Next(from.view(), chunk_bytes)) {
      const int64_t bytes = RectBytes(from.view(), cut->rect);
      REQUIRE(bytes > 0);
      REQUIRE(bytes <= chunk_bytes);
      REQUIRE(cut->page_ids.size() == size_t(cut->rect.n_pages));
      std::vector<std::byte> chunk(static_cast<size_t>(bytes));
      const uint32_t crc = GatherCells(from.view(), cut->rect, cut->page_ids, chunk.data(), 0);
      REQUIRE(crc == Crc32c(chunk.data(), chunk.size()));
      if (const std::byte* direct = DirectExtent(from.view(), cut->rect, cut->page_ids))
        REQUIRE(std::memcmp(direct, chunk.data(), chunk.size()) == 0);
      std::vector<int32_t> to_pages;
      for (int32_t i = 0; i < cut->rect.n_pages; ++i)
        to_pages.push_back(cut->rect.first_page + i - cells.first_page);
      ScatterCells(to.view(), cut->rect, to_pages, chunk.data());
      for (int32_t i = 0; i < cut->rect.n_pages; ++i)
        for (int32_t p = 0; p < cut->rect.n_planes; ++p)
          REQUIRE(covered.emplace(cut->rect.first_page + i, cut->rect.plane + p).second);
    }
    REQUIRE(cutter.finished());
    REQUIRE(covered.size() == cells.pages.size() * size_t(cells.n_planes));
    for (size_t i = 0; i < cells.pages.size(); ++i) {
      for (int32_t p = cells.plane; p < cells.plane + cells.n_planes; ++p) {
        const auto a = from.cell(cells.pages[i], p), b = to.cell(int32_t(i), p);
        REQUIRE(std::memcmp(a.data(), b.data(), a.size()) == 0);
      }
    }
  }
}

TEST_CASE("one cell, and neighbouring planes of one page, travel without a copy") {
  TestPool close(4, {64, 32, 64}), gapped(4, {64, 32, 64}, 8);
  const std::vector<int32_t> one = {2}, two = {2, 3};
  CHECK(DirectExtent(close.view(), {0, 3, 0, 1}, one) == close.page(2).data());
  CHECK(DirectExtent(gapped.view(), {1, 1, 0, 1}, one) == gapped.cell(2, 1).data());
  CHECK(DirectExtent(gapped.view(), {0, 2, 0, 1}, one) == nullptr);
  CHECK(DirectExtent(close.view(), {0, 1, 0, 2}, two) == nullptr);
}

TEST_CASE("the receive pool promises counts and binds ids") {
  ReceivePool receive_pool;
  receive_pool.Lend({1, 2, 3, 4}, 6);
  receive_pool.Lend({5}, 7);
  receive_pool.Promise(3);
  CHECK(receive_pool.free_pages() == 2);
  uint64_t after = 0;
  std::set<int32_t> seen = {receive_pool.Bind(&after), receive_pool.Bind(&after)};
  CHECK(after == 7);
  CHECK(receive_pool.in_pool() == 3);
  CHECK(receive_pool.owed() == 1);
  CHECK(receive_pool.free_pages() == 2);
  CHECK(receive_pool.Reclaim(10).size() == 2);
  CHECK(receive_pool.free_pages() == 0);
  receive_pool.Release(1);
  for (const int32_t page : receive_pool.Reclaim(10)) seen.insert(page);
  CHECK(receive_pool.in_pool() == 0);
  CHECK(seen.size() == 3);
  CHECK(receive_pool.Reclaim(-1).empty());
}

TEST_CASE("slots of the slab are distinct, aligned and reused") {
  RecordingLink link;
  HostCopier copier({});
  ChunkSlab slab(5'000, 3, &copier, &link);
  std::byte* a = slab.Take();
  std::byte* b = slab.Take();
  std::byte* c = slab.Take();
  CHECK(slab.Take() == nullptr);
  CHECK(std::set<std::byte*>{a, b, c}.size() == 3);
  CHECK(reinterpret_cast<uintptr_t>(a) % 4096 == 0);
  slab.Return(b);
  CHECK(slab.Take() == b);
}

TEST_CASE("tombstones keep the first outcome of an epoch, the latest epoch, and a bound") {
  Tombstones tombstones;
  const TicketId id{1, 2};
  CHECK(tombstones.Find(id, 1) == nullptr);
  tombstones.Add(id, 2, absl::OkStatus());
  tombstones.Add(id, 2, absl::CancelledError("late"));
  tombstones.Add(id, 1, absl::CancelledError("old"));
  REQUIRE(tombstones.Find(id, 1) != nullptr);
  CHECK(tombstones.Find(id, 2)->status.ok());
  CHECK(tombstones.Find(id, 3) == nullptr);
  tombstones.Add(id, 3, absl::CancelledError("new"));
  CHECK_FALSE(tombstones.Find(id, 3)->status.ok());
  for (uint64_t i = 0; i < Tombstones::kMaxEntries; ++i)
    tombstones.Add({9, i}, 1, absl::OkStatus());
  CHECK(tombstones.Find(id, 3) == nullptr);
  CHECK(tombstones.Find({9, 0}, 1) != nullptr);
}

}  // namespace
}  // namespace baton
