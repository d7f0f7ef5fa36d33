// Sliding windows: pages that fell out of a window are given back and reused, and the logits do not
// change.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>
#include <map>
#include <random>
#include <set>

#include "engine/kv/kv_pool.h"
#include "engine/step/backend.h"
#include "tests/engine/sequence_runner.h"
#include "tests/support/temp_folder.h"

namespace baton {
namespace {

KvLayout Layout(const std::vector<int>& windows) {
  KvLayout layout =
      KvLayout::Of(std::vector<KvShape>(windows.size(), {2, 16, 16}), KvType::kBf16, 16);
  layout.SetWindows(windows);
  return layout;
}

std::unique_ptr<KvPool> MakePool(const std::vector<int>& windows, int n_pages) {
  return *KvPool::Create(Layout(windows), n_pages);
}

void Fill(const KvPool& pool, int32_t page, int layer, int value) {
  std::memset(pool.plane(page, layer), value,
              static_cast<size_t>(pool.layout().planes[static_cast<size_t>(layer)].bytes));
}

bool IsFilled(const KvPool& pool, int32_t page, int layer, int value) {
  const std::byte* plane = pool.plane(page, layer);
  return std::all_of(plane, plane + pool.layout().planes[static_cast<size_t>(layer)].bytes,
                     [&](std::byte b) { return b == static_cast<std::byte>(value); });
}

}  // namespace

TEST_CASE("which pages no query sees any more") {
  const KvLayout none = Layout({0, 0}), some = Layout({0, 20});
  CHECK(none.PagesPassed(1000) == 0);
  CHECK_FALSE(none.planes_apart());
  CHECK(some.planes_apart());
  CHECK_FALSE(Layout({20, 7}).planes_apart());
  CHECK(Layout({20, 7}).window == 20);
  for (int position = 0; position < 200; ++position) {
    int passed = 0;  // the query at `position` sees keys after position - 20
    while ((passed + 1) * 16 - 1 <= position - 20) ++passed;
    CHECK(some.PagesPassed(position) == passed);
  }
}

TEST_CASE("with windows in all layers a trimmed page is given back whole") {
  const auto pool = MakePool({32, 20}, 4);
  std::vector<int32_t> pages, more;
  REQUIRE(pool->Take(4, &pages));
  pool->Trim(std::span(pages).first(3));
  CHECK(pages[0] == kNoPage);
  CHECK(CountPages(pages) == 1);
  CHECK(pool->held() == 1);
  CHECK(pool->free() == 3);
  pool->Trim(pages);  // the rest; trimmed pages stay trimmed
  CHECK(pool->free() == 4);
  pool->Give(pages);
  CHECK(pool->frames() == nullptr);
}

TEST_CASE("with windows in some layers their planes are given back alone") {
  const auto pool = MakePool({0, 32, 32, 0}, 4);
  CHECK(pool->total() == 4);
  std::vector<int32_t> old, young;
  REQUIRE(pool->Take(4, &old));
  for (const int32_t page : old)
    for (int layer = 0; layer < 4; ++layer) Fill(*pool, page, layer, 1 + page);
  const std::vector<int32_t> ids = old;
  CHECK(pool->free() == 0);
  pool->Trim(std::span(old).first(3));
  CHECK(pool->held() == 4);
  CHECK(pool->free() == 1);  // six planes, four of which make a page
  CHECK_FALSE(IsWhole(old[0]));
  CHECK(PageOf(old[0]) == ids[0]);
  REQUIRE(pool->Take(1, &young));
  CHECK_FALSE(pool->Take(1, &young));
  CHECK(pool->is_whole(young[0]));
  for (int layer = 0; layer < 4; ++layer) {
    CHECK(IsFilled(*pool, young[0], layer, 0));
    Fill(*pool, young[0], layer, 0xff);
  }
  for (const int32_t page : ids)
    for (const int layer : {0, 3}) CHECK(IsFilled(*pool, page, layer, 1 + page));
  for (const int layer : {1, 2}) CHECK(IsFilled(*pool, ids[3], layer, 1 + ids[3]));
  pool->Give(old);
  pool->Give(young);
  CHECK(pool->free() == 4);
}

TEST_CASE("planes stay as long as one of several holders reads them") {
  const auto pool = MakePool({0, 32}, 2);
  std::vector<int32_t> first;
  REQUIRE(pool->Take(1, &first));
  std::vector<int32_t> second = first;
  pool->Hold(second);
  Fill(*pool, first[0], 1, 7);
  pool->Trim(first);
  CHECK(pool->is_whole(second[0]));
  CHECK(IsFilled(*pool, second[0], 1, 7));
  SECTION("the other trims it too") {
    pool->Trim(second);
    CHECK_FALSE(pool->is_whole(PageOf(second[0])));
    pool->Give(first);
    pool->Give(second);
  }
  SECTION("the other gives it back") {
    pool->Give(second);
    CHECK_FALSE(pool->is_whole(PageOf(first[0])));
    pool->Give(first);
  }
  SECTION("the one that trimmed gives it back") {
    pool->Give(first);
    CHECK(pool->is_whole(second[0]));
    pool->Give(second);
  }
  CHECK(pool->free() == 2);
  CHECK(pool->shared() == 0);
}

TEST_CASE("a trimmed page that is cached keeps its planes until they are needed") {
  const auto pool = MakePool({0, 32}, 3);
  std::vector<int32_t> evicted;
  pool->on_evict = [&](int32_t page) { evicted.push_back(page); };
  std::vector<int32_t> row, others;
  REQUIRE(pool->Take(2, &row));
  const std::vector<int32_t> ids = row;
  for (const int32_t page : ids) {
    pool->Cache(page);
    Fill(*pool, page, 0, 1 + page);
    Fill(*pool, page, 1, 1 + page);
  }
  pool->Trim(row);
  CHECK(pool->free() == 2);  // a free page, and the planes of two
  CHECK(pool->cached() == 2);
  // The page is found again and needs its planes.
  pool->Hold(std::span(ids).last(1));
  CHECK(pool->free() == 1);
  REQUIRE(pool->Take(1, &others));
  CHECK(evicted.empty());
  pool->Give(std::span(ids).last(1));
  CHECK(pool->free() == 1);
  REQUIRE(pool->Take(1, &others));
  CHECK(evicted == ids);  // the page found again comes last
  CHECK_FALSE(pool->is_whole(ids[0]));
  for (const int32_t page : ids) CHECK(IsFilled(*pool, page, 0, 1 + page));
  pool->Give(others);
  pool->Give(row);
  CHECK(pool->free() == 3);
  CHECK(pool->cached() == 0);
}

// Holders take, share, trim and give back at random. The model knows the content of every plane
// that a holder may read.
TEST_CASE("no plane is lost, used twice or taken away from a reader") {
  const auto seed = GENERATE(range(1, 9));
  std::mt19937 random(static_cast<unsigned>(seed));
  std::vector<int> windows(2 + random() % 4, 0);
  windows[0] = 32;
  for (size_t i = 2; i < windows.size(); ++i) windows[i] = random() % 2 == 0 ? 32 : 0;
  const int n_layers = static_cast<int>(windows.size());
  const auto pool = MakePool(windows, 1 + static_cast<int>(random() % 12));
  std::set<int32_t> cached;
  std::map<int32_t, int> contents;  // key: page
  pool->on_evict = [&](int32_t page) { REQUIRE(cached.erase(page) == 1); };
  std::vector<std::vector<int32_t>> holders(5);
  int next_content = 0;
  for (int event = 0; event < 1500; ++event) {
    std::vector<int32_t>& holder = holders[random() % holders.size()];
    switch (random() % 5) {
      case 0: {
        const size_t before = holder.size();
        const int n = 1 + static_cast<int>(random() % 3), free = pool->free();
        REQUIRE(pool->Take(n, &holder) == (n <= free));
        for (size_t i = before; i < holder.size(); ++i) {
          contents[holder[i]] = next_content++ % 251;
          for (int layer = 0; layer < n_layers; ++layer) {
            REQUIRE(IsFilled(*pool, holder[i], layer, 0));
            Fill(*pool, holder[i], layer, contents[holder[i]]);
          }
        }
        break;
      }
      case 1:
        if (!cached.empty()) {
          const int32_t page =
              *std::next(cached.begin(), static_cast<int>(random() % cached.size()));
          pool->Hold(std::span(&page, 1));
          holder.push_back(page);
        }
        break;
      case 2:
        pool->Trim(std::span(holder).first(holder.empty() ? 0 : random() % holder.size()));
        break;
      case 3: {
        const size_t n = holder.empty() ? 0 : random() % (holder.size() + 1);
        pool->Give(std::span(holder).last(n));
        holder.resize(holder.size() - n);
        break;
      }
      case 4:
        if (!holder.empty() && IsWhole(holder.back()) && cached.insert(holder.back()).second)
          pool->Cache(holder.back());
        break;
    }
    std::set<int32_t> held;
    std::set<const std::byte*> planes;
    for (const auto& entries : holders)
      for (const int32_t entry : entries) {
        const int32_t page = PageOf(entry);
        for (int layer = 0; layer < n_layers; ++layer)
          if (windows[static_cast<size_t>(layer)] == 0 || IsWhole(entry))
            REQUIRE(IsFilled(*pool, page, layer, contents[page]));
        held.insert(page);
      }
    for (const int32_t page : cached) REQUIRE(pool->is_whole(page));
    const int32_t* const frames = pool->frames();
    int used = 0;
    for (int i = 0; i < pool->n_ids() * n_layers; ++i) used += frames[i] >= 0;
    for (int i = 0; i < pool->n_ids() * n_layers; ++i)
      if (frames[i] >= 0) REQUIRE(planes.insert(pool->base() + frames[i]).second);
    REQUIRE(used <= pool->total() * n_layers);
    REQUIRE(pool->free() >= (pool->total() * n_layers - used) / n_layers);
    REQUIRE(pool->held() == static_cast<int>(held.size()));
  }
  for (const auto& entries : holders) pool->Give(entries);
  CHECK(pool->free() == pool->total());
}

namespace {

// One sequence that takes pages as it grows. Trimming gives back the passed pages, and the next
// holder fills them with NaN.
class WindowRunner {
 public:
  WindowRunner(Backend& backend, int n_pages, bool trims)
      : backend_(backend), trims_(trims), pool_(*KvPool::Create(backend.kv_layout(), n_pages)) {
    backend_.SetPages(pool_->pages());
  }
  ~WindowRunner() { pool_->Give(pages_); }

  // Returns the digest of the last row's logits.
  uint64_t Feed(std::span<const int32_t> tokens) {
    const KvLayout& layout = pool_->layout();
    const int end = position_ + static_cast<int>(tokens.size());
    REQUIRE(pool_->Take(layout.PagesFor(end) - static_cast<int>(pages_.size()), &pages_));
    max_held_ = std::max(max_held_, CountPages(pages_));
    step_.Clear();
    step_.AddPiece(tokens, position_, pages_);
    step_.WantLogits(static_cast<int>(tokens.size()) - 1);
    backend_.Begin(step_.batch());
    backend_.RunLayers(0, backend_.model().n_layers);
    position_ = end;
    if (trims_) {
      pool_->Trim(std::span(pages_).first(static_cast<size_t>(layout.PagesPassed(position_))));
      Poison();
    }
    return LogitsDigest(backend_.logits(0), 0);
  }
  int max_held() const { return max_held_; }

 private:
  void Poison() {
    std::vector<int32_t> free;
    REQUIRE(pool_->Take(pool_->free(), &free));
    for (const int32_t page : free)
      for (int layer = 0; layer < pool_->layout().n_layers(); ++layer)
        Fill(*pool_, page, layer, 0xff);
    pool_->Give(free);
  }

  Backend& backend_;
  const bool trims_;
  const std::unique_ptr<KvPool> pool_;
  std::vector<int32_t> pages_;
  StepBuilder step_;
  int position_ = 0, max_held_ = 0;
};

constexpr int kPageTokens = 16, kTokens = 420;

// Config with a window in the upper two of four layers.
constexpr char kUpperLayers[] = R"({
  "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "vocab_size": 384,
  "hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2,
  "intermediate_size": 96, "max_position_embeddings": 1024, "rms_norm_eps": 1e-06,
  "hidden_act": "silu", "rope_theta": 10000.0, "bos_token_id": 1, "eos_token_id": 2,
  "tie_word_embeddings": false, "sliding_window": 24, "use_sliding_window": true,
  "max_window_layers": 2})";

}  // namespace

TEST_CASE("logits do not depend on what is given back, and memory is bounded by the window") {
  const TempFolder folder;
  folder.Write("config.json", kUpperLayers);
  const std::string models = std::string(BATON_TEST_DATA) + "/models/";
  const std::string model = GENERATE("mistral_window", "gemma2", "upper layers");
  const auto [dtype, kv_dtype] = GENERATE(
      table<std::string, std::string>({{"bf16", "bf16"}, {"bf16", "int8"}, {"fp32", "bf16"}}));
  INFO(model << ", " << dtype << ", KV " << kv_dtype);
  EngineOptions options;
  options.model = model == "upper layers" ? "random:" + folder.file("config.json") : models + model;
  options.dtype = dtype;
  options.kv_dtype = kv_dtype;
  options.threads = 2;
  options.page_tokens = kPageTokens;
  const auto backend = LoadOrDie(options);
  const KvLayout& layout = backend->kv_layout();
  const int n_layers = layout.n_layers(), n_windows = layout.n_windows();
  const bool all_layers = n_windows == n_layers;
  REQUIRE(layout.window > 0);
  REQUIRE(layout.planes_apart() == (model != "mistral_window"));
  std::vector<int32_t> tokens;
  for (int i = 0; i < kTokens; ++i) tokens.push_back((i * 97 + i / 7) % 300);

  // Pages that layers with a window need for a decoding row; the other layers need all pages.
  const int whole = layout.PagesFor(kTokens), bound = layout.window / kPageTokens + 2;
  const int n_planes = n_windows * bound + (n_layers - n_windows) * whole;
  const int n_pages = (n_planes + n_layers - 1) / n_layers;
  REQUIRE(n_pages < whole * 2 / 3);
  std::vector<uint64_t> expected;
  {
    WindowRunner plain(*backend, whole, false);
    for (const int32_t token : tokens) expected.push_back(plain.Feed(std::span(&token, 1)));
  }
  for (const int chunk : {1, 7, 16}) {
    INFO("chunks of " << chunk);
    WindowRunner trimming(*backend, n_pages + (chunk - 1) / kPageTokens + (chunk > 1), true);
    for (int begin = 0; begin < kTokens; begin += chunk) {
      const int n = std::min(chunk, kTokens - begin);
      const auto piece =
          std::span(tokens).subspan(static_cast<size_t>(begin), static_cast<size_t>(n));
      REQUIRE(trimming.Feed(piece) == expected[static_cast<size_t>(begin + n - 1)]);
    }
    if (all_layers && chunk == 1) CHECK(trimming.max_held() <= bound);
  }
}

}  // namespace baton
