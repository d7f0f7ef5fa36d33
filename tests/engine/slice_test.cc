// Slices give the bits of steps: a prompt cut into slices like a relay's, each computed layer by
// layer in random parts with steps of other sequences in between, leaves the same KV and logits as
// steps of whole chunks.
#include <catch2/catch.hpp>
#include <cstring>
#include <random>

#include "engine/cpu/machine/isa.h"
#include "tests/engine/sequence_runner.h"

namespace baton {
namespace {

const std::string kFolder(BATON_SOURCE_DIR);
const std::string kTiny = std::string("random:") + BATON_TEST_DATA + "/shapes/llama-tiny.json";

// Families and their differences for a slice: norms, biases, windows, experts, parallel MLP, soft
// caps, ropes, latents.
const std::vector<std::string> kModels{
    "tiny",           "tiny-moe",  "qwen2",      "qwen3",
    "mistral_window", "mixtral",   "gemma2",     "gemma3",
    "qwen2_moe",      "qwen3_moe", "falcon7b",   "falcon40b",
    "llama32",        "phi3_long", "phi3_short", "deepseek_v2_lite",
    "deepseek_v3"};

std::string ModelOf(const std::string& name) {
  if (name == "tiny") return kTiny;
  if (name == "tiny-moe") return "random:" + kFolder + "/configs/shapes/tiny-moe.json";
  return std::string(BATON_TEST_DATA) + "/models/" + name;
}

// Random choices from [0, n).
class Dice {
 public:
  explicit Dice(uint32_t seed) : random_(seed) {}
  int operator()(int n) { return static_cast<int>(random_() % static_cast<uint32_t>(n)); }

 private:
  std::mt19937 random_;
};

std::vector<int32_t> Prompt(int n, int vocab, Dice& dice) {
  std::vector<int32_t> tokens(static_cast<size_t>(n));
  for (int32_t& token : tokens) token = dice(std::min(vocab, 500));
  return tokens;
}

// Two sequences on pages of one pool: the prompt, and a bystander that runs steps in between.
class SliceRunner {
 public:
  SliceRunner(const EngineOptions& options, int n_tokens, const EngineLab& lab = {})
      : backend_(LoadOrDie(options, lab)), max_part_(options.limits.max_step_tokens) {
    const int n_pages = backend_->kv_layout().PagesFor(n_tokens);
    absl::StatusOr<std::unique_ptr<KvPool>> pool =
        KvPool::Create(backend_->kv_layout(), 2 * n_pages);
    REQUIRE(pool.ok());
    pool_ = *std::move(pool);
    backend_->SetPages(pool_->pages());
    rope_ = backend_->model().rope.RangeOf(n_tokens);
    Restart(n_pages);
  }
  ~SliceRunner() {
    pool_->Give(pages_);
    pool_->Give(other_pages_);
  }

  // Takes fresh pages, so that no unwritten key is present by accident.
  void Restart(int n_pages) {
    if (!pages_.empty()) pool_->Give(pages_);
    if (!other_pages_.empty()) pool_->Give(other_pages_);
    pages_.clear();
    other_pages_.clear();
    REQUIRE(pool_->Take(n_pages, &pages_));
    REQUIRE(pool_->Take(n_pages, &other_pages_));
    other_position_ = 0;
  }
  void Restart() { Restart(static_cast<int>(pages_.size())); }

  // Computes in steps of `chunk` tokens. Returns the logits of the last token.
  std::vector<float> Steps(std::span<const int32_t> prompt, int chunk) {
    std::vector<float> logits;
    for (int first = 0; first < static_cast<int>(prompt.size()); first += chunk) {
      const int n = std::min<int>(chunk, static_cast<int>(prompt.size()) - first);
      logits = Step(prompt.subspan(first, n), first, pages_);
    }
    return logits;
  }

  // Runs the next step of the bystander.
  std::vector<float> OtherStep(std::span<const int32_t> tokens, int n) {
    const int first = other_position_;
    other_position_ += n;
    return Step(tokens.subspan(first, n), first, other_pages_);
  }

  // Computes prompt[from, to) as a slice in random parts; between() runs between any two parts.
  template <typename Between>
  void Slice(std::span<const int32_t> prompt, int from, int to, Dice& dice,
             const Between& between) {
    const bool is_tail = to == static_cast<int>(prompt.size());
    step_.Clear();
    step_.AddPiece(prompt.subspan(from, to - from), from, pages_, rope_);
    if (is_tail) step_.WantLogits(to - from - 1);
    backend_->BeginSlice(step_.batch());
    const int n = to - from, n_layers = backend_->model().n_layers;
    for (int layer = 0; layer < n_layers; ++layer) {
      InBlocks(n, dice, [&](int a, int b) {
        between();
        backend_->ProjectSlice(layer, a, b);
      });
      for (int attends = dice(4); attends > 0; --attends) {
        InBlocks(n, dice, [&](int a, int b) {
          between();
          if (dice(3) > 0)
            backend_->AttendSlice(layer, a, b, kSliceKeys * dice(to / kSliceKeys + 2));
        });
      }
      if (layer + 1 == n_layers && !is_tail) break;
      InBlocks(n, dice, [&](int a, int b) {
        between();
        backend_->FinishSlice(layer, a, b);
      });
    }
  }

  // Gives back pages that no token from `position` on sees, so that other holders write them.
  // Returns the pages.
  std::vector<int32_t> TrimBefore(int position) {
    const int passed = backend_->kv_layout().PagesPassed(position);
    pool_->Trim(std::span(pages_).first(static_cast<size_t>(passed)));
    std::vector<int32_t> others;
    REQUIRE(pool_->Take(pool_->free(), &others));
    for (const int32_t page : others)
      for (int layer = 0; layer < backend_->model().n_layers; ++layer) Spoil(page, layer);
    return others;
  }
  void Give(const std::vector<int32_t>& pages) { pool_->Give(pages); }

  // Computes the tail's slice prompt[from, n) as in a relay whose inflow comes in two halves: in
  // each layer, only the keys before `half` are present first, then only the others. kv: KV of the
  // whole prompt.
  void SliceOfLateKeys(std::span<const int32_t> prompt, int from, int half,
                       const std::vector<std::byte>& kv) {
    const int n = static_cast<int>(prompt.size()) - from;
    const int page_tokens = pool_->layout().page_tokens;
    step_.Clear();
    step_.AddPiece(prompt.subspan(from), from, pages_, rope_);
    step_.WantLogits(n - 1);
    backend_->BeginSlice(step_.batch());
    for (int layer = 0; layer < backend_->model().n_layers; ++layer) {
      const auto each_block = [&](const auto& block) {
        for (int a = 0; a < n; a += max_part_) block(a, std::min(n, a + max_part_));
      };
      each_block([&](int a, int b) { backend_->ProjectSlice(layer, a, b); });
      for (int page = 0; page < from / page_tokens; ++page) {
        page < half / page_tokens ? SetPlane(page, layer, kv) : Spoil(pages_[page], layer);
      }
      each_block([&](int a, int b) { backend_->AttendSlice(layer, a, b, half); });
      for (int page = 0; page < from / page_tokens; ++page) {
        page < half / page_tokens ? Spoil(pages_[page], layer) : SetPlane(page, layer, kv);
      }
      each_block([&](int a, int b) { backend_->FinishSlice(layer, a, b); });
    }
  }

  Backend& backend() { return *backend_; }
  std::vector<float> slice_logits() const {
    const std::span<const float> logits = backend_->slice_logits();
    return {logits.begin(), logits.end()};
  }
  // Returns all K and V of the prompt.
  std::vector<std::byte> Kv() const {
    std::vector<std::byte> bytes;
    const KvLayout& layout = pool_->layout();
    for (const int32_t page : pages_)
      for (int layer = 0; layer < layout.n_layers(); ++layer) {
        const std::byte* const plane = pool_->plane(page, layer);
        bytes.insert(bytes.end(), plane, plane + layout.planes[layer].bytes);
      }
    return bytes;
  }

 private:
  void SetPlane(int page, int layer, const std::vector<std::byte>& kv) {
    const KvLayout& layout = pool_->layout();
    int64_t offset = page * layout.page_bytes;
    for (int l = 0; l < layer; ++l) offset += layout.planes[l].bytes;
    std::memcpy(pool_->plane(pages_[page], layer), kv.data() + offset,
                static_cast<size_t>(layout.planes[layer].bytes));
  }
  // Writes conspicuous numbers: large, and different in each byte.
  void Spoil(int32_t page, int layer) {
    std::byte* const plane = pool_->plane(page, layer);
    for (int64_t i = 0; i < pool_->layout().planes[layer].bytes; ++i) {
      plane[i] = static_cast<std::byte>(0x40 + i % 7);
    }
  }

  std::vector<float> Step(std::span<const int32_t> tokens, int first,
                          std::span<const int32_t> pages) {
    step_.Clear();
    step_.AddPiece(tokens, first, pages, rope_);
    step_.WantLogits(static_cast<int>(tokens.size()) - 1);
    backend_->Begin(step_.batch());
    backend_->RunLayers(0, backend_->model().n_layers);
    const std::span<const float> logits = backend_->logits(0);
    return {logits.begin(), logits.end()};
  }

  // Runs blocks of rows of random sizes that cover [0, n), in ascending or another order.
  template <typename Block>
  void InBlocks(int n, Dice& dice, const Block& block) {
    std::vector<int> cuts{0};
    while (cuts.back() < n) cuts.push_back(std::min(n, cuts.back() + 1 + dice(max_part_)));
    std::vector<size_t> order(cuts.size() - 1);
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    if (dice(2) == 0) std::reverse(order.begin(), order.end());
    for (const size_t i : order) block(cuts[i], cuts[i + 1]);
  }

  std::unique_ptr<Backend> backend_;
  int max_part_;
  std::unique_ptr<KvPool> pool_;
  std::vector<int32_t> pages_, other_pages_;
  int other_position_ = 0;
  StepBuilder step_;
  RopeRange rope_ = RopeRange::kShort;
};

// Returns p - 1 random boundaries of slices.
std::vector<int> Boundaries(int n, int p, Dice& dice) {
  std::vector<int> boundaries{0, n};
  while (static_cast<int>(boundaries.size()) < p + 1) {
    const int boundary = 1 + dice(n - 1);
    if (std::find(boundaries.begin(), boundaries.end(), boundary) == boundaries.end())
      boundaries.push_back(boundary);
  }
  std::sort(boundaries.begin(), boundaries.end());
  return boundaries;
}

struct Setting {
  Isa isa = Isa::kAvx2;
  int threads = 1, page_tokens = 64;
  std::string dtype = "bf16", kv_dtype = "bf16";
};

EngineOptions OptionsOf(const std::string& model, const Setting& setting) {
  EngineOptions options;
  options.model = ModelOf(model);
  options.dtype = setting.dtype;
  options.kv_dtype = setting.kv_dtype;
  options.isa = setting.dtype == "fp32" ? "auto" : std::string(IsaName(setting.isa));
  options.threads = setting.threads;
  options.page_tokens = setting.page_tokens;
  options.limits.max_step_tokens = 192;
  options.limits.max_slice_tokens = 1300;
  return options;
}

// Compares prompts of about 700 to 1,200 tokens in p slices each with steps.
void CheckSlices(const std::string& model, const Setting& setting, const std::vector<int>& ps,
                 uint32_t seed) {
  INFO(model << " " << IsaName(setting.isa) << " threads " << setting.threads << " page "
             << setting.page_tokens << " " << setting.dtype << " KV " << setting.kv_dtype);
  constexpr int kMaxTokens = 1300;
  SliceRunner runner(OptionsOf(model, setting), kMaxTokens);
  Dice dice(seed);
  const std::vector<int32_t> prompt = Prompt(700 + dice(500), runner.backend().model().vocab, dice);
  const int n = static_cast<int>(prompt.size());

  // The sizes and logits of the bystander's steps.
  std::vector<std::pair<int, std::vector<float>>> others;
  for (int total = 0; total < 400;) {
    const int size = 1 + dice(90);
    others.emplace_back(size, runner.OtherStep(prompt, size));
    total += size;
  }
  const std::vector<float> expected = runner.Steps(prompt, 192);
  const std::vector<std::byte> kv = runner.Kv();

  for (const int p : ps) {
    runner.Restart();
    size_t next_other = 0;
    const auto between = [&] {
      if (next_other == others.size() || dice(8) > 0) return;
      const auto& [size, logits] = others[next_other++];
      REQUIRE((runner.OtherStep(prompt, size) == logits));
    };
    const std::vector<int> boundaries = Boundaries(n, p, dice);
    for (int i = 0; i < p; ++i)
      runner.Slice(prompt, boundaries[i], boundaries[i + 1], dice, between);
    INFO("p " << p << " of " << n);
    CHECK((runner.slice_logits() == expected));
    CHECK((runner.Kv() == kv));
    CHECK(next_other > 0);
  }
}

}  // namespace

TEST_CASE("slices give the bits of steps in every family") {
  const std::string model = GENERATE(from_range(kModels));
  RequestAmxPermission();
  const std::vector<Isa> paths = SupportedIsas();
  const int pages[] = {16, 32, 64};
  for (size_t i = 0; i < paths.size(); ++i)
    CheckSlices(model, {paths[i], 1 + static_cast<int>(i) % 2, pages[i % 3]}, {1, 3},
                static_cast<uint32_t>(17 + i));
}

TEST_CASE("a slice meets keys while others are still to come, and reads them once") {
  const auto [model, kv_dtype] = GENERATE(table<std::string, std::string>(
      {{"tiny", "bf16"}, {"tiny", "int8"}, {"gemma2", "bf16"}, {"deepseek_v2_lite", "bf16"}}));
  RequestAmxPermission();
  for (const Isa isa : SupportedIsas()) {
    EngineOptions options = OptionsOf(model, {isa, 2, 32, "bf16", kv_dtype});
    SliceRunner runner(options, 1216);
    Dice dice(3);
    const std::vector<int32_t> prompt = Prompt(1200, runner.backend().model().vocab, dice);
    const std::vector<float> expected = runner.Steps(prompt, 192);
    const std::vector<std::byte> kv = runner.Kv();
    for (const int half : {512, 1024}) {
      runner.SliceOfLateKeys(prompt, 1120, half, kv);
      INFO(model << " " << options.isa << " KV " << kv_dtype << " " << half);
      CHECK((runner.slice_logits() == expected));
    }
  }
}

TEST_CASE("a slice does not miss what its windows have passed") {
  const std::string model = GENERATE("mistral_window", "gemma2", "gemma3");
  constexpr int kFrom = 800;
  RequestAmxPermission();
  for (const Isa isa : SupportedIsas()) {
    SliceRunner runner(OptionsOf(model, {isa, 2, 16}), 1216);
    Dice dice(29);
    const std::vector<int32_t> prompt = Prompt(1200, runner.backend().model().vocab, dice);
    const std::vector<float> expected = runner.Steps(prompt, 192);
    runner.Restart();
    runner.Steps(std::span(prompt).first(kFrom), 192);
    INFO(model << " " << IsaName(isa));
    const std::vector<int32_t> others = runner.TrimBefore(kFrom);
    CHECK(!others.empty());
    runner.Slice(prompt, kFrom, 1200, dice, [] {});
    CHECK((runner.slice_logits() == expected));
    runner.Give(others);
  }
}

TEST_CASE("a dense mask changes no bit of any model's logits") {
  const std::string model = GENERATE(from_range(kModels));
  RequestAmxPermission();
  for (const Isa isa : SupportedIsas()) {
    const EngineOptions options = OptionsOf(model, {isa, 2, 32});
    std::vector<std::vector<float>> logits;
    for (const bool dense_mask : {false, true}) {
      SliceRunner runner(options, 1216, {.dense_mask = dense_mask});
      Dice dice(11);
      const std::vector<int32_t> prompt = Prompt(700, runner.backend().model().vocab, dice);
      logits.push_back(runner.Steps(prompt, 192));
    }
    INFO(model << " " << options.isa);
    CHECK((logits[0] == logits[1]));
  }
}

TEST_CASE("slices of any number of ranks") {
  const int threads = GENERATE(1, 2), page_tokens = GENERATE(16, 32, 64);
  RequestAmxPermission();
  for (const Isa isa : SupportedIsas())
    CheckSlices("tiny", {isa, threads, page_tokens}, {1, 2, 3, 4, 8},
                static_cast<uint32_t>(page_tokens + threads));
}

TEST_CASE("slices with integer weights, KV in int8 and plain fp32") {
  const std::string model = GENERATE("tiny", "tiny-moe", "mistral_window", "deepseek_v2_lite");
  const auto [dtype, kv_dtype] = GENERATE(table<std::string, std::string>(
      {{"int8", "bf16"}, {"int4", "bf16"}, {"bf16", "int8"}, {"int8", "int8"}, {"fp32", "bf16"}}));
  if (model != "tiny" && model != "tiny-moe" && (dtype == "int8" || dtype == "int4")) return;
  for (const Isa isa : SupportedIsas()) {
    CheckSlices(model, {isa, 2, 32, dtype, kv_dtype}, {2, 4}, 5);
    if (dtype == "fp32") break;
  }
}

}  // namespace baton
