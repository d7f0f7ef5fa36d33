// The engine on an emulated device gives the tokens, log-probabilities and digests of the CPU's
// engine, for every family, at every depth, with graphs and without, whatever order of operations a
// seed draws; and no wait is missing.

#include "engine/cuda/device/emulated/device_thread.h"
#include "engine/cuda/device/metadata_block.h"
#include "tests/engine/device/emulated_engine.h"

namespace baton {
namespace {

void CheckOnDevice(const EngineOptions& engine, const std::vector<DrivenResult>& expected,
                   const DeviceBackendOptions& options, uint64_t seed) {
  INFO("depth " << options.depth << ", graphs " << options.uses_graphs << ", seed " << seed);
  Emulated e(engine, Seeded(seed), options);
  REQUIRE(e.status.ok());
  const std::vector<DrivenResult> results = e.Run(seed);
  INFO(e.Reports());
  CHECK(e.device.order().total() == 0);
  CHECK_FALSE(e.backend->lost().has_value());
  CHECK(e.blocking_calls == 0);
  CHECK(e.device.work().counts().pageable_copies == 0);
  CHECK((e.n_fed > 0) == (options.depth > 1));
  CHECK((e.n_behind > 0) == (options.depth > 1));
  CHECK(IsWhole(results, expected));
  CHECK(Difference(results, expected) == "");
}

TEST_CASE("every family computes on an emulated device what it computes on the CPU") {
  int n_models = 0, n_apart = 0;
  for (const std::string& name : OracleCases()) {
    INFO(name);
    const EngineOptions engine = SmallOptions(LoadOracleCase(name).model);
    n_apart += LoadOrDie(engine)->kv_layout().planes_apart() ? 1 : 0;
    ++n_models;
    CheckOnDevice(engine, OnCpu(engine), {.depth = 2}, 1);
  }
  CHECK(n_models == 24);
  CHECK(n_apart > 0);  // models of which only some layers have a window
}

TEST_CASE("int8 weights and int8 KV are computed, too") {
  EngineOptions engine = SmallOptions(LoadOracleCase("qwen3").model);
  engine.dtype = "int8";
  engine.kv_dtype = "int8";
  CheckOnDevice(engine, OnCpu(engine), {.depth = 2}, 1);
}

void CheckOrders(const std::string& name, uint64_t n_seeds) {
  const EngineOptions engine = SmallOptions(LoadOracleCase(name).model);
  const std::vector<DrivenResult> expected = OnCpu(engine);
  for (uint64_t seed = 1; seed <= n_seeds; ++seed)
    for (const int depth : {1, 2, 3})
      for (const bool uses_graphs : {true, false})
        CheckOnDevice(engine, expected, {depth, uses_graphs}, seed);
}

TEST_CASE("depth, graphs and the order of operations change nothing") {
  CheckOrders("qwen2", 4);
  CheckOrders("gemma3", 1);
}
TEST_CASE("the same for 1,000 seeds of order", "[.][orders]") {
  CheckOrders("qwen2", 1000);
  CheckOrders("gemma3", 200);
}

TEST_CASE("logits cross when they are asked for, and equal the CPU's") {
  const EngineOptions engine = SmallOptions(LoadOracleCase("llama2").model);
  Emulated e(engine, Seeded(1), {.depth = 1});
  const std::unique_ptr<Backend> cpu = LoadOrDie(engine);
  const auto logits_of = [](Backend& backend) {
    absl::StatusOr<std::unique_ptr<KvPool>> pool = KvPool::Create(
        backend.kv_layout(), 4, [&](int64_t bytes) { return backend.NewArena(bytes); });
    REQUIRE(pool.ok());
    backend.SetPages((*pool)->pages());
    std::vector<int32_t> pages;
    REQUIRE((*pool)->Take(2, &pages));
    CopyPage(**pool, pages[0], pages[1]);
    StepBuilder step;
    step.AddPiece(std::vector<int32_t>{5, 6, 7, 8}, 0, std::span(pages).first(1));
    step.WantLogits(1);
    step.WantScores(2, 3);
    step.WantLogits(3);
    backend.Begin(step.batch());
    backend.RunLayers(0, backend.model().n_layers);
    std::vector<float> all;
    for (const auto& row : {backend.logits(0), backend.logits(1), backend.ScoredLogits(0, 1)})
      all.insert(all.end(), row.begin(), row.end());
    (*pool)->Give(pages);
    return all;
  };
  CHECK(logits_of(*e.backend) == logits_of(*cpu));
  CHECK(e.device.order().total() == 0);
}

// The step as kernels read it.
std::unique_ptr<BlockStep> Written(const StepBatch& batch, int n_padding, const KvPages& pages) {
  const BlockCounts counts = CountsOf(batch, n_padding, *pages.layout);
  std::vector<std::byte> block(static_cast<size_t>(counts.bytes()));
  WriteBlock(batch, n_padding, pages, block.data());
  BlockCounts read;
  std::memcpy(&read, block.data(), sizeof(read));
  return std::make_unique<BlockStep>(read, block.data());
}

TEST_CASE("padding fills a step to its bucket with rows that own nothing") {
  CHECK(BucketOf(1, 512) == 1);
  CHECK(BucketOf(17, 512) == 24);
  CHECK(BucketOf(256, 512) == 256);
  CHECK(BucketOf(257, 512) == 0);
  CHECK(BucketOf(33, 40) == 0);  // its bucket is larger than a step may be
  StepBuilder step;
  const std::vector<int32_t> pages = {4, 2};
  step.AddPiece(std::vector<int32_t>{FedToken(3)}, 17, pages);
  step.WantLogits(0);
  const KvLayout layout = KvLayout::Of({{1, 16, 16}, {1, 16, 16}}, KvType::kBf16, 16);
  const std::unique_ptr<BlockStep> padded = Written(step.batch(), 2, {&layout, nullptr, 9, 9});
  CHECK(padded->frames().empty());
  const StepBatch batch = padded->batch();
  const auto numbers = [](std::span<const int32_t> s) {
    return std::vector<int32_t>(s.begin(), s.end());
  };
  CHECK(numbers(batch.tokens) == std::vector<int32_t>{FedToken(3), 0, 0});
  CHECK(numbers(batch.positions) == std::vector<int32_t>{17, 0, 0});
  CHECK(numbers(batch.piece_begin) == std::vector<int32_t>{0, 1, 2, 3});
  CHECK(numbers(batch.page_begin) == std::vector<int32_t>{0, 2, 3, 4});
  CHECK(numbers(batch.pages) == std::vector<int32_t>{4, 2, 9, 9});
  CHECK(numbers(batch.logit_rows) == std::vector<int32_t>{0, 1, 2});
}

TEST_CASE("frames of planes that lie apart travel with the page table") {
  KvLayout layout = KvLayout::Of({{1, 16, 16}, {1, 16, 16}}, KvType::kBf16, 16);
  layout.SetWindows(std::vector<int>{16, 0});
  const std::vector<int32_t> frames = {0, 1, -1, 2, 3, 4, -1, -1};  // page 1 is trimmed
  StepBuilder step;
  step.AddPiece(std::vector<int32_t>{7}, 40, std::vector<int32_t>{TrimmedEntry(1), 0, 2});
  step.WantLogits(0);
  const std::unique_ptr<BlockStep> block =
      Written(step.batch(), 1, {&layout, nullptr, 3, 4, frames.data()});
  const std::span<const int32_t> written = block->frames();
  CHECK(std::vector<int32_t>(written.begin(), written.end()) ==
        std::vector<int32_t>{-1, 2, 0, 1, 3, 4, 6, 7});  // padding's lie behind those of the pool
  CHECK(block->batch().pages.back() == 4);
}

TEST_CASE("an engine thread sleeps until the thread of a device wakes it") {
  const EngineOptions engine = SmallOptions(LoadOracleCase("qwen2").model);
  const std::vector<DrivenResult> expected = OnCpu(engine);
  EmulatedOptions options = Seeded(1);
  options.pace = {.usual_ns = 1'000, .late_ns = 50'000};
  Emulated e(engine, options, {.depth = 2});
  {
    DeviceThread thread(e.device);
    StepDriver driver(*e.backend, kPages, 1, [&](Fence fence) { SleepUntil(*e.backend, fence); });
    const std::vector<DrivenResult> results = driver.Run(Requests(e.backend->model().vocab));
    CHECK(IsWhole(results, expected));
    CHECK(Difference(results, expected) == "");
    CHECK(e.device.work().counts().blocking_calls == 0);
  }
  INFO(e.Reports());
  CHECK(e.device.order().total() == 0);
}

TEST_CASE("a wake comes once, and none after the waking was stopped") {
  Emulated e(SmallOptions(LoadOracleCase("llama2").model), Seeded(1), {});
  absl::StatusOr<std::unique_ptr<KvArena>> arena = e.backend->NewArena(4096);
  REQUIRE(arena.ok());
  int n_wakes = 0;
  const auto submit = [&] {
    (*arena)->Zero((*arena)->base(), 4096);
    const Fence fence = e.backend->submitted();
    CHECK_FALSE(e.backend->reached(fence));
    e.backend->WakeAt(fence, [&] { ++n_wakes; });
    return fence;
  };
  const Fence fence = submit();
  while (n_wakes == 0) REQUIRE(e.device.work().ExecuteNext());
  CHECK(e.backend->reached(fence));
  while (e.device.work().ExecuteNext()) continue;
  CHECK(n_wakes == 1);
  e.backend->WakeAt(fence, [&] { ++n_wakes; });  // it is reached
  CHECK(n_wakes == 2);
  submit();
  e.backend->StopWaking();
  while (e.device.work().ExecuteNext()) continue;
  CHECK(n_wakes == 2);
}

}  // namespace
}  // namespace baton
