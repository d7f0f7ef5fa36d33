// Pages of decoded sequences are found in the worker's prefix index.
#include "tests/decode_worker/decode_batch_fixture.h"

namespace baton {
namespace {

constexpr int kPrompt = 6, kTokens = 10;  // the last one's KV is not written: 15 tokens

// Lets sequence 1 begin, under salt 7. Returns its tokens so far.
std::vector<int32_t> Begin(DecodeBatchFixture* b) {
  DecodeRequest request = DecodeBatchFixture::Request(1, kPrompt, kTokens);
  request.cache_salt = 7;
  b->batch->Expect(request, b->now);
  HandoffArrived kv = b->Kv(1, kPrompt, 2);
  std::vector<int32_t> tokens = DecodeBatchFixture::Prompt(1, kPrompt);
  tokens.push_back(kv.record.first_token);
  b->Arrive(std::move(kv));
  return tokens;
}

// Runs it to its end, and appends the further tokens.
void Finish(DecodeBatchFixture* b, std::vector<int32_t>* tokens) {
  while (b->Step() > 0) {
  }
  tokens->insert(tokens->end(), b->tokens[1].begin(), b->tokens[1].end());
}

TEST_CASE("full pages of a sequence are found afterwards, generated tokens included") {
  const std::vector<int> windows = GENERATE(std::vector<int>{}, std::vector<int>{0, 5, 5});
  DecodeBatchFixture b(8, 40, nullptr, windows);
  std::vector<int32_t> all = Begin(&b);
  const auto found = [&](uint64_t salt) {
    PrefixChain chain = PrefixChain::Beginning(salt, RopeRange::kShort);
    std::vector<int32_t> pages;
    b.index->Hold(all, &chain, &pages);
    return pages;
  };
  std::vector<int32_t> pages = found(7);
  CHECK(pages.size() == 1);  // at once; the second page is not full
  b.pool->Give(pages);
  Finish(&b, &all);
  b.CheckExact(1, kPrompt, kTokens);
  CHECK(b.pool->held() == 0);
  CHECK(found(0).empty());
  pages = found(7);
  // Planes behind a window are gone, unless pages are plenty; a page without them is not found.
  REQUIRE(pages.size() == 3);
  // The pages have the KV: the last page's tokens go on as the row did.
  REQUIRE(b.pool->Take(1, &pages));
  b.builder.Clear();
  b.builder.WantLogits(b.builder.AddPiece(std::span(all).subspan(12, 3), 12, pages) + 2);
  b.backend.Begin(b.builder.batch());
  b.backend.RunLayers(0, 3);
  CHECK(b.sampler.Sample(b.backend.logits(0), {.temperature = 0}, 15).token == all[15]);
  b.pool->Give(pages);
}

TEST_CASE("pages of an expected prompt that are here are lent with their KV") {
  DecodeBatchFixture b;
  std::vector<int32_t> all = Begin(&b);
  Finish(&b, &all);
  REQUIRE(b.held.size() == 1);
  CHECK(b.held.front().pages.empty());  // told as well: the promise may wait for it

  RequestId id = 1;
  const auto held_for = [&](uint64_t salt, bool is_local, int n_tokens = kPrompt + kTokens) {
    b.held.clear();
    DecodeRequest next = DecodeBatchFixture::Request(++id, 1, kTokens);
    next.ticket_id = {.high = 3, .low = 4};
    next.tokens.assign(all.begin(), all.begin() + n_tokens);
    next.cache_salt = salt;
    next.is_local = is_local;
    b.batch->Expect(next, b.now);
    b.batch->Cancel(id, 1);
    b.Collect();
    for (const LendHeld& held : b.held) {
      CHECK(held.ticket_id == next.ticket_id);
      CHECK(b.pool->held() == static_cast<int>(held.pages.size()));
      b.pool->Give(held.pages);
    }
    b.n_lent = 0;
    return b.held.empty() ? -1 : static_cast<int>(b.held.front().pages.size());
  };
  CHECK(held_for(7, false) == 3);  // 15 of 16 tokens have KV
  CHECK(held_for(8, false) == 0);
  CHECK(held_for(7, true) == -1);  // its prompt looks for itself
  // A copy of the last page, which is not full, so that the row writes behind it.
  CHECK(held_for(7, false, 15) == 4);
  CHECK(held_for(7, false, 13) == 4);
  CHECK(held_for(8, false, 15) == 0);
  CHECK(b.pool->held() == 0);
  CHECK(held_for(7, false, 12) == 3);
}

}  // namespace
}  // namespace baton
