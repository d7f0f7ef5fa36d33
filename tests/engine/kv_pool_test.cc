// Pages: the place of their bytes, one holder each, and zeros at the start.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>
#include <numeric>
#include <random>

#include "engine/kv/kv_layout.h"
#include "engine/kv/kv_pool.h"
#include "engine/model/model_desc.h"
#include "engine/step/step.h"

namespace baton {
namespace {

ModelDesc Model(int head_dim) {
  ModelDesc model;
  model.n_layers = 3;
  model.n_kv_heads = 2;
  model.head_dim = head_dim;
  return model;
}

std::unique_ptr<KvPool> MakePool(int n_pages) {
  return *KvPool::Create(KvLayout::For(Model(16), KvType::kBf16, 16), n_pages);
}

}  // namespace

TEST_CASE("the blocks of a page lie one after the other without overlap") {
  for (const int head_dim : {16, 64, 80, 128}) {
    for (const int page_tokens : {16, 32, 64}) {
      for (const KvType type : {KvType::kBf16, KvType::kInt8, KvType::kFp32}) {
        const KvLayout layout = KvLayout::For(Model(head_dim), type, page_tokens);
        CHECK(layout.shape(0).key_dim_padded() % 32 == 0);
        const int groups = page_tokens / KvLayout::kGroupTokens;
        CHECK(layout.page_bytes % 64 == 0);
        int64_t end = 0;
        for (int layer = 0; layer < 3; ++layer) {
          CHECK(layout.planes[layer].offset == end);
          int64_t in_plane = 0;
          for (int head = 0; head < 2; ++head) {
            CHECK(layout.KOffset(layer, head) == in_plane);
            in_plane += groups * layout.KGroupBytes(layer);
          }
          for (int head = 0; head < 2; ++head) {
            CHECK(layout.VOffset(layer, head) == in_plane);
            in_plane += groups * layout.VGroupBytes(layer);
          }
          CHECK(layout.planes[layer].bytes == in_plane);
          end += in_plane;
        }
        CHECK(layout.page_bytes >= end);
        CHECK(layout.page_bytes < end + 64);
      }
    }
  }
  const KvLayout layout = KvLayout::For(Model(64), KvType::kBf16, 64);
  CHECK(layout.KGroupBytes(0) == 16 * 64 * 2);
  const KvLayout int8 = KvLayout::For(Model(80), KvType::kInt8, 64);  // keys are not padded
  CHECK(int8.KGroupBytes(0) == 16 * (4 + 80));
  CHECK(int8.VGroupBytes(0) == 16 * (4 + 80));
  CHECK(layout.PagesFor(0) == 0);
  CHECK(layout.PagesFor(1) == 1);
  CHECK(layout.PagesFor(64) == 1);
  CHECK(layout.PagesFor(65) == 2);
}

TEST_CASE("layout ids tell apart what must not be mixed") {
  const std::string id = KvLayout::For(Model(64), KvType::kBf16, 64).layout_id();
  CHECK(id == KvLayout::For(Model(64), KvType::kBf16, 64).layout_id());
  CHECK(id != KvLayout::For(Model(64), KvType::kBf16, 32).layout_id());
  CHECK(id != KvLayout::For(Model(64), KvType::kFp32, 64).layout_id());
  CHECK(id != KvLayout::For(Model(64), KvType::kInt8, 64).layout_id());
  CHECK(id != KvLayout::For(Model(32), KvType::kBf16, 64).layout_id());
  const auto id_of = [](std::vector<KvShape> shapes) {
    return KvLayout::Of(std::move(shapes), KvType::kBf16, 64).layout_id();
  };
  const KvShape wide = {2, 64, 64}, narrow = {2, 32, 32}, latent = {1, 80, 64, true};
  CHECK(id == id_of({wide, wide, wide}));
  CHECK(id_of({wide, narrow, narrow}) != id_of({wide, wide, narrow}));
  CHECK(id_of({latent}) != id_of({{1, 80, 64, false}}));
}

TEST_CASE("layers of other widths, and latent ones, follow each other") {
  const KvLayout layout =
      KvLayout::Of({{2, 64, 64}, {1, 576, 512, true}, {1, 80, 48}, {4, 32, 32}}, KvType::kBf16, 32);
  const int64_t bytes[] = {2 * 32 * (64 + 64) * 2, 32 * 576 * 2, 32 * (96 + 48) * 2,
                           4 * 32 * (32 + 32) * 2};
  int64_t end = 0;
  for (int layer = 0; layer < layout.n_layers(); ++layer) {
    CHECK(layout.planes[layer].offset == end);
    CHECK(layout.planes[layer].bytes == bytes[layer]);
    end += bytes[layer];
  }
  CHECK(layout.page_bytes == end);
  CHECK(layout.VGroupBytes(1) == 0);
}

TEST_CASE("a GPU's rows are filled up to a multiple of 64 values, in keys and values alike") {
  const KvLayout layout = KvLayout::Of({{2, 16, 16}, {1, 80, 128}}, KvType::kBf16Rows, 32);
  CHECK(layout.planes[0].bytes == 2 * 32 * (64 + 64) * 2);
  CHECK(layout.planes[1].bytes == 32 * (128 + 128) * 2);
  CHECK(layout.planes[1].offset == layout.planes[0].bytes);
  CHECK(layout.KOffset(0, 1) == 32 * 64 * 2);      // keys of a head: a row of every token
  CHECK(layout.VOffset(0, 0) == 2 * 32 * 64 * 2);  // values behind the keys of all heads
  CHECK(layout.layout_id() ==
        "1xh2-k16-v16-1xh1-k80-v128-t32-bf16-rows64");  // exchanged with no other kind
}

TEST_CASE("a copy of a page has its bytes in all layers, also where these lie apart") {
  KvLayout layout = KvLayout::For(Model(16), KvType::kBf16, 16);
  if (GENERATE(false, true)) layout.SetWindows(std::vector<int>{0, 40, 40});
  const auto pool = *KvPool::Create(layout, 3);
  std::vector<int32_t> pages;
  REQUIRE(pool->Take(3, &pages));
  for (int layer = 0; layer < 3; ++layer)
    std::memset(pool->plane(pages[2], layer), 7 + layer,
                static_cast<size_t>(layout.planes[layer].bytes));
  CopyPage(*pool, pages[2], pages[0]);
  for (int layer = 0; layer < 3; ++layer)
    for (int64_t i = 0; i < layout.planes[layer].bytes; ++i) {
      REQUIRE(pool->plane(pages[0], layer)[i] == std::byte(7 + layer));
      REQUIRE(pool->plane(pages[1], layer)[i] == std::byte{0});
    }
  pool->Give(pages);
}

TEST_CASE("a page is zeros for every new owner") {
  const auto pool = MakePool(3);
  const size_t bytes = static_cast<size_t>(pool->layout().page_bytes);
  for (int round = 0; round < 3; ++round) {
    std::vector<int32_t> pages;
    REQUIRE(pool->Take(2, &pages));
    for (const int32_t id : pages) {
      CHECK(std::all_of(pool->plane(id, 0), pool->plane(id, 0) + bytes,
                        [](std::byte b) { return b == std::byte{0}; }));
      std::memset(pool->plane(id, 0), 0xff, bytes);  // NaN as bf16 and as fp32
    }
    pool->Give(pages);
  }
}

TEST_CASE("taking is all or nothing") {
  const auto pool = MakePool(4);
  std::vector<int32_t> pages;
  CHECK_FALSE(pool->Take(5, &pages));
  CHECK(pages.empty());
  CHECK(pool->free() == 4);
  REQUIRE(pool->Take(4, &pages));
  CHECK(pool->held() == 4);
  CHECK_FALSE(pool->Take(1, &pages));
  CHECK(pool->Take(0, &pages));
  CHECK(pages.size() == 4);
  pool->Give(pages);
}

TEST_CASE("no page has two holders, none is lost") {
  const auto pool = MakePool(50);
  std::mt19937 random(7);
  std::vector<std::vector<int32_t>> holders(8);
  for (int event = 0; event < 5000; ++event) {
    std::vector<int32_t>& holder = holders[random() % holders.size()];
    if (random() % 2 == 0) {
      static_cast<void>(pool->Take(static_cast<int>(random() % 12), &holder));  // may be refused
    } else {
      const size_t n = holder.empty() ? 0 : random() % holder.size();
      pool->Give(std::span(holder).last(n));
      holder.resize(holder.size() - n);
    }
    std::vector<int32_t> all;
    for (const auto& pages : holders) all.insert(all.end(), pages.begin(), pages.end());
    REQUIRE(static_cast<int>(all.size()) == pool->held());
    REQUIRE(pool->held() + pool->free() == pool->total());
    std::sort(all.begin(), all.end());
    REQUIRE(std::adjacent_find(all.begin(), all.end()) == all.end());
  }
  for (const auto& pages : holders) pool->Give(pages);
  CHECK(pool->free() == 50);
}

TEST_CASE("a page with several holders is free when the last one gives it back") {
  const auto pool = MakePool(2);
  std::vector<int32_t> pages;
  REQUIRE(pool->Take(1, &pages));
  pool->Hold(pages);
  CHECK(pool->held() == 1);
  CHECK(pool->shared() == 1);
  pool->Give(pages);
  CHECK(pool->shared() == 0);
  CHECK(pool->free() == 1);
  pool->Give(pages);
  CHECK(pool->free() == 2);
}

TEST_CASE(
    "a cached page keeps its bytes until no other is left; the oldest, and the leaf, go first") {
  const auto pool = MakePool(4);
  std::vector<int32_t> evicted;
  pool->on_evict = [&](int32_t page) { evicted.push_back(page); };
  std::vector<int32_t> first, second, other;
  REQUIRE(pool->Take(2, &first));
  REQUIRE(pool->Take(1, &second));
  for (const int32_t page : {first[0], first[1], second[0]}) {
    std::memset(pool->plane(page, 0), page + 1, 1);
    pool->Cache(page);
  }
  pool->Give(first);
  pool->Give(second);
  CHECK(pool->free() == 4);
  CHECK(pool->held() == 0);
  CHECK(pool->cached() == 3);
  REQUIRE(pool->Take(2, &other));  // the uncached page, then the page given back first
  CHECK(evicted == std::vector<int32_t>{first[1]});
  pool->Hold(std::span(first).first(1));  // held again
  CHECK(*pool->plane(first[0], 0) == static_cast<std::byte>(first[0] + 1));
  CHECK(pool->cached() == 1);
  REQUIRE(pool->Take(1, &other));
  CHECK(evicted == std::vector<int32_t>{first[1], second[0]});
  CHECK(*pool->plane(second[0], 0) == std::byte{0});
  CHECK_FALSE(pool->Take(1, &other));
  pool->Give(other);
  pool->Give(std::span(first).first(1));
  CHECK(pool->cached() == 1);
}

TEST_CASE("a pool that cannot be is an error that says what to change") {
  const KvLayout layout = KvLayout::For(Model(64), KvType::kBf16, 64);
  const auto pool = KvPool::Create(layout, 2'000'000'000);
  REQUIRE_FALSE(pool.ok());
  CHECK(pool.status().message().find("fewer pages") != std::string::npos);
}

TEST_CASE("a step is the pieces that were added") {
  StepBuilder step;
  const std::vector<int32_t> prompt{5, 6, 7}, pages{9, 4}, one{8}, other{2};
  for (int round = 0; round < 2; ++round) {
    step.Clear();
    CHECK(step.n_tokens() == 0);
    CHECK(step.AddPiece(prompt, 30, pages) == 0);
    CHECK(step.AddPiece(one, 3, other) == 3);
    CHECK(step.WantLogits(2) == 0);
    CHECK(step.WantLogits(3) == 1);
    const StepBatch batch = step.batch();
    const auto is = [](std::span<const int32_t> values, std::vector<int32_t> expected) {
      return std::equal(values.begin(), values.end(), expected.begin(), expected.end());
    };
    CHECK(batch.n_tokens() == 4);
    CHECK(batch.n_pieces() == 2);
    CHECK(is(batch.tokens, {5, 6, 7, 8}));
    CHECK(is(batch.positions, {30, 31, 32, 3}));
    CHECK(is(batch.piece_begin, {0, 3, 4}));
    CHECK(is(batch.page_begin, {0, 2, 3}));
    CHECK(is(batch.pages, {9, 4, 2}));
    CHECK(is(batch.logit_rows, {2, 3}));
  }
}

}  // namespace baton
