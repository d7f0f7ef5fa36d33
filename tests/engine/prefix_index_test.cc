// The index and the holders of its pages against a model that knows the content of every page, so
// that a page found under other tokens, lost, without holder or with too many holders is detected
// at once.
#include "engine/kv/prefix_index.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <random>
#include <set>

#include "tests/support/hash_backend.h"

namespace baton {
namespace {

constexpr int kPageTokens = 4;

// The content of a page: the salt and every token from the beginning.
using Content = std::pair<uint64_t, std::vector<int32_t>>;

class Model {
 public:
  Model(int n_pages, uint64_t seed, PrefixIndex::Hash hash)
      : random_(seed),
        pool_(std::move(*KvPool::Create(HashBackend(kPageTokens).kv_layout(), n_pages))),
        index_(std::make_unique<PrefixIndex>(pool_.get(), ClusterKey{}, hash)) {
    // Runs with the index's own handler: an evicted page has no content any more.
    pool_->on_evict = [this, forget = pool_->on_evict](int32_t page) {
      contents_.erase(page);
      forget(page);
    };
  }
  ~Model() {
    while (!sequences_.empty()) End(0);
    REQUIRE(pool_->held() == 0);
  }

  void RunOneEvent() {
    switch (Pick(3)) {
      case 0:
        Start();
        break;
      case 1:
        Compute();
        break;
      case 2:
        if (!sequences_.empty()) End(Pick(static_cast<int>(sequences_.size())));
        break;
    }
    Check();
  }
  int found() const { return found_; }
  PrefixIndex& index() { return *index_; }

 private:
  struct Sequence {
    uint64_t salt = 0;
    std::vector<int32_t> tokens;
    std::vector<int32_t> pages;
    PrefixChain chain;
  };
  int Pick(int n) { return static_cast<int>(random_() % static_cast<uint64_t>(n)); }
  Content ContentOf(const Sequence& s, int page) const {
    return {s.salt, {s.tokens.begin(), s.tokens.begin() + (page + 1) * kPageTokens}};
  }

  // Few tokens and salts make equal beginnings frequent.
  void Start() {
    Sequence s;
    s.salt = static_cast<uint64_t>(Pick(2));
    for (int n = (1 + Pick(6)) * kPageTokens; n > 0; --n)
      s.tokens.push_back(n % kPageTokens == 0 ? Pick(2) : 7);
    s.chain = PrefixChain::Beginning(s.salt, RopeRange::kShort);
    index_->Hold(s.tokens, &s.chain, &s.pages);
    REQUIRE(s.chain.pages == static_cast<int>(s.pages.size()));
    for (int page = 0; page < s.chain.pages; ++page)
      REQUIRE(contents_.at(s.pages[page]) == ContentOf(s, page));
    found_ += s.chain.pages;
    const int missing = static_cast<int>(s.tokens.size()) / kPageTokens - s.chain.pages;
    std::vector<int32_t> fresh;
    if (!pool_->Take(missing, &fresh)) {
      pool_->Give(s.pages);
      return;
    }
    for (const int32_t page : fresh) REQUIRE_FALSE(contents_.contains(page));
    s.pages.insert(s.pages.end(), fresh.begin(), fresh.end());
    sequences_.push_back(std::move(s));
  }
  // Computes and enters the next page of some sequence.
  void Compute() {
    if (sequences_.empty()) return;
    Sequence& s = sequences_[Pick(static_cast<int>(sequences_.size()))];
    if (s.chain.pages == static_cast<int>(s.pages.size())) return;
    const int page = s.chain.pages;
    const int before = index_->n_entries();
    index_->Enter(std::span(s.tokens).subspan(static_cast<size_t>(page) * kPageTokens, kPageTokens),
                  s.pages[page], &s.chain);
    REQUIRE(s.chain.pages == page + 1);
    if (index_->n_entries() > before) contents_[s.pages[page]] = ContentOf(s, page);
  }
  void End(int i) {
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
      if (n > 1) REQUIRE(contents_.contains(page));  // only computed pages are shared
    }
    REQUIRE(pool_->held() == static_cast<int>(holders.size()));
    REQUIRE(pool_->held() + pool_->shared() == n_holders);
    REQUIRE(pool_->held() + pool_->free() == pool_->total());
    REQUIRE(index_->n_entries() == static_cast<int>(contents_.size()));
    int idle = 0;
    for (const auto& [page, content] : contents_) idle += !holders.contains(page);
    REQUIRE(pool_->cached() == idle);
    // The log tells the names of all entries; equal contents have equal names.
    while (!index_->log().is_told()) {
      const CachedPages told = index_->log().Take();
      for (const PageName& name : told.lost) REQUIRE(told_.erase(name) == 1);
      told_.insert(told.entered.begin(), told.entered.end());
    }
    const std::vector<PageName> names = index_->Names();
    REQUIRE(std::equal(told_.begin(), told_.end(), names.begin(), names.end()));
    std::set<Content> different;
    for (const auto& [page, content] : contents_) different.insert(content);
    REQUIRE(names.size() == different.size());
  }

  std::mt19937_64 random_;
  std::unique_ptr<KvPool> pool_;
  std::unique_ptr<PrefixIndex> index_;
  std::vector<Sequence> sequences_;
  std::map<int32_t, Content> contents_;  // key: entered page
  std::set<PageName> told_;
  int found_ = 0;
};

TEST_CASE("whatever happens, what is found is what was entered, and no page is lost") {
  int found = 0;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    CAPTURE(seed);
    Model model(6 + static_cast<int>(seed % 20), seed, PrefixIndex::DefaultHash);
    for (int event = 0; event < 1500; ++event) model.RunOneEvent();
    found += model.found();
  }
  REQUIRE(found > 5000);
}

TEST_CASE("a hash that says the same of everything costs hits, never a wrong page") {
  const auto three = [](uint64_t, uint64_t, std::span<const int32_t> tokens) {
    return static_cast<uint64_t>(tokens[0] % 3);
  };
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    CAPTURE(seed);
    Model model(20, seed, three);
    for (int event = 0; event < 1500; ++event) model.RunOneEvent();
    REQUIRE(model.found() > 0);
    REQUIRE(model.index().n_entries() <= 3);
  }
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
