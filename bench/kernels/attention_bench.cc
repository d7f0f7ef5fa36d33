#include "bench/kernels/attention_bench.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <map>
#include <random>

#include "absl/strings/str_format.h"
#include "bench/probed_sample.h"
#include "engine/cpu/attention/attention.h"
#include "engine/cpu/machine/aligned_buffer.h"
#include "engine/cpu/machine/machine_probe.h"
#include "engine/cpu/rows/elementwise.h"
#include "engine/model/model_desc.h"
#include "engine/sampling/sampler.h"
#include "engine/step/backend.h"

namespace baton {
namespace {

constexpr int kKvHeads = 4;
constexpr int kChunk = 32;  // query tokens of a prefill measurement, at the end of the context

// Returns the seconds of the fastest run; runs as often as fits into `seconds`, at least three
// times.
template <typename Fn>
double Fastest(double seconds, const Fn& fn) {
  using Clock = std::chrono::steady_clock;
  double best = 1e30;
  const auto start = Clock::now();
  for (int i = 0; i < 3 || std::chrono::duration<double>(Clock::now() - start).count() < seconds;
       ++i) {
    const auto begin = Clock::now();
    fn();
    best = std::min(best, std::chrono::duration<double>(Clock::now() - begin).count());
  }
  return best;
}

KvLayout LayoutOf(KvType type, int head_dim, int group) {
  ModelDesc model;
  model.n_layers = 1;
  model.n_heads = kKvHeads * group;
  model.n_kv_heads = kKvHeads;
  model.head_dim = head_dim;
  return KvLayout::For(model, type, 64);
}

// Sequences of equal length with random queries, keys and values.
class Workload {
 public:
  // Each sequence has q_tokens rows at its end.
  Workload(KvType type, int head_dim, int group, int context, int n_sequences, int q_tokens)
      : heads_(kKvHeads * group), layout_(LayoutOf(type, head_dim, group)) {
    std::vector<bf16> noise(1 << 16);
    std::mt19937 rng(7);
    std::normal_distribution<float> normal;
    for (bf16& x : noise) x = FloatToBf16(normal(rng));
    const auto noise_at = [&](int64_t i) { return noise[(i * 7 + i / 60000) % noise.size()]; };
    const auto fill = [&](bf16* to, int64_t n) {
      for (int64_t i = 0; i < n; ++i) to[i] = noise_at(i);
    };
    const int pages = layout_.PagesFor(context);
    const int64_t arena_bytes = layout_.page_bytes * pages * n_sequences;
    arena_ = static_cast<bf16*>(arena_memory_.Reserve(static_cast<size_t>(arena_bytes)));
    if (type == KvType::kBf16)
      fill(arena_, arena_bytes / 2);
    else
      WriteTokens(noise, pages * n_sequences);
    const int64_t rows = static_cast<int64_t>(n_sequences) * q_tokens;
    q_.resize(static_cast<size_t>(rows * heads_ * head_dim));
    fill(q_.data(), static_cast<int64_t>(q_.size()));
    out_.resize(q_.size());
    std::vector<int32_t> table(static_cast<size_t>(pages));
    for (int s = 0; s < n_sequences; ++s) {
      for (int i = 0; i < pages; ++i) table[static_cast<size_t>(i)] = s * pages + i;
      builder_.AddPiece(std::vector<int32_t>(static_cast<size_t>(q_tokens), 0), context - q_tokens,
                        table);
    }
    for (int i = context - q_tokens; i < context; ++i) pairs_ += i + 1;
    pairs_ *= static_cast<int64_t>(n_sequences) * heads_;
    kv_bytes_ = arena_bytes * context / (pages * layout_.page_tokens);
  }

  double flops() const { return 4.0 * static_cast<double>(pairs_) * layout_.shape(0).key_dim; }
  // Returns the digest of the output, equal on every path and machine.
  std::string Digest() const {
    std::vector<float> values;
    for (bf16 x : out_) values.push_back(Bf16ToFloat(x));
    return absl::StrFormat("%016x", LogitsDigest(values, 0));
  }
  double kv_bytes() const { return static_cast<double>(kv_bytes_); }
  const void* arena() const { return arena_; }

  void Run(AttentionKernels& kernels, ComputePool& pool) {
    const StepBatch batch = builder_.batch();
    AttentionArgs args;
    args.batch = &batch;
    args.layout = &layout_;
    args.planes = {reinterpret_cast<std::byte*>(arena_), layout_.page_bytes};
    args.n_heads = heads_;
    args.scale = 1 / std::sqrt(static_cast<double>(layout_.shape(0).key_dim));
    args.q = q_.data();
    args.out = out_.data();
    args.q_stride = args.out_stride = heads_ * layout_.shape(0).key_dim;
    kernels.Run(args, pool);
  }

 private:
  void WriteTokens(const std::vector<bf16>& noise, int n_pages) {
    const ElementwiseKernels& kernels = GetElementwiseKernels(Isa::kAvx2);
    const int64_t max = static_cast<int64_t>(noise.size()) - layout_.shape(0).key_dim;
    int64_t at = 0;
    for (int page = 0; page < n_pages; ++page)
      for (int slot = 0; slot < layout_.page_tokens; ++slot)
        for (int head = 0; head < kKvHeads; ++head, at = (at + 1021) % max)
          kernels.write_kv(layout_, 0, head, noise.data() + at, noise.data() + (at * 7) % max,
                           reinterpret_cast<std::byte*>(arena_) + page * layout_.page_bytes, slot);
  }

  int heads_;
  KvLayout layout_;
  AlignedBuffer arena_memory_;
  bf16* arena_ = nullptr;
  std::vector<bf16> q_, out_;
  StepBuilder builder_;
  int64_t pairs_ = 0, kv_bytes_ = 0;
};

const char* Suffix(KvType type) { return type == KvType::kInt8 ? "_int8" : ""; }

// Measures one shape on every path with every number of threads, one after the other. of_memory:
// the limit is the memory bandwidth, else the path's multiply rate.
void MeasureShape(const AttentionBenchOptions& o, const std::string& name, bool of_memory,
                  Workload& workload, std::vector<KernelResult>* results) {
  for (const Isa isa : o.isas) {
    const auto kernels = MakeAttentionKernels(isa);
    for (const int threads : o.threads) {
      ComputePool pool(threads, o.spin_us);
      const double work = (of_memory ? workload.kv_bytes() : workload.flops()) / 1e9;
      const auto min_seconds = [&] {
        if (!of_memory) {
          return work / ProbePeakGops(isa, WeightType::kBf16, pool, kShortPeakTries);
        }
        return work / ProbeReadGbps(pool, workload.arena(),
                                    static_cast<int64_t>(workload.kv_bytes()), kShortReadTries);
      };
      const auto run = [&] { workload.Run(*kernels, pool); };
      KernelResult& line = results->emplace_back();
      line.name = absl::StrFormat("%s_t%d_%s", name, threads, std::string(IsaName(isa)));
      line.unit = of_memory ? "GB/s" : "GFLOP/s";
      SetSamples(SampleInTurns(o.plan, {run}, min_seconds)[0], work, &line);
      line.digest = workload.Digest();
    }
  }
}

void MeasureShapes(const AttentionBenchOptions& o, KvType type, int head_dim, int context,
                   std::vector<KernelResult>* results) {
  const auto name = [&](const char* phase) {
    return absl::StrFormat("attention_%s%s_d%d_g%d_ctx%d", phase, Suffix(type), head_dim, o.group,
                           context);
  };
  Workload prefill(type, head_dim, o.group, context, 1, std::min(context, kChunk));
  MeasureShape(o, name("prefill"), false, prefill, results);
  const int64_t bytes = LayoutOf(type, head_dim, o.group).token_bytes() * context;
  const int n = static_cast<int>(std::max<int64_t>(1, o.decode_bytes / bytes));
  Workload decode(type, head_dim, o.group, context, n, 1);
  MeasureShape(o, name("decode"), true, decode, results);
}

void MeasureSampler(const AttentionBenchOptions& o, std::vector<KernelResult>* results) {
  std::mt19937 rng(3);
  std::normal_distribution<float> normal(0, 3);
  for (int vocab : {32000, 128256}) {
    std::vector<float> logits(static_cast<size_t>(vocab));
    for (float& x : logits) x = normal(rng);
    const auto time = [&](const char* name, SamplingParams params) {
      Sampler sampler;
      int64_t position = 0;
      const double s =
          Fastest(o.plan.seconds / 4, [&] { sampler.Sample(logits, params, position++); });
      results->push_back({absl::StrFormat("sample_%s_v%d", name, vocab), s * 1e6, "us", 0, ""});
    };
    time("greedy", {.temperature = 0});
    time("temperature", {});
    time("top_k40", {.top_k = 40});
    time("top_p0.9", {.top_p = 0.9f});
  }
}

// Measures a decode batch: separate rows of logits, spread over the pool.
void MeasureSampledRows(const AttentionBenchOptions& o, int threads,
                        std::vector<KernelResult>* results) {
  constexpr size_t kRows = 32, kVocab = 128256;
  std::mt19937 rng(5);
  std::normal_distribution<float> normal(0, 3);
  std::vector<float> logits(kRows * kVocab);
  for (float& x : logits) x = normal(rng);
  ComputePool pool(threads, o.spin_us);
  Sampler sampler(&pool);
  std::vector<SampledToken> sampled(kRows);
  const auto time = [&](const char* name, const SamplingParams& params) {
    const SequenceSampling sampling(params, {}, {}, 0);
    std::vector<SampleRow> rows;
    for (size_t i = 0; i < kRows; ++i) {
      rows.push_back({std::span(logits).subspan(i * kVocab, kVocab), &sampling, 7});
    }
    const double s = Fastest(o.plan.seconds / 2, [&] { sampler.SampleRows(rows, sampled); });
    std::vector<float> tokens;
    for (const SampledToken& token : sampled) tokens.push_back(static_cast<float>(token.token));
    results->push_back({absl::StrFormat("sample_%d_rows_%s_v%d_t%d", kRows, name, kVocab, threads),
                        s * 1e6, "us", 0, absl::StrFormat("%016x", LogitsDigest(tokens, 0))});
  };
  time("greedy", {.temperature = 0});
  time("top_k40_top_p0.9", {.top_k = 40, .top_p = 0.9f});
  time("top_p0.9", {.top_p = 0.9f});
}

// Returns OK if results of the same work have the same digest, independent of the path and threads
// in their names.
absl::Status CheckDigests(const std::vector<KernelResult>& results) {
  std::map<std::string, const KernelResult*> first;
  for (const KernelResult& result : results) {
    if (result.digest.empty()) continue;
    const auto [entry, is_new] =
        first.emplace(result.name.substr(0, result.name.rfind("_t")), &result);
    if (!is_new && entry->second->digest != result.digest) {
      return absl::InternalError(absl::StrFormat("bits differ: %s gives %s, %s gives %s",
                                                 entry->second->name, entry->second->digest,
                                                 result.name, result.digest));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<KernelResult>> MeasureAttention(const AttentionBenchOptions& options) {
  if (options.group < 1 || options.group > 64)
    return absl::InvalidArgumentError(absl::StrFormat(
        "--group: %d query heads per KV head; it must be from 1 to 64", options.group));
  AttentionBenchOptions o = options;
  if (o.isas.empty()) {
    RequestAmxPermission();
    o.isas = SupportedIsas();
  }
  for (const Isa isa : o.isas) RETURN_IF_ERROR(CheckIsaSupported(isa));
  std::vector<KernelResult> results;
  for (const int head_dim : {64, 128}) {
    for (const KvType type : {KvType::kBf16, KvType::kInt8}) {
      for (const int context : o.contexts) MeasureShapes(o, type, head_dim, context, &results);
    }
  }
  MeasureSampler(o, &results);
  for (const int threads : o.threads) MeasureSampledRows(o, threads, &results);
  return results;
}

absl::Status RunAttentionBench(const AttentionBenchOptions& options) {
  ASSIGN_OR_RETURN(const std::vector<KernelResult> results, MeasureAttention(options));
  PrintKernelTable("attention and sampling, " + CpuModelName(), results);
  if (options.json) PrintKernelJson("v1/cpu-x86/bf16/kv-bf16/l2", results);
  return CheckDigests(results);
}

}  // namespace baton
