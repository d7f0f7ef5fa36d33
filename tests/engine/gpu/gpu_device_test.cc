// The host's side of a GPU, on the plugin's functions in memory of the host: what it takes it gives
// back, an error of CUDA loses the device once and for all, weights lie where kernels read them,
// and every row is sampled as the host's sampler samples it. Each with operations that are executed
// at once, and with some that end later, in several orders (gpu_late_test.cc: what matters only
// then).

#include <catch2/catch.hpp>
#include <functional>
#include <random>

#include "engine/cuda/device/gpu/gpu_device.h"
#include "engine/cuda/device/gpu/gpu_engine.h"
#include "engine/cuda/device/gpu/gpu_step_kernels.h"
#include "engine/cuda/device/gpu/gpu_weights.h"
#include "engine/cuda/device/sampled_results.h"
#include "engine/threads/mxcsr.h"
#include "tests/engine/gpu/host_cuda.h"
#include "tests/engine/gpu/host_model.h"
#include "tests/engine/served_model.h"

namespace baton {
namespace {

using Catch::Matchers::Contains;

constexpr uint64_t kOrders[] = {0, 1, 2, 3, 4};  // 0: at once

void CheckAllGiven(HostCuda& cuda) {
  CHECK(cuda.n_left() == 0);
  CHECK(cuda.streams().reports() == std::vector<std::string>{});
}

TEST_CASE("all that a device takes it gives back, each kind of memory by its own function") {
  for (const uint64_t seed : kOrders) {
    INFO("order " << seed);
    HostCuda cuda(seed);
    {
      GpuDevice device(cuda.api(), 0);
      const DeviceStream stream = device.NewStream("work");
      const DeviceEvent event = device.NewEvent();
      std::byte* const memory = *device.Allocate(1000, "KV pages");
      std::byte* const pinned = *device.AllocatePinned(1000, "staging");
      CHECK(device.memory().total_bytes - device.memory().free_bytes == 1000);
      REQUIRE(device.BeginCapture(stream).ok());
      REQUIRE(device.Fill(stream, memory, 7, 1000).ok());
      const absl::StatusOr<DeviceGraph> graph = device.EndCapture(stream);
      REQUIRE(graph.ok());
      CHECK(device.LaunchGraph(stream, *graph).ok());
      REQUIRE(device.Copy(stream, pinned, memory, 1000).ok());
      bool is_called = false;
      REQUIRE(device.Notify(stream, [&] { is_called = true; }).ok());
      CHECK(device.Record(event, stream).ok());
      device.Synchronize(event);
      CHECK(device.reached(event));
      CHECK(is_called);
      CHECK(pinned[999] == std::byte{7});
      device.Free(memory);
      device.Free(pinned);
    }
    CheckAllGiven(cuda);
  }
}

TEST_CASE("a lack of memory is told and loses nothing") {
  HostCuda cuda;
  cuda.total_bytes = 4096;
  GpuDevice device(cuda.api(), 3);
  const absl::Status status = device.Allocate(8192, "KV pages").status();
  CHECK(absl::IsResourceExhausted(status));
  CHECK_THAT(std::string(status.message()), Contains("GPU 3") && Contains("KV pages"));
  CHECK_FALSE(device.lost().has_value());
  std::byte* const memory = *device.Allocate(1024, "KV pages");
  device.Free(memory);
}

TEST_CASE("any error of CUDA loses the device, with the same words from then on") {
  for (const char* const call :
       {"record", "wait", "query", "synchronize", "notify", "copy", "fill", "begin_capture",
        "graph", "launch_graph", "stream", "event", "allocate", "allocate_pinned"}) {
    for (const uint64_t seed : kOrders) {
      INFO(call << ", order " << seed);
      HostCuda cuda(seed);
      {
        GpuDevice device(cuda.api(), 1);
        const DeviceStream stream = device.NewStream("work");
        const DeviceEvent event = device.NewEvent();
        std::byte* const memory = *device.Allocate(64, "memory");
        REQUIRE(device.BeginCapture(stream).ok());
        const DeviceGraph graph = *device.EndCapture(stream);
        cuda.FailAt(call);
        int n_called = 0;
        const auto call_all = [&] {
          std::vector<absl::Status> all = {device.Record(event, stream),
                                           device.Wait(stream, event)};
          device.NewStream("more");
          device.NewEvent();
          device.Synchronize(event);
          device.reached(event);
          all.push_back(device.Notify(stream, [&] { ++n_called; }));
          all.push_back(device.Copy(stream, memory, memory + 32, 32));
          all.push_back(device.Fill(stream, memory, 0, 64));
          all.push_back(device.BeginCapture(stream));
          all.push_back(device.EndCapture(stream).status());
          all.push_back(device.LaunchGraph(stream, graph));
          for (const bool is_pinned : {false, true}) {
            const auto more =
                is_pinned ? device.AllocatePinned(64, "more") : device.Allocate(64, "more");
            if (more.ok()) device.Free(*more);
            all.push_back(more.status());
          }
          return all;
        };
        call_all();
        REQUIRE(device.lost().has_value());
        CHECK_THAT(*device.lost(), Contains("GPU 1 has failed") && Contains("launch failure"));
        CHECK(device.reached(event));  // nothing is under way
        cuda.FailAt("");
        cuda.streams().ExecuteAll();  // calls that were made before
        n_called = 0;
        for (const absl::Status& status : call_all()) {
          CHECK(absl::IsUnavailable(status));
          CHECK(status.message() == *device.lost());
        }
        CHECK(n_called == 0);
        device.Free(memory);
      }
      CheckAllGiven(cuda);
    }
  }
}

TEST_CASE("a capture refuses what it does not keep, and goes on") {
  for (const uint64_t seed : kOrders) {
    INFO("order " << seed);
    HostCuda cuda(seed);
    {
      GpuDevice device(cuda.api(), 2);
      const DeviceStream stream = device.NewStream("work"), other = device.NewStream("other");
      const DeviceEvent event = device.NewEvent();
      std::byte* const memory = *device.Allocate(64, "memory");
      REQUIRE(device.BeginCapture(stream).ok());
      const DeviceGraph empty = *device.EndCapture(stream);
      REQUIRE(device.Record(event, stream).ok());
      REQUIRE(device.BeginCapture(stream).ok());
      bool is_called = false;
      for (const absl::Status& status :
           {device.Record(event, stream), device.Wait(stream, event),
            device.Notify(stream, [&] { is_called = true; }), device.LaunchGraph(stream, empty)}) {
        CHECK(absl::IsFailedPrecondition(status));
        CHECK_THAT(std::string(status.message()),
                   Contains("GPU 2") && Contains("end the capture first"));
      }
      CHECK_FALSE(device.lost().has_value());
      CHECK(device.Record(event, other).ok());  // of another stream
      device.Synchronize(event);
      REQUIRE(device.Fill(stream, memory, 5, 64).ok());
      const absl::StatusOr<DeviceGraph> graph = device.EndCapture(stream);
      REQUIRE(graph.ok());
      REQUIRE(device.LaunchGraph(stream, *graph).ok());
      REQUIRE(device.Record(event, stream).ok());
      device.Synchronize(event);
      CHECK(memory[63] == std::byte{5});
      CHECK_FALSE(is_called);
      device.Free(memory);
    }
    CheckAllGiven(cuda);
  }
}

// --- weights

LoadedModel Opened(const std::string& name, EngineOptions* options) {
  *options = OptionsFor(LoadOracleCase(name).model, "bf16");
  absl::StatusOr<LoadedModel> model = OpenModel(*options);
  REQUIRE(model.ok());
  return *std::move(model);
}

std::vector<bf16> Row(const LoadedModel& model, const std::string& tensor, int row) {
  const int index = model.source->IndexOf(tensor);
  std::vector<bf16> values(
      static_cast<size_t>(model.source->tensors()[static_cast<size_t>(index)].cols));
  model.source->ReadBf16(index, row, 1, values.data());
  return values;
}

// The row is `values` and zeros up to `stride`.
bool IsPadded(const uint16_t* row, const std::vector<bf16>& values, int stride) {
  for (size_t i = 0; i < static_cast<size_t>(stride); ++i)
    if (row[i] != (i < values.size() ? values[i] : 0)) return false;
  return true;
}

TEST_CASE("weights lie on the GPU as kernels read them") {
  for (const std::string name : {"qwen2", "llama_bias_fp16", "phi3_long", "gemma", "falcon7b"}) {
    for (const uint64_t seed : kOrders) {
      INFO(name << ", order " << seed);
      EngineOptions options;
      const LoadedModel model = Opened(name, &options);
      const ModelDesc& desc = model.desc;
      REQUIRE(CheckGpuComputes(desc, options).ok());
      const KvLayout layout = KvLayout::For(desc, KvType::kBf16Rows, 64);
      HostCuda cuda(seed);
      {
        GpuDevice device(cuda.api(), 0);
        const auto weights = GpuWeights::Load(device, model, layout, nullptr, nullptr);
        REQUIRE(weights.ok());
        const ModelView& view = (*weights)->view();
        const int hidden = view.hidden_stride();
        CHECK(hidden % 64 == 0);
        const int last = desc.n_layers - 1;
        const LayerView& w = view.layers[last];
        const std::string l = "layers." + std::to_string(last) + ".";
        CHECK(w.plane_offset == layout.planes[static_cast<size_t>(last)].offset);
        CHECK(IsPadded(view.embedding + int64_t{7} * hidden, Row(model, "embed", 7), hidden));
        CHECK((view.lm_head == view.embedding) == desc.tied_embeddings);
        const int kv_first = desc.q_width(), v_first = kv_first + desc.kv_width();
        CHECK(IsPadded(w.qkv + int64_t{3} * hidden, Row(model, l + "q", 3), hidden));
        CHECK(IsPadded(w.qkv + int64_t{kv_first + 1} * hidden, Row(model, l + "k", 1), hidden));
        CHECK(IsPadded(w.qkv + int64_t{v_first + 2} * hidden, Row(model, l + "v", 2), hidden));
        CHECK((w.qkv_bias != nullptr) == desc.qkv_bias);
        if (desc.qkv_bias) {
          bf16 bias{0};
          model.source->ReadBf16(model.source->IndexOf(l + "v.bias"), 1, 1, &bias);
          CHECK(w.qkv_bias[v_first + 1] == Bf16ToFloat(bias));
        }
        const std::vector<bf16> o = Row(model, l + "o", 5);
        const uint16_t* const o_row = w.o + int64_t{5} * desc.n_heads * view.row();
        for (int head = 0; head < desc.n_heads; ++head) {
          const auto first = o.begin() + head * desc.head_dim;
          CHECK(IsPadded(o_row + head * view.row(), {first, first + desc.head_dim}, view.row()));
        }
        if (desc.gated_mlp) {
          for (const int output : {0, 7, 8, desc.intermediate - 1}) {
            const int64_t at = int64_t{output / 8} * 16 + output % 8;
            CHECK(IsPadded(w.gate_up + at * hidden, Row(model, l + "gate", output), hidden));
            CHECK(IsPadded(w.gate_up + (at + 8) * hidden, Row(model, l + "up", output), hidden));
          }
          for (int output = desc.intermediate; output % 8 != 0; ++output) {
            const int64_t at = int64_t{output / 8} * 16 + output % 8;
            CHECK(IsPadded(w.gate_up + at * hidden, {}, hidden));
          }
        } else {
          CHECK(IsPadded(w.gate_up + int64_t{9} * hidden, Row(model, l + "up", 9), hidden));
        }
        CHECK(IsPadded(w.down + int64_t{2} * view.mlp_stride(), Row(model, l + "down", 2),
                       view.mlp_stride()));
        bf16 norm{0};
        const int index = model.source->IndexOf(l + "attention_norm");
        model.source->ReadBf16(index, 4, 1, &norm);
        CHECK(w.attention_norm.weight[4] ==
              Bf16ToFloat(norm) + model.source->tensors()[static_cast<size_t>(index)].norm_offset);
        CHECK((w.attention_norm.bias != nullptr) == desc.layer_norm);
        const RopeTables::Angles angles = model.ropes.At(last, RopeRange::kShort, 11);
        const int pairs = desc.rotary_dim / 2;
        CHECK(view.ropes[w.ropes].cos[0][11 * pairs + 1] == angles.cos[1]);
        CHECK(view.ropes[w.ropes].sin[0][11 * pairs + 1] == angles.sin[1]);
        if (name == "phi3_long") {
          const RopeTables::Angles far = model.ropes.At(last, RopeRange::kLong, 100);
          CHECK(view.ropes[w.ropes].cos[1][100 * pairs] == far.cos[0]);
        }
      }
      CheckAllGiven(cuda);
    }
  }
}

// Loads a model's weights where `lack` makes memory short, in each order: what lacks is told by a
// message with `told`, the device goes on, and nothing stays.
void CheckLack(const std::string& name, const char* told,
               const std::function<void(HostCuda&)>& lack) {
  EngineOptions options;
  const LoadedModel model = Opened(name, &options);
  for (const uint64_t seed : kOrders) {
    INFO("order " << seed);
    HostCuda cuda(seed);
    lack(cuda);
    {
      GpuDevice device(cuda.api(), 0);
      const auto weights = GpuWeights::Load(
          device, model, KvLayout::For(model.desc, KvType::kBf16Rows, 64), nullptr, nullptr);
      CHECK(absl::IsResourceExhausted(weights.status()));
      CHECK_THAT(std::string(weights.status().message()), Contains(told));
      CHECK_FALSE(device.lost().has_value());
    }
    CheckAllGiven(cuda);
  }
}

TEST_CASE("weights that do not fit are told, and nothing stays") {
  CheckLack("llama32", "weights", [](HostCuda& cuda) { cuda.total_bytes = 600'000; });
}

TEST_CASE("pinned memory that is refused is told, and nothing stays") {
  CheckLack("llama2", "pinned memory of the host",
            [](HostCuda& cuda) { cuda.FailAt("allocate_pinned", HostCuda::kOutOfMemory); });
}

TEST_CASE("what GPUs do not compute is refused by name before weights are read") {
  const auto refusal = [](const std::string& name, const std::string& dtype = "bf16",
                          const std::string& kv = "bf16") {
    EngineOptions options = OptionsFor(LoadOracleCase(name).model, dtype);
    options.kv_dtype = kv;
    const absl::StatusOr<ModelDesc> desc = ReadModelDesc(options.model);
    REQUIRE(desc.ok());
    const absl::Status status = CheckGpuComputes(*desc, options);
    CHECK(absl::IsUnimplemented(status));
    return std::string(status.message());
  };
  CHECK_THAT(refusal("mixtral"), Contains("experts") && Contains("--device cpu"));
  CHECK_THAT(refusal("deepseek_v2"), Contains("latent attention"));
  CHECK_THAT(refusal("gemma2"), Contains("soft cap"));
  CHECK_THAT(refusal("gemma3"), Contains("windows in some layers"));
  CHECK_THAT(refusal("llama2", "int8"), Contains("not in int8"));
  CHECK_THAT(refusal("llama2", "bf16", "int8"), Contains("not int8"));
}

TEST_CASE("a GPU whose kernels fail their test is refused, and nothing stays") {
  const EngineOptions engine = OptionsFor(LoadOracleCase("llama2").model, "bf16");
  for (const uint64_t seed : kOrders) {
    INFO("order " << seed);
    HostCuda cuda(seed);
    const auto status = [&] {
      return GpuEngine::Create(cuda.api(), {0, "a GPU", engine}, nullptr, nullptr).status();
    };
    CHECK(status().ok());
    CHECK(cuda.n_left() == 0);
    cuda.kernel_fault = "the product with o of 8 rows has other bits";
    CHECK(absl::IsFailedPrecondition(status()));
    CHECK_THAT(std::string(status().message()),
               Contains(cuda.kernel_fault) && Contains("--device cpu"));
    CheckAllGiven(cuda);
  }
}

// --- sampling

TEST_CASE("rows are sampled as the host's sampler samples them, by whichever side") {
  constexpr int kVocab = 331;
  for (const uint64_t seed : kOrders) {
    INFO("order " << seed);
    HostCuda cuda(seed);
    Sampler reference;
    int n_plain = 0;
    cuda.kernels.sample = [&](const float* logits, int32_t n, int32_t vocab, const void* rows,
                              void* results, int32_t* sampled) {
      n_plain += SampleAsPlugin(reference, logits, n, vocab, rows, results, sampled);
    };
    {
      GpuDevice device(cuda.api(), 0);
      ModelView view;
      view.vocab = kVocab;
      view.max_step_rows = 64;
      const auto kernels = GpuStepKernels::Create(device, view, nullptr);
      REQUIRE(kernels.ok());
      const DeviceStream stream = device.NewStream("compute");
      std::mt19937 random(5);
      std::vector<RowSampling> rows;
      for (int i = 0; i < 64; ++i) {
        SamplingParams params;
        params.temperature = i % 3 == 0 ? 0.0f : 0.8f;
        params.seed = static_cast<uint64_t>(i);
        if (i % 5 == 1) params.top_p = 0.7f;
        if (i % 7 == 2) params.top_logprobs = 3;
        if (i % 11 == 3) params.logprob_tokens = {1, 2, 330};
        if (i % 13 == 4) params.logit_bias = {{5, 20.0f}};
        RowSampling row{std::make_shared<const SequenceSampling>(params), 100 + i, i % 17 == 5};
        if (i % 19 == 6) row.sampling = nullptr;
        rows.push_back(row);
      }
      std::vector<float> logits(rows.size() * kVocab);
      for (float& logit : logits) logit = static_cast<float>(random() % 4096) / 256;
      const int64_t bytes = SampledBytes(rows);
      std::vector<std::byte> results(static_cast<size_t>(bytes));
      std::vector<int32_t> tokens(rows.size(), -7);
      SampleArguments arguments{.logits = logits.data(), .rows = rows.data()};
      arguments.n = static_cast<int32_t>(rows.size());
      arguments.sampled = tokens.data();
      arguments.results = results.data();
      arguments.result_bytes = bytes;
      REQUIRE(device.Launch(stream, SampleArguments::kName, arguments).ok());
      cuda.streams().ExecuteAll();
      const std::vector<SampledToken> sampled = ReadSampled(rows, results.data());
      const NumericsMxcsrScope numerics;
      for (size_t i = 0; i < rows.size(); ++i) {
        INFO(i);
        if (rows[i].sampling == nullptr) {
          CHECK(tokens[i] == -1);
          continue;
        }
        const std::span row(logits.data() + i * kVocab, size_t{kVocab});
        const SampledToken expected = reference.Sample(row, *rows[i].sampling, rows[i].position);
        CHECK(sampled[i].token == expected.token);
        CHECK(tokens[i] == expected.token);
        CHECK(sampled[i].logprob == expected.logprob);
        CHECK(sampled[i].logprobs == expected.logprobs);
        CHECK(sampled[i].digest == (rows[i].wants_digest ? LogitsDigest(row, 0) : 0));
      }
      CHECK((n_plain > 10 && n_plain < 50));
    }
    CheckAllGiven(cuda);
  }
}

}  // namespace
}  // namespace baton
