// `baton bench step` on a tiny model: every measurement is present, digests do not depend on batch
// or chunk, and impossible sizes are errors.
#include "bench/kernels/step_bench.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <fstream>
#include <map>
#include <sstream>

#include "bench/kernels/step_limits.h"
#include "bench/kernels/step_work.h"
#include "tests/support/temp_folder.h"

namespace baton {
namespace {

StepBenchOptions TinyOptions() {
  StepBenchOptions options;
  options.engine.model = std::string("random:") + BATON_TEST_DATA + "/shapes/llama-tiny.json";
  options.engine.threads = 1;
  options.prompts = {40, 200};
  options.decode = {1, 5};
  options.context = 30;
  options.seconds = 0.01;
  options.samples = 2;
  return options;
}

}  // namespace

TEST_CASE("a step benchmark measures what it was asked for") {
  StepBenchOptions options = TinyOptions();
  const auto results = MeasureSteps(options);
  REQUIRE(results.ok());
  REQUIRE(results->size() == 5);
  const char* names[] = {"prefill_40", "prefill_200", "decode_1", "decode_5"};
  for (int i = 0; i < 4; ++i) {
    const KernelResult& result = (*results)[i];
    CHECK(result.name == names[i]);
    CHECK(result.unit == "tok/s");
    CHECK(result.value > 0);
    CHECK(result.limit > 0);
    CHECK(result.seconds > 0);
    CHECK(result.n_samples >= (i < 2 ? 1 : options.samples));
    CHECK(result.samples.max >= result.value);
    CHECK(result.limits.max >= result.limit * 0.999);
    CHECK(result.digest.size() == 16);
  }
  CHECK((*results)[0].digest != (*results)[1].digest);
  CHECK((*results)[2].digest == (*results)[3].digest);  // the same first sequence, alone or not

  const KernelResult& memory = results->back();
  CHECK(memory.name == "memory_beside_weights_and_kv");
  CHECK((memory.unit == "MB" && memory.value > 0 && memory.value < memory.limit));

  const TempFolder cache;
  options.engine.cache_dir = cache.path();
  const auto cached = MeasureSteps(options);
  REQUIRE(cached.ok());
  REQUIRE(cached->size() == 6);
  const KernelResult& load = cached->back();
  CHECK(load.name == "load_packed_again");
  CHECK((load.unit == "s" && load.value > 0 && load.value < load.limit));
  CHECK((*cached)[1].digest == (*results)[1].digest);
  options.engine.cache_dir.clear();

  options.chunks = {7, 64};
  options.prompts = {200};
  options.slices = true;
  const auto chunked = MeasureSteps(options);
  REQUIRE(chunked.ok());
  REQUIRE(chunked->size() == 7);
  CHECK((*chunked)[0].name == "prefill_200_chunk_7");
  CHECK((*chunked)[1].name == "prefill_200_slice_7");
  CHECK((*chunked)[2].name == "prefill_200_chunk_64");
  CHECK((*chunked)[3].name == "prefill_200_slice_64");
  for (int i = 0; i < 6; ++i) {
    CHECK((*chunked)[i].digest == (*results)[std::max(i - 2, 1)].digest);
  }
}

TEST_CASE("the phases of a step are all of its time") {
  StepBenchOptions options = TinyOptions();
  options.engine.threads = 2;
  options.engine.dtype = GENERATE("bf16", "int4", "fp32");
  options.prompts = {200};
  options.chunks = {64};
  options.decode = {5};
  const auto plain = MeasureSteps(options);
  options.phases = true;
  const auto results = MeasureSteps(options);
  REQUIRE((plain.ok() && results.ok()));
  std::map<std::string, const KernelResult*> lines;
  for (const KernelResult& line : *results) lines[line.name] = &line;
  const std::string work = GENERATE("prefill_200", "decode_5");
  INFO(options.engine.dtype << " " << work);
  const double step = lines.at(work + "/step")->value;
  REQUIRE(step > 0);
  double sum = 0;
  for (const auto& [name, line] : lines) {
    if (name.rfind(work + "/", 0) != 0) continue;
    CHECK((line->unit == "ms" && line->whole == step));
    if (name != work + "/step") sum += line->value;
  }
  CHECK(sum == Approx(step));
  for (const char* phase : {"pack", "linear qkv", "rope", "attention", "linear o", "linear gate_up",
                            "linear down", "linear head", "sample", "waiting", "rest"}) {
    INFO(phase);
    REQUIRE(lines.contains(work + "/" + phase));
    CHECK(lines.at(work + "/" + phase)->value > 0);
  }
  // Phase times do not change the bits.
  for (const KernelResult& line : *plain) {
    INFO(line.name);
    CHECK(lines.at(line.name)->digest == line.digest);
  }
}

TEST_CASE("sparse layers and latents have phases of their own") {
  StepBenchOptions options = TinyOptions();
  options.prompts = {};
  options.decode = {3};
  options.phases = true;
  options.engine.dtype = GENERATE("bf16", "fp32");
  options.engine.model =
      std::string("random:") + BATON_SOURCE_DIR + "/configs/shapes/tiny-moe.json";
  const auto results = MeasureSteps(options);
  REQUIRE(results.ok());
  CHECK(std::any_of(results->begin(), results->end(), [](const KernelResult& line) {
    return line.name == "decode_3/experts" && line.value > 0;
  }));
}

TEST_CASE("a step's work is what its shapes say") {
  // Figures computed by hand for the published shape: 16 layers, hidden 2048, 32 and 8 heads of 64,
  // ffn 8192, vocabulary 128,256, tied.
  const std::string shapes = std::string(BATON_SOURCE_DIR) + "/configs/shapes/";
  std::ifstream file(shapes + "llama-3.2-1b.json");
  std::stringstream text;
  text << file.rdbuf();
  auto model = ModelDesc::FromJson(text.str(), "llama-3.2-1b.json");
  REQUIRE(model.ok());
  const KvLayout layout = KvLayout::For(*model, KvType::kBf16, 64);
  const StepWork work(*model, layout, 2'470'000'000);
  CHECK(work.token_flops() == Approx(1.946e9).epsilon(1e-3));
  CHECK(work.head_flops() == Approx(0.5253e9).epsilon(1e-3));
  CHECK(work.pair_flops() == 131072);
  // Causal: 512 tokens see 512 * 513 / 2 keys in all layers except the last. There only the last
  // token continues after its keys and values: 511 tokens have no output projection (2048 x 2048)
  // and no MLP (3 x 2048 x 8192).
  const double saved = 511 * 2.0 * 2048 * (2048 + 3 * 8192);
  CHECK(work.PrefillFlops(512).linear() ==
        Approx(512 * work.token_flops() + work.head_flops() - saved));
  CHECK(work.PrefillFlops(512).attention == Approx(8192.0 * (15 * 131328 + 512)));
  CHECK(work.PrefillFlops(1).linear() == Approx(work.DecodeFlops(1, 1).linear()));
  CHECK(work.PrefillFlops(1).attention == Approx(work.DecodeFlops(1, 1).attention));
  CHECK(work.DecodeFlops(8, 100).linear() == Approx(8 * (work.token_flops() + work.head_flops())));
  CHECK(work.DecodeFlops(8, 100).attention == Approx(8 * 100 * 131072.0));
  CHECK(work.DecodeBytes(8, 100) == Approx(2.47e9 + 8 * 100 * 32768.0));

  // With a window of 10 in half of the layers, token i sees min(i + 1, 10) keys there.
  for (int layer = 0; layer < 8; ++layer) model->windows[layer] = 10;
  const double pairs = 7 * 20 * 21 / 2 + 20 + 8 * (10 * 11 / 2 + 10 * 10);
  CHECK(work.PrefillFlops(20).attention == Approx(pairs * 131072 / 16));
  CHECK(work.DecodeBytes(1, 100) == Approx(2.47e9 + (8 * 100 + 8 * 10) * 2048.0));
}

namespace {

ModelDesc Shape(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  auto model = ModelDesc::FromJson(text.str(), path);
  REQUIRE(model.ok());
  return *std::move(model);
}

}  // namespace

TEST_CASE("the steps of a prompt are the whole of it") {
  const ModelDesc model = Shape(std::string(BATON_SOURCE_DIR) + "/configs/shapes/tiny-moe.json");
  const KvLayout layout = KvLayout::For(model, KvType::kBf16, 64);
  const StepWork work(model, layout, 1'000'000);
  const StepFlops whole = work.PrefillFlops(300), first = work.PrefillFlops(0, 128, false),
                  last = work.PrefillFlops(128, 300, true);
  CHECK(first.lm_head == 0);
  CHECK(first.layers + last.layers == Approx(whole.layers));
  CHECK(first.lm_head + last.lm_head == Approx(whole.lm_head));
  CHECK(first.always_bf16 + last.always_bf16 == Approx(whole.always_bf16));
  CHECK(first.attention + last.attention == Approx(whole.attention));
  CHECK(whole.always_bf16 > 0);  // routers
}

// An int4 model's LM head is int8, and its attention and routers are bf16. Regression: the peak of
// int4 was once the limit of all parts.
TEST_CASE("every part of a step is held to the peak of its own type") {
  const WeightTypes int4 = WeightTypes::Of("int4");
  CHECK((int4.layers == WeightType::kInt4 && int4.lm_head == WeightType::kInt8));
  const WeightTypes int8 = WeightTypes::Of("int8");
  CHECK((int8.layers == WeightType::kInt8 && int8.lm_head == WeightType::kInt8));
  const WeightTypes plain = WeightTypes::Of("auto");
  CHECK((plain.layers == WeightType::kBf16 && plain.lm_head == WeightType::kBf16));

  const MachineState state{.gbps = 2, .layers = 400, .lm_head = 100, .bf16 = 50};
  const StepFlops flops{.layers = 400e9, .lm_head = 300e9, .always_bf16 = 50e9, .attention = 100e9};
  CHECK(state.MinSeconds(flops) == Approx(1 + 3 + 1 + 2));
  // The later limit bounds a step: multiply-adds of many rows, the bytes of one row.
  CHECK(state.MinSeconds(flops, 1e9) == Approx(7));
  CHECK(state.MinSeconds(flops, 20e9) == Approx(10));
  // Without a known peak only memory bounds a step.
  CHECK(MachineState{.gbps = 2}.MinSeconds(flops, 4e9) == Approx(2));
}

TEST_CASE("step benchmarks of impossible sizes are errors") {
  using Catch::Matchers::Contains;
  const auto error = [](const auto& change) {
    StepBenchOptions options = TinyOptions();
    change(options);
    return std::string(MeasureSteps(options).status().message());
  };
  CHECK_THAT(error([](StepBenchOptions& o) { o.prompts = {2049}; }), Contains("a prompt is 2049"));
  CHECK_THAT(error([](StepBenchOptions& o) { o.decode = {0}; }), Contains("a decode batch is 0"));
  CHECK_THAT(error([](StepBenchOptions& o) { o.rounds = 0; }), Contains("rounds is 0"));
  CHECK_THAT(error([](StepBenchOptions& o) { o.context = 2040; }), Contains("context is 2040"));
  CHECK_THAT(error([](StepBenchOptions& o) { o.engine.model = "/nowhere"; }),
             Contains("/nowhere: no such folder"));
}

}  // namespace baton
