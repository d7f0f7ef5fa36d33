// The host's side of a GPU where operations end later than the calls that submit them, in orders
// that seeds draw: results are right in each, nothing is read, used again or freed too early, and a
// lost device takes nothing with it. Waits that are left out on purpose show that late operations
// tell a missing wait, which operations that are executed at once never do.

#include <array>
#include <catch2/catch.hpp>
#include <numeric>

#include "engine/cuda/device/gpu/gpu_device.h"
#include "engine/cuda/device/gpu/gpu_step_kernels.h"
#include "engine/cuda/device/gpu/gpu_weights.h"
#include "engine/cuda/device/sampled_results.h"
#include "tests/engine/device/emulated_engine.h"
#include "tests/engine/gpu/host_cuda.h"
#include "tests/engine/gpu/host_model.h"
#include "tests/engine/served_model.h"

namespace baton {
namespace {

constexpr uint64_t kSeeds = 24;

void CheckClean(HostCuda& cuda) {
  CHECK(cuda.n_left() == 0);
  CHECK(cuda.streams().reports() == std::vector<std::string>{});
}

// is_right(cuda): runs a program and tells if what came out is right. It is, in every order; and
// where the driver leaves `call` out it is wrong, or reported, in some order, but not at once.
template <typename Program>
void CheckNeeds(const char* call, const Program& is_right) {
  for (uint64_t seed = 0; seed <= kSeeds; ++seed) {
    INFO("order " << seed);
    HostCuda cuda(seed);
    CHECK(is_right(cuda));
    CheckClean(cuda);
  }
  {
    INFO("at once, without " << call);
    HostCuda cuda;
    cuda.Ignore(call);
    CHECK(is_right(cuda));
    CheckClean(cuda);
  }
  uint64_t n_noticed = 0;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    HostCuda cuda(seed);
    cuda.Ignore(call);
    const bool was_right = is_right(cuda);
    n_noticed += was_right && cuda.streams().reports().empty() ? 0 : 1;
  }
  INFO(n_noticed << " of " << kSeeds << " orders show that " << call << " is left out");
  CHECK(n_noticed >= kSeeds / 4);
}

// A device with streams, pages, and pinned memory of `bytes` each.
struct Parts {
  Parts(HostCuda& host, int n_pages, int n_pinned) : cuda(host) {
    for (int i = 0; i < n_pages; ++i) pages.push_back(*device.Allocate(kBytes, "pages"));
    for (int i = 0; i < n_pinned; ++i) pinned.push_back(*device.AllocatePinned(kBytes, "slots"));
  }
  ~Parts() {
    for (std::byte* const memory : pages) device.Free(memory);
    for (std::byte* const memory : pinned) device.Free(memory);
  }
  // A kernel that adds `by` to every byte.
  void AddKernel() {
    device.AddKernel("add", [this](DeviceStream, void* on, std::span<const std::byte> bytes) {
      std::byte* page = nullptr;
      std::memcpy(&page, bytes.data(), sizeof(page));
      return device.Check(cuda.Launch(on, {page},
                                      [page] {
                                        for (int i = 0; i < kBytes; ++i)
                                          page[i] = std::byte(std::to_integer<int>(page[i]) + 1);
                                      }),
                          "adding");
    });
  }
  void Finish(DeviceStream stream) {
    const DeviceEvent event = device.NewEvent();
    REQUIRE(device.Record(event, stream).ok());
    device.Synchronize(event);
  }
  static bool IsAll(const std::byte* at, int value) {
    return std::all_of(at, at + kBytes, [&](std::byte b) { return b == std::byte(value); });
  }

  static constexpr int kBytes = 256;
  HostCuda& cuda;
  GpuDevice device{cuda.api(), 0};
  const DeviceStream engine = device.NewStream("engine"), copies = device.NewStream("copies");
  std::vector<std::byte*> pages, pinned;
};

// --- the device

TEST_CASE("a result is in memory of the host when its event is reached, and not before") {
  CheckNeeds("query", [](HostCuda& cuda) {
    Parts p(cuda, 1, 1);
    const DeviceEvent event = p.device.NewEvent();
    REQUIRE(p.device.Fill(p.engine, p.pages[0], 3, Parts::kBytes).ok());
    REQUIRE(p.device.Copy(p.engine, p.pinned[0], p.pages[0], Parts::kBytes).ok());
    REQUIRE(p.device.Record(event, p.engine).ok());
    while (!p.device.reached(event)) REQUIRE(cuda.streams().ExecuteNext());
    const bool is_right = Parts::IsAll(p.pinned[0], 3);
    cuda.streams().ExecuteAll();
    return is_right;
  });
}

TEST_CASE("memory that operations under way use is not freed") {
  CheckNeeds("synchronize", [](HostCuda& cuda) {
    Parts p(cuda, 1, 2);
    p.AddKernel();
    REQUIRE(p.device.Fill(p.engine, p.pages[0], 3, Parts::kBytes).ok());
    REQUIRE(p.device.Launch(p.engine, "add", p.pages[0]).ok());
    REQUIRE(p.device.Copy(p.engine, p.pinned[0], p.pages[0], Parts::kBytes).ok());
    p.Finish(p.engine);
    return true;  // ~Parts frees
  });
}

TEST_CASE("engine and copies wait for each other across two streams, in any order") {
  CheckNeeds("wait", [](HostCuda& cuda) {
    constexpr int kRounds = 6;
    Parts p(cuda, 2, kRounds);
    p.AddKernel();
    for (std::byte* const page : p.pages)
      REQUIRE(p.device.Fill(p.engine, page, 0, Parts::kBytes).ok());
    std::array<DeviceEvent, 2> written{}, copied{};
    for (int i = 0; i < 2; ++i) {
      const auto at = static_cast<size_t>(i);
      written[at] = p.device.NewEvent();
      copied[at] = p.device.NewEvent();  // waiting for it takes no time yet
    }
    for (int round = 0; round < kRounds; ++round) {
      const auto at = static_cast<size_t>(round) % 2;
      REQUIRE(p.device.Wait(p.engine, copied[at]).ok());
      REQUIRE(p.device.Launch(p.engine, "add", p.pages[at]).ok());
      REQUIRE(p.device.Record(written[at], p.engine).ok());
      REQUIRE(p.device.Wait(p.copies, written[at]).ok());
      std::byte* const slot = p.pinned[static_cast<size_t>(round)];
      REQUIRE(p.device.Copy(p.copies, slot, p.pages[at], Parts::kBytes).ok());
      REQUIRE(p.device.Record(copied[at], p.copies).ok());
    }
    p.Finish(p.engine);
    p.Finish(p.copies);
    bool is_right = true;
    for (int round = 0; round < kRounds; ++round)
      is_right &= Parts::IsAll(p.pinned[static_cast<size_t>(round)], round / 2 + 1);
    return is_right;
  });
}

TEST_CASE("an event that is recorded again begins anew, and waits keep the record they saw") {
  for (uint64_t seed = 0; seed <= kSeeds; ++seed) {
    INFO("order " << seed);
    HostCuda cuda(seed);
    {
      Parts p(cuda, 1, 2);
      const DeviceEvent event = p.device.NewEvent();
      REQUIRE(p.device.Fill(p.engine, p.pages[0], 1, Parts::kBytes).ok());
      REQUIRE(p.device.Record(event, p.engine).ok());
      REQUIRE(p.device.Wait(p.copies, event).ok());
      // The engine goes on when the copy is done, which must not wait for what comes then.
      REQUIRE(p.device.Copy(p.copies, p.pinned[0], p.pages[0], Parts::kBytes).ok());
      const DeviceEvent copied = p.device.NewEvent();
      REQUIRE(p.device.Record(copied, p.copies).ok());
      REQUIRE(p.device.Wait(p.engine, copied).ok());
      REQUIRE(p.device.Fill(p.engine, p.pages[0], 2, Parts::kBytes).ok());
      REQUIRE(p.device.Copy(p.engine, p.pinned[1], p.pages[0], Parts::kBytes).ok());
      REQUIRE(p.device.Record(event, p.engine).ok());
      while (!p.device.reached(event)) REQUIRE(cuda.streams().ExecuteNext());
      CHECK(Parts::IsAll(p.pinned[0], 1));
      CHECK(Parts::IsAll(p.pinned[1], 2));
    }
    CheckClean(cuda);
  }
}

TEST_CASE("a graph is under way several times, and each time reads what is there then") {
  CheckNeeds("synchronize", [](HostCuda& cuda) {
    constexpr int kLaunches = 7;
    Parts p(cuda, 1, 2 + kLaunches);  // two slots that are filled in turns, then the results
    p.AddKernel();
    std::byte* argument = p.pages[0];
    REQUIRE(p.device.BeginCapture(p.engine).ok());
    for (int i = 0; i < 2; ++i) REQUIRE(p.device.Launch(p.engine, "add", argument).ok());
    const absl::StatusOr<DeviceGraph> graph = p.device.EndCapture(p.engine);
    REQUIRE(graph.ok());
    argument = nullptr;  // the graph keeps its own
    const std::array<DeviceEvent, 2> used = {p.device.NewEvent(), p.device.NewEvent()};
    for (int launch = 0; launch < kLaunches; ++launch) {
      const auto at = static_cast<size_t>(launch) % 2;
      p.device.Synchronize(used[at]);
      std::memset(p.pinned[at], 10 * launch, Parts::kBytes);
      REQUIRE(p.device.Copy(p.engine, p.pages[0], p.pinned[at], Parts::kBytes).ok());
      REQUIRE(p.device.Record(used[at], p.engine).ok());
      REQUIRE(p.device.LaunchGraph(p.engine, *graph).ok());
      std::byte* const result = p.pinned[static_cast<size_t>(2 + launch)];
      REQUIRE(p.device.Copy(p.engine, result, p.pages[0], Parts::kBytes).ok());
    }
    p.Finish(p.engine);
    cuda.streams().ExecuteAll();
    bool is_right = true;
    for (int launch = 0; launch < kLaunches; ++launch)
      is_right &= Parts::IsAll(p.pinned[static_cast<size_t>(2 + launch)], 10 * launch + 2);
    return is_right;
  });
}

TEST_CASE("a device that is lost with operations queued reaches every event and makes every call") {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    INFO("order " << seed);
    HostCuda cuda(seed);
    int n_called = 0;
    {
      Parts p(cuda, 1, 1);
      std::array<DeviceEvent, 2> events{};
      cuda.streams().LoseAfter(seed % 4);
      absl::Status status;
      for (DeviceEvent& event : events) {
        event = p.device.NewEvent();
        status.Update(p.device.Fill(p.engine, p.pages[0], 1, Parts::kBytes));
        status.Update(p.device.Copy(p.engine, p.pinned[0], p.pages[0], Parts::kBytes));
        const absl::Status notified = p.device.Notify(p.engine, [&] { ++n_called; });
        if (!notified.ok()) ++n_called;  // it is not called
        status.Update(notified);
        status.Update(p.device.Record(event, p.engine));
      }
      for (const DeviceEvent event : events) {
        p.device.Synchronize(event);
        CHECK(p.device.reached(event));
      }
      CHECK(p.device.lost().has_value());
      CHECK((status.ok() || absl::IsUnavailable(status)));
      CHECK(absl::IsUnavailable(p.device.Record(events[0], p.engine)));
    }
    cuda.streams().ExecuteAll();
    CHECK(n_called == 2);
    CheckClean(cuda);
  }
}

// --- weights

TEST_CASE("weights are right although their staging memory is used again and again") {
  EngineOptions options = OptionsFor(LoadOracleCase("qwen2").model, "bf16");
  const absl::StatusOr<LoadedModel> model = OpenModel(options);
  REQUIRE(model.ok());
  const ModelDesc& desc = model->desc;
  CheckNeeds("synchronize", [&](HostCuda& cuda) {
    GpuDevice device(cuda.api(), 0);
    const auto weights = GpuWeights::Load(
        device, *model, KvLayout::For(desc, KvType::kBf16Rows, 64), nullptr, nullptr);
    REQUIRE(weights.ok());
    cuda.streams().ExecuteAll();  // so that only the order in the stream counts
    const ModelView& view = (*weights)->view();
    bool is_right = true;
    const auto compare = [&](const std::string& tensor, const uint16_t* at, int stride) {
      const int index = model->source->IndexOf(tensor);
      const TensorSpec& spec = model->source->tensors()[static_cast<size_t>(index)];
      std::vector<bf16> row(static_cast<size_t>(spec.cols));
      for (int r = 0; r < spec.rows; ++r) {
        model->source->ReadBf16(index, r, 1, row.data());
        is_right &= std::equal(row.begin(), row.end(), at + int64_t{r} * stride);
      }
    };
    compare("embed", view.embedding, view.hidden_stride());
    for (int layer = 0; layer < desc.n_layers; ++layer) {
      const std::string name = "layers." + std::to_string(layer) + ".";
      compare(name + "q", view.layers[layer].qkv, view.hidden_stride());
      compare(name + "down", view.layers[layer].down, view.mlp_stride());
    }
    return is_right;
  });
}

// --- sampling

TEST_CASE("samplings under way at once have memory of their own") {
  CheckNeeds("query", [](HostCuda& cuda) {
    constexpr int kVocab = 97, kRows = 6, kLaunches = 9;
    Sampler reference;
    cuda.kernels.sample = [&](const float* logits, int32_t n, int32_t vocab, const void* rows,
                              void* results, int32_t* sampled) {
      SampleAsPlugin(reference, logits, n, vocab, rows, results, sampled);
    };
    GpuDevice device(cuda.api(), 0);
    ModelView view;
    view.vocab = kVocab;
    view.max_step_rows = kRows;
    const auto kernels = GpuStepKernels::Create(device, view, nullptr);
    REQUIRE(kernels.ok());
    const DeviceStream stream = device.NewStream("compute");
    std::vector<float> logits(size_t{kRows} * kVocab);
    std::mt19937 random(11);
    for (float& logit : logits) logit = static_cast<float>(random() % 4096) / 512;
    struct Launch {
      std::vector<RowSampling> rows;
      std::vector<std::byte> results;
      std::vector<int32_t> tokens;
    };
    std::array<Launch, kLaunches> launches;
    int seed = 0;
    for (Launch& launch : launches) {
      for (int i = 0; i < kRows; ++i) {
        SamplingParams params;
        params.temperature = 1;
        params.seed = static_cast<uint64_t>(++seed);
        if (i % 3 == 1) params.top_p = 0.9f;  // the host samples it
        launch.rows.push_back({std::make_shared<const SequenceSampling>(params), seed, i == 2});
      }
      launch.results.resize(static_cast<size_t>(SampledBytes(launch.rows)));
      launch.tokens.resize(kRows);
      SampleArguments arguments{.logits = logits.data(), .rows = launch.rows.data(), .n = kRows};
      arguments.sampled = launch.tokens.data();
      arguments.results = launch.results.data();
      arguments.result_bytes = static_cast<int64_t>(launch.results.size());
      REQUIRE(device.Launch(stream, SampleArguments::kName, arguments).ok());
    }
    cuda.streams().ExecuteAll();
    bool is_right = true;
    for (const Launch& launch : launches) {
      const std::vector<SampledToken> sampled = ReadSampled(launch.rows, launch.results.data());
      const NumericsMxcsrScope numerics;
      for (size_t i = 0; i < launch.rows.size(); ++i) {
        const RowSampling& row = launch.rows[i];
        const SampledToken expected = reference.Sample({logits.data() + i * kVocab, size_t{kVocab}},
                                                       *row.sampling, row.position);
        is_right &= sampled[i].token == expected.token && launch.tokens[i] == expected.token;
        is_right &= sampled[i].logprob == expected.logprob;
      }
    }
    return is_right;
  });
}

// --- the engine

// Device, step kernels and backend as GpuEngine has them, with kernels that compute on the CPU.
struct LateEngine {
  LateEngine(HostCuda& cuda, const EngineOptions& engine, const DeviceBackendOptions& options)
      : model(cuda, LoadOrDie(engine), kPages), device(cuda.api(), 0) {
    auto made = GpuStepKernels::Create(device, model.view(), nullptr);
    REQUIRE(made.ok());
    kernels = *std::move(made);
    auto over = DeviceBackend::Create(device, model.described(), options);
    REQUIRE(over.ok());
    backend = *std::move(over);
  }
  HostModel model;
  GpuDevice device;
  std::unique_ptr<GpuStepKernels> kernels;
  std::unique_ptr<DeviceBackend> backend;
};

void CheckOnGpu(const EngineOptions& engine, const std::vector<DrivenResult>& expected,
                const DeviceBackendOptions& options, uint64_t seed) {
  INFO("order " << seed << ", depth " << options.depth << ", graphs " << options.uses_graphs);
  HostCuda cuda(seed);
  {
    LateEngine e(cuda, engine, options);
    StepDriver driver(*e.backend, kPages, seed,
                      [&](Fence) { REQUIRE(cuda.streams().ExecuteNext()); });
    const std::vector<DrivenResult> results = driver.Run(Requests(e.backend->model().vocab));
    CHECK_FALSE(e.backend->lost().has_value());
    CHECK(IsWhole(results, expected));
    CHECK(Difference(results, expected) == "");
    CHECK((driver.n_fed() > 0) == (options.depth > 1));
    CHECK((driver.n_behind() > 0) == (options.depth > 1 && cuda.streams().is_late()));
  }
  CheckClean(cuda);
}

TEST_CASE("an engine on a GPU computes what the CPU's computes, at once and late") {
  const EngineOptions engine = SmallOptions(LoadOracleCase("qwen2").model);
  const std::vector<DrivenResult> expected = OnCpu(engine);
  for (const uint64_t seed : {0, 1, 4}) CheckOnGpu(engine, expected, {.depth = 2}, seed);
}
TEST_CASE("depth, graphs and the order of a GPU's operations change nothing", "[slow]") {
  for (const std::string name : {"qwen2", "llama2", "falcon7b"}) {
    INFO(name);
    const EngineOptions engine = SmallOptions(LoadOracleCase(name).model);
    const std::vector<DrivenResult> expected = OnCpu(engine);
    for (uint64_t seed = 0; seed < 6; ++seed)
      for (const int depth : {1, 2, 3})
        CheckOnGpu(engine, expected, {depth, (seed + static_cast<uint64_t>(depth)) % 3 != 0}, seed);
  }
}

TEST_CASE("an engine on a GPU is served by a thread") {
  const EngineOptions engine = SmallOptions(LoadOracleCase("qwen2").model);
  const std::vector<DrivenResult> expected = OnCpu(engine);
  HostCuda cuda(1);
  {
    LateEngine e(cuda, engine, {.depth = 2});
    const HostCudaThread thread(cuda.streams());
    {
      StepDriver driver(*e.backend, kPages, 1, [&](Fence fence) { SleepUntil(*e.backend, fence); });
      const std::vector<DrivenResult> results = driver.Run(Requests(e.backend->model().vocab));
      CHECK(IsWhole(results, expected));
      CHECK(Difference(results, expected) == "");
    }
    e.backend.reset();  // its end waits for the device
  }
  CheckClean(cuda);
}

// The driver calls what waits in the streams of a lost device, which may be when the engine is
// gone. Returns how many calls came then.
int CheckLostAt(const EngineOptions& engine, const std::vector<DrivenResult>& expected, uint64_t at,
                uint64_t seed) {
  INFO("lost after " << at << " operations, order " << seed);
  HostCuda cuda(seed);
  {
    LateEngine e(cuda, engine, {.depth = 2});
    cuda.streams().LoseAfter(at);
    StepDriver driver(*e.backend, kPages, seed, [&](Fence) { cuda.streams().ExecuteNext(); });
    driver.StopIf([&] { return e.backend->lost().has_value(); });
    const std::vector<DrivenResult> results = driver.Run(Requests(e.backend->model().vocab));
    CHECK(e.backend->lost().has_value());
    CHECK_FALSE(IsWhole(results, expected));
    CHECK(Difference(results, expected) == "");
  }
  CheckClean(cuda);
  int n_called = 0;
  while (cuda.streams().ExecuteNext()) ++n_called;
  return n_called;
}

TEST_CASE("an engine whose GPU is lost gives no wrong result, and calls may come after its end") {
  const EngineOptions engine = SmallOptions(LoadOracleCase("llama2").model);
  const std::vector<DrivenResult> expected = OnCpu(engine);
  int n_called = 0;
  for (const uint64_t at : {0, 10, 60, 150}) n_called += CheckLostAt(engine, expected, at, 4);
  CHECK(n_called > 0);
}
TEST_CASE("memory that is refused while operations are under way ends the engine, not the GPU") {
  const EngineOptions engine = SmallOptions(LoadOracleCase("llama2").model);
  const std::vector<DrivenResult> expected = OnCpu(engine);
  int n_lost = 0;
  for (const int after : {0, 1, 2, 3, 5, 8}) {
    INFO("after " << after << " allocations");
    HostCuda cuda(4);
    {
      LateEngine e(cuda, engine, {.depth = 2});
      cuda.FailAt("allocate_pinned", HostCuda::kOutOfMemory, after);
      StepDriver driver(*e.backend, kPages, 1, [&](Fence) { cuda.streams().ExecuteNext(); });
      driver.StopIf([&] { return e.backend->lost().has_value(); });
      const std::vector<DrivenResult> results = driver.Run(Requests(e.backend->model().vocab));
      CHECK(Difference(results, expected) == "");
      CHECK(IsWhole(results, expected) != e.backend->lost().has_value());
      CHECK_FALSE(e.device.lost().has_value());
      n_lost += e.backend->lost().has_value() ? 1 : 0;
    }
    CheckClean(cuda);
  }
  CHECK(n_lost >= 3);
}
TEST_CASE("an engine whose GPU is lost at any of many operations ends so, too", "[slow]") {
  const EngineOptions engine = SmallOptions(LoadOracleCase("llama2").model);
  const std::vector<DrivenResult> expected = OnCpu(engine);
  for (uint64_t at = 0; at < 240; at += 1 + at / 8)
    for (const uint64_t seed : {1, 4}) CheckLostAt(engine, expected, at, seed);
}

}  // namespace
}  // namespace baton
