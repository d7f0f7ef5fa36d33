// The index and the holders of its pages against a model that knows the content of every page, so
// that a page found under other tokens, lost, without holder or with too many holders is detected
// at once.
#include "engine/kv/prefix_index.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>
#include <map>
#include <random>
#include <set>

#include "absl/hash/hash.h"
#include "absl/types/span.h"
#include "tests/support/hash_backend.h"

namespace baton {
namespace {

constexpr int kPageTokens = 4;
constexpr RouterId kRouter = 7;

// A value for the KV of a token, which follows from its salt and all tokens up to it.
uint64_t KvOf(uint64_t salt, std::span<const int32_t> tokens) {
  return absl::HashOf(salt, absl::MakeSpan(tokens.data(), tokens.size()));
}

class Model {
 public:
  Model(int n_pages, uint64_t seed)
      : random_(seed),
        pool_(std::move(*KvPool::Create(HashBackend(kPageTokens).kv_layout(), n_pages))),
        index_(std::make_unique<PrefixIndex>(pool_.get())) {
    index_->log().Restart(kRouter);
    // Runs with the index's own handler.
    pool_->on_evict = [this, forget = pool_->on_evict](int32_t page) {
      REQUIRE(entered_.erase(page) == 1);
      forget(page);
    };
  }
  ~Model() {
    while (!sequences_.empty()) End(0);
    REQUIRE(pool_->held() == 0);
  }

  void RunOneEvent() {
    switch (Pick(4)) {
      case 0:
        Start();
        break;
      case 1:
        if (!sequences_.empty()) End(Pick(static_cast<int>(sequences_.size())));
        break;
      default:
        Compute();
    }
    Check();
  }
  int found() const { return found_; }    // pages
  int copied() const { return copied_; }  // tokens

 private:
  struct Sequence {
    uint64_t salt = 0;
    std::vector<int32_t> tokens;
    std::vector<int32_t> pages;
    PrefixChain chain;
    int done = 0;  // tokens with KV
  };
  int Pick(int n) { return static_cast<int>(random_() % static_cast<uint64_t>(n)); }
  std::byte* SlotOf(const Sequence& s, int token) const {
    return pool_->plane(s.pages[token / kPageTokens], 0) + token % kPageTokens * sizeof(uint64_t);
  }
  void Write(const Sequence& s, int token) {
    const uint64_t kv = KvOf(s.salt, std::span(s.tokens).first(token + size_t{1}));
    std::memcpy(SlotOf(s, token), &kv, sizeof(kv));
  }
  void CheckKv(const Sequence& s) const {
    for (int token = 0; token < s.done; ++token) {
      uint64_t kv = 0;
      std::memcpy(&kv, SlotOf(s, token), sizeof(kv));
      REQUIRE(kv == KvOf(s.salt, std::span(s.tokens).first(token + size_t{1})));
    }
  }

  // Few tokens and salts make equal beginnings frequent.
  void Start() {
    Sequence s;
    s.salt = static_cast<uint64_t>(Pick(2));
    for (int n = 1 + Pick(6 * kPageTokens); n > 0; --n)
      s.tokens.push_back(n % kPageTokens == 0 ? Pick(2) : 7);
    s.chain = PrefixChain::Beginning(s.salt, RopeRange::kShort);
    const int n_there = index_->Count(s.tokens, s.chain);
    index_->Hold(s.tokens, &s.chain, &s.pages);
    REQUIRE(s.chain.pages == n_there);
    REQUIRE(s.chain.pages == static_cast<int>(s.pages.size()));
    s.done = s.chain.pages * kPageTokens;
    const auto rest = std::span(s.tokens).subspan(s.pages.size() * kPageTokens);
    const PrefixPart part = index_->TakeCopy(rest, s.chain, 1);
    if (part.n_tokens > 0) s.pages.push_back(part.page);
    s.done += part.n_tokens;
    found_ += s.chain.pages;
    copied_ += part.n_tokens;
    const int wanted = (static_cast<int>(s.tokens.size()) + kPageTokens - 1) / kPageTokens;
    std::vector<int32_t> fresh;
    if (!pool_->Take(wanted - static_cast<int>(s.pages.size()), &fresh)) {
      pool_->Give(s.pages);
      return;
    }
    for (const int32_t page : fresh) REQUIRE_FALSE(entered_.contains(page));
    s.pages.insert(s.pages.end(), fresh.begin(), fresh.end());
    CheckKv(s);
    sequences_.push_back(std::move(s));
  }
  // Computes some more tokens of a page of some sequence, and enters the page when it is full, and
  // sometimes before.
  void Compute() {
    if (sequences_.empty()) return;
    Sequence& s = sequences_[Pick(static_cast<int>(sequences_.size()))];
    const int begin = s.chain.pages * kPageTokens;
    const int end = std::min(begin + kPageTokens, static_cast<int>(s.tokens.size()));
    if (s.done == end) return;
    for (int n = 1 + Pick(end - s.done); n > 0; --n) Write(s, s.done++);
    const bool is_full = s.done == begin + kPageTokens;
    if (!is_full && Pick(2) == 0) return;
    const int32_t page = s.pages[static_cast<size_t>(s.chain.pages)];
    index_->Enter(std::span(s.tokens).subspan(begin, s.done - begin), page, &s.chain);
    REQUIRE(s.chain.pages * kPageTokens == begin + (is_full ? kPageTokens : 0));
    if (index_->SaltOf(page)) entered_.insert(page);
    REQUIRE(index_->SaltOf(page).value_or(s.salt) == s.salt);
  }
  void End(int i) {
    CheckKv(sequences_[i]);  // nobody else has written in it
    pool_->Give(sequences_[i].pages);
    sequences_.erase(sequences_.begin() + i);
  }
  void Check() {
    std::map<int32_t, int> holders;
    for (const Sequence& s : sequences_)
      for (const int32_t page : s.pages) ++holders[page];
    int n_holders = 0;
    for (const auto& [page, n] : holders) {
      n_holders += n;
      REQUIRE(pool_->is_held(page));
      if (n > 1) REQUIRE(entered_.contains(page));  // only computed pages are shared
    }
    REQUIRE(pool_->held() == static_cast<int>(holders.size()));
    REQUIRE(pool_->held() + pool_->shared() == n_holders);
    REQUIRE(pool_->held() + pool_->free() == pool_->total());
    REQUIRE(index_->n_entries() == static_cast<int>(entered_.size()));
    int idle = 0;
    for (const int32_t page : entered_) idle += !holders.contains(page);
    REQUIRE(pool_->cached() == idle);
    // The log tells the names of all full pages.
    while (!index_->log().is_told(kRouter)) {
      const CachedPages told = index_->log().Take(kRouter);
      for (const PageName& name : told.lost) REQUIRE(told_.erase(name) == 1);
      told_.insert(told.entered.begin(), told.entered.end());
    }
    const std::vector<PageName> names = index_->Names();
    REQUIRE(std::equal(told_.begin(), told_.end(), names.begin(), names.end()));
  }

  std::mt19937_64 random_;
  std::unique_ptr<KvPool> pool_;
  std::unique_ptr<PrefixIndex> index_;
  std::vector<Sequence> sequences_;
  std::set<int32_t> entered_;
  std::set<PageName> told_;
  int found_ = 0, copied_ = 0;
};

TEST_CASE("whatever happens, what is found is what was entered, and no page is lost") {
  int found = 0, copied = 0;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    CAPTURE(seed);
    Model model(6 + static_cast<int>(seed % 20), seed);
    for (int event = 0; event < 2500; ++event) model.RunOneEvent();
    found += model.found();
    copied += model.copied();
  }
  REQUIRE(found > 5000);
  REQUIRE(copied > 5000);
}

TEST_CASE("a page that is not full is found to be copied, by as many tokens as are the same") {
  const auto pool = std::move(*KvPool::Create(HashBackend(kPageTokens).kv_layout(), 5));
  PrefixIndex index(pool.get());
  index.log().Restart(kRouter);
  index.log().Take(kRouter);
  const auto begin = [](uint64_t salt, RopeRange range = RopeRange::kShort) {
    return PrefixChain::Beginning(salt, range);
  };
  std::vector<int32_t> pages;
  REQUIRE(pool->Take(2, &pages));
  const std::vector<int32_t> one{1, 2, 3, 4}, other{1, 2, 9, 9};
  PrefixChain chain = begin(5);
  index.Enter(std::span(one).first(2), pages[0], &chain);
  CHECK(chain.pages == 0);
  CHECK(index.log().is_told(kRouter));  // nothing: others know full pages
  const auto copied = [&](std::span<const int32_t> tokens, const PrefixChain& after,
                          int min_tokens = 1) {
    const PrefixPart copy = index.TakeCopy(tokens, after, min_tokens);
    if (copy.n_tokens == 0) return 0;
    CHECK(std::find(pages.begin(), pages.end(), copy.page) == pages.end());
    pool->Give(std::span(&copy.page, 1));
    return copy.n_tokens;
  };
  CHECK(copied(one, begin(5)) == 2);
  CHECK(copied(std::span(one).first(1), begin(5)) == 1);
  CHECK(copied(one, begin(5), 3) == 0);
  CHECK(copied(one, begin(6)) == 0);
  CHECK(copied(one, begin(5, RopeRange::kLong)) == 0);
  CHECK(copied(std::span(one).subspan(1), begin(5)) == 0);

  index.Enter(std::span(one).first(3), pages[0], &chain);  // has more now
  CHECK(index.n_entries() == 1);
  CHECK(copied(one, begin(5)) == 3);
  PrefixChain same = begin(5);
  index.Enter(std::span(one).first(3), pages[1], &same);  // there already
  CHECK(index.n_entries() == 1);
  index.Enter(std::span(other).first(3), pages[1], &same);
  CHECK(index.n_entries() == 2);
  CHECK(copied(one, begin(5)) == 3);
  CHECK(copied(other, begin(5)) == 3);
  CHECK(copied(std::vector<int32_t>{1, 2, 8}, begin(5)) == 2);
  index.Enter(one, pages[0], &chain);
  CHECK(chain.pages == 1);
  CHECK_FALSE(index.log().is_told(kRouter));
  CHECK(copied(std::span(one).first(3), begin(5)) == 3);
  CHECK(copied(one, chain) == 0);

  std::vector<int32_t> rest;
  REQUIRE(pool->Take(3, &rest));
  CHECK(copied(one, begin(5)) == 0);  // no page is free
  pool->Give(std::exchange(rest, {}));
  pool->Give(pages);
  REQUIRE(pool->Take(5, &rest));
  CHECK(index.n_entries() == 0);
  pool->Give(rest);
}

TEST_CASE("the beginning stays longest") {
  const auto pool = std::move(*KvPool::Create(HashBackend(kPageTokens).kv_layout(), 5));
  PrefixIndex index(pool.get());
  const std::vector<int32_t> tokens(3 * kPageTokens, 1);
  std::vector<int32_t> pages, other, found;
  REQUIRE(pool->Take(3, &pages));
  PrefixChain chain;
  for (const int32_t page : pages) index.Enter(std::span(tokens).first(kPageTokens), page, &chain);
  pool->Give(pages);
  for (int left = 3; left >= 0; --left) {
    CAPTURE(left);
    PrefixChain again;
    found.clear();
    index.Hold(tokens, &again, &found);
    REQUIRE(again.pages == left);
    REQUIRE(std::equal(found.begin(), found.end(), pages.begin()));
    pool->Give(found);
    REQUIRE(pool->Take(left == 3 ? 3 : left > 0 ? 1 : 0, &other));
  }
  pool->Give(other);
}

}  // namespace
}  // namespace baton
