// Slices as benchmarks of other schemes use them: zigzag rings, whose ranks have two pieces of the
// prompt each, and pipelines, whose ranks have some of the layers.
#include "engine/cpu/rival_slices.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>

#include "tests/engine/sequence_runner.h"

namespace baton {
namespace {

constexpr int kPart = 192;  // rows per part

std::string Model(const std::string& name) {
  if (name == "tiny") return std::string("random:") + BATON_TEST_DATA + "/shapes/llama-tiny.json";
  return std::string(BATON_TEST_DATA) + "/models/" + name;
}

std::vector<int32_t> Prompt(int n) {
  std::vector<int32_t> tokens;
  for (int i = 0; i < n; ++i) tokens.push_back(i * 37 % 251 + i % 5);
  return tokens;
}

// A worker: a backend, a pool and the pages of one prompt in it.
class Rank {
 public:
  Rank(const std::string& model, const std::string& dtype, int n_tokens) {
    EngineOptions options;
    options.model = Model(model);
    options.dtype = dtype;
    options.threads = 1;
    options.limits.max_step_tokens = kPart;
    options.limits.max_slice_tokens = n_tokens;
    backend_ = LoadOrDie(options);
    pool_ = *KvPool::Create(backend_->kv_layout(), backend_->kv_layout().PagesFor(n_tokens));
    REQUIRE(pool_->Take(pool_->total(), &pages_));
    backend_->SetPages(pool_->pages());
    rope_ = backend_->model().rope.RangeOf(n_tokens);
  }
  ~Rank() { pool_->Give(pages_); }

  Backend& backend() { return *backend_; }
  RivalSlices& rival() { return dynamic_cast<RivalSlices&>(*backend_); }
  int n_layers() const { return backend_->model().n_layers; }

  // Begins a slice of the pieces [begin, end) of the prompt.
  void Begin(std::span<const int32_t> prompt, const std::vector<std::pair<int, int>>& pieces,
             bool wants_logits) {
    step_.Clear();
    for (const auto& [begin, end] : pieces)
      step_.AddPiece(prompt.subspan(begin, end - begin), begin, pages_, rope_);
    n_ = step_.n_tokens();
    if (wants_logits) step_.WantLogits(n_ - 1);
    backend_->BeginSlice(step_.batch());
  }
  // Calls part(from, to) for the slice's rows.
  template <typename Part>
  void InParts(const Part& part) const {
    for (int from = 0; from < n_; from += kPart) part(from, std::min(n_, from + kPart));
  }
  void Project(int layer) {
    InParts([&](int from, int to) { backend_->ProjectSlice(layer, from, to); });
  }
  void AttendKeys(int layer, int first_key, int end_key) {
    InParts([&](int from, int to) { rival().AttendKeys(layer, from, to, first_key, end_key); });
  }
  void Finish(int layer) {
    InParts([&](int from, int to) { backend_->FinishSlice(layer, from, to); });
  }
  std::vector<float> SliceLogits() const {
    const std::span<const float> logits = backend_->slice_logits();
    return {logits.begin(), logits.end()};
  }

  // Copies one layer's KV of tokens [from, to), whole pages.
  void CopyKv(const Rank& other, int layer, int from, int to) {
    const KvLayout& layout = backend_->kv_layout();
    for (int page = from / layout.page_tokens; page < to / layout.page_tokens; ++page) {
      std::memcpy(pool_->plane(pages_[page], layer), other.pool_->plane(other.pages_[page], layer),
                  static_cast<size_t>(layout.planes[layer].bytes));
    }
  }

  // Computes in steps. Returns the logits of the last token.
  std::vector<float> Steps(std::span<const int32_t> prompt) {
    for (int from = 0; from < static_cast<int>(prompt.size()); from += kPart) {
      const int n = std::min<int>(kPart, static_cast<int>(prompt.size()) - from);
      step_.Clear();
      step_.AddPiece(prompt.subspan(from, n), from, pages_, rope_);
      step_.WantLogits(n - 1);
      backend_->Begin(step_.batch());
      backend_->RunLayers(0, n_layers());
    }
    const std::span<const float> logits = backend_->logits(0);
    return {logits.begin(), logits.end()};
  }

 private:
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<KvPool> pool_;
  std::vector<int32_t> pages_;
  StepBuilder step_;
  RopeRange rope_ = RopeRange::kShort;
  int n_ = 0;
};

float Difference(const std::vector<float>& a, const std::vector<float>& b) {
  float max = 0;
  for (size_t i = 0; i < a.size(); ++i) max = std::max(max, std::abs(a[i] - b[i]));
  return max;
}

// Runs p ranks of a zigzag ring over 2p chunks of 512 tokens: rank r has chunks r and 2p - 1 - r.
std::vector<float> Ring(const std::string& model, const std::string& dtype, int p,
                        const std::vector<int32_t>& prompt, bool in_rotation) {
  constexpr int kChunk = kSliceKeys;
  std::vector<std::unique_ptr<Rank>> ranks;
  const auto chunks_of = [&](int r) {
    return std::vector<std::pair<int, int>>{{r * kChunk, (r + 1) * kChunk},
                                            {(2 * p - 1 - r) * kChunk, (2 * p - r) * kChunk}};
  };
  for (int r = 0; r < p; ++r) {
    ranks.push_back(std::make_unique<Rank>(model, dtype, 2 * p * kChunk));
    ranks[r]->Begin(prompt, chunks_of(r), r == 0);
  }
  for (int layer = 0; layer < ranks[0]->n_layers(); ++layer) {
    for (const auto& rank : ranks) rank->Project(layer);
    for (int turn = 0; turn < p; ++turn)
      for (int r = 0; r < p; ++r) {
        const int owner = (r + p - turn) % p;
        for (const auto& [begin, end] : chunks_of(owner)) {
          if (owner != r) ranks[r]->CopyKv(*ranks[owner], layer, begin, end);
          if (in_rotation) ranks[r]->AttendKeys(layer, begin, end);
        }
      }
    for (const auto& rank : ranks) rank->Finish(layer);
  }
  return ranks[0]->SliceLogits();
}

}  // namespace

TEST_CASE("a zigzag ring gives nearly the logits of steps, an all-gather the very same") {
  const std::string model = GENERATE("tiny", "gemma2", "deepseek_v2_lite");
  const std::string dtype = GENERATE("fp32", "bf16");
  constexpr int p = 2;
  const std::vector<int32_t> prompt = Prompt(2 * p * kSliceKeys);
  const std::vector<float> steps =
      Rank(model, dtype, static_cast<int>(prompt.size())).Steps(prompt);
  INFO(model << " " << dtype);
  CHECK((Ring(model, dtype, p, prompt, false) == steps));
  const float max = Difference(Ring(model, dtype, p, prompt, true), steps);
  INFO("logits differ by " << max);
  CHECK(max > 0);  // another order
  CHECK(max <= (dtype == "fp32" ? 1e-3f : 0.1f));
}

TEST_CASE("a pipeline gives the logits of steps") {
  const std::string model = GENERATE("tiny", "falcon7b", "gemma2", "qwen2_moe");
  const std::string dtype = GENERATE("fp32", "bf16");
  constexpr int kTokens = 700, kChunk = 300;
  const std::vector<int32_t> prompt = Prompt(kTokens);
  const std::vector<float> steps = Rank(model, dtype, kTokens).Steps(prompt);
  Rank first(model, dtype, kTokens), second(model, dtype, kTokens);
  const int cut = 1, n_layers = first.n_layers();
  REQUIRE(n_layers > cut);
  for (int begin = 0; begin < kTokens; begin += kChunk) {
    const int end = std::min(begin + kChunk, kTokens);
    first.Begin(prompt, {{begin, end}}, false);
    for (int layer = 0; layer < cut; ++layer) {
      first.Project(layer);
      first.Finish(layer);
    }
    second.Begin(prompt, {{begin, end}}, end == kTokens);
    first.InParts([&](int from, int to) {
      std::vector<std::byte> rows(
          static_cast<size_t>((to - from) * first.rival().residual_bytes()));
      first.rival().ReadResidual(from, to, rows);
      second.rival().SetResidual(cut, from, to, rows);
    });
    for (int layer = cut; layer < n_layers; ++layer) {
      second.Project(layer);
      second.Finish(layer);
    }
  }
  INFO(model << " " << dtype);
  CHECK((second.SliceLogits() == steps));
}

}  // namespace baton
