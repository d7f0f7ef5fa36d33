// Pages lent to the link thread, kept back and reclaimed.
#include <catch2/catch.hpp>

#include "decode_worker/page_lender.h"

#include "tests/support/hash_backend.h"

namespace baton {
namespace {

constexpr int kPageTokens = 4;

// Appends the command to *out; true if another turn would lend more.
bool Balance(PageLender* lender, const LenderNeeds& needs, std::vector<TransferCommand>* out) {
  if (std::optional<TransferCommand> command = lender->Balance(needs))
    out->push_back(*std::move(command));
  return lender->lends_more();
}

TEST_CASE("eager lends all, in bounded portions; a prompt here gets pages back") {
  HashBackend backend(kPageTokens);
  auto pool = std::move(*KvPool::Create(backend.kv_layout(), 10));
  PageLender lender(pool.get(), true, 4);
  std::vector<TransferCommand> out;
  REQUIRE(Balance(&lender, {}, &out));
  REQUIRE(Balance(&lender, {}, &out));
  REQUIRE_FALSE(Balance(&lender, {}, &out));
  REQUIRE(lender.lent() == 10);
  REQUIRE(out.size() == 3);
  std::vector<int32_t> lent;
  for (const TransferCommand& command : out)
    for (const int32_t page : std::get<LendPages>(command).pages) lent.push_back(page);
  lender.On(ReceivePoolChanged{.free_pages = 10, .waiting = 0}, {});

  out.clear();
  REQUIRE_FALSE(Balance(&lender, {.wanted_pages = 6}, &out));  // a prompt waits for 6
  REQUIRE(std::get<ReclaimPages>(out.at(0)).n == 6);
  REQUIRE_FALSE(Balance(&lender, {.wanted_pages = 6}, &out));
  REQUIRE(out.size() == 1);  // asked once
  lender.On(PagesReturned{.pages = {lent.begin(), lent.begin() + 6}}, {});
  REQUIRE(pool->free() == 6);
  REQUIRE_FALSE(Balance(&lender, {.wanted_pages = 6},
                        &out));  // and the pages are not lent again before the prompt starts
  REQUIRE(out.size() == 1);

  HandoffArrived arrived;
  arrived.pages = {lent.begin() + 6, lent.begin() + 9};
  lender.On(arrived, {});
  REQUIRE(lender.lent() == 1);
  REQUIRE(std::get<ReclaimPages>(lender.Close().value()).n == 1);
  lender.On(PagesReturned{.pages = {lent[9]}}, {});
  REQUIRE_FALSE(Balance(&lender, {}, &out));
  REQUIRE(lender.lent() == 0);
  pool->Give(std::vector<int32_t>(lent.begin() + 6, lent.begin() + 9));
}

TEST_CASE("of cached pages, eager lends what expected sequences need, and a reserve") {
  HashBackend backend(kPageTokens);
  auto pool = std::move(*KvPool::Create(backend.kv_layout(), 64));
  pool->on_evict = [](int32_t) {};
  std::vector<int32_t> pages;
  REQUIRE(pool->Take(60, &pages));
  for (const int32_t page : pages) pool->Cache(page);
  pool->Give(pages);
  PageLender lender(pool.get(), true, 100);
  std::vector<TransferCommand> out;
  std::vector<int32_t> lent;
  const auto lend = [&](const LenderNeeds& needs) {
    out.clear();
    REQUIRE_FALSE(Balance(&lender, needs, &out));
    if (out.empty()) return 0;
    const std::vector<int32_t>& more = std::get<LendPages>(out.at(0)).pages;
    lent.insert(lent.end(), more.begin(), more.end());
    return static_cast<int>(more.size());
  };
  CHECK(lend({}) == 4);  // both: those not cached, and the reserve
  CHECK(pool->cached() == 60);
  CHECK(lend({}) == 0);
  CHECK(lend({.sequence_pages = 10}) == 10);  // and the reserve stays
  CHECK(pool->cached() == 50);
  CHECK(lend({.growth_pages = 48, .sequence_pages = 20}) == 2);  // rows come first
  lender.On(PagesReturned{.pages = lent}, {});
  CHECK(lender.lent() == 0);
}

TEST_CASE("what rows will grow into is kept back, and asked back ahead of need") {
  HashBackend backend(kPageTokens);
  auto pool = std::move(*KvPool::Create(backend.kv_layout(), 10));
  PageLender lender(pool.get(), true, 100);
  std::vector<TransferCommand> out;
  REQUIRE_FALSE(Balance(&lender, {.growth_pages = 3}, &out));
  std::vector<int32_t> lent = std::get<LendPages>(out.at(0)).pages;
  REQUIRE(lent.size() == 7);
  lender.On(ReceivePoolChanged{.free_pages = 7, .waiting = 0}, {});
  std::vector<int32_t> grown;
  REQUIRE(pool->Take(2, &grown));
  out.clear();
  REQUIRE_FALSE(Balance(&lender, {.growth_pages = 3}, &out));
  REQUIRE(std::get<ReclaimPages>(out.at(0)).n == 2);
  lender.On(PagesReturned{.pages = lent}, {});
  pool->Give(grown);
}

TEST_CASE("not eager, it lends what waiting sequences need and no more") {
  HashBackend backend(kPageTokens);
  auto pool = std::move(*KvPool::Create(backend.kv_layout(), 10));
  PageLender lender(pool.get(), false, 100);
  std::vector<TransferCommand> out;
  REQUIRE_FALSE(Balance(&lender, {.sequence_pages = 7}, &out));
  REQUIRE(out.empty());  // no request waits for room
  lender.On(ReceivePoolChanged{.free_pages = 0, .waiting = 1}, {});
  REQUIRE_FALSE(Balance(&lender, {.sequence_pages = 7}, &out));
  REQUIRE(std::get<LendPages>(out.at(0)).pages.size() == 7);
  REQUIRE_FALSE(Balance(&lender, {.sequence_pages = 7}, &out));
  REQUIRE(out.size() == 1);
  lender.On(PagesReturned{.pages = std::get<LendPages>(out[0]).pages}, {});
  REQUIRE(pool->held() == 0);
}

}  // namespace
}  // namespace baton
