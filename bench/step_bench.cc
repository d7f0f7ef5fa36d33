#include "bench/step_bench.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "bench/made_up_prompt.h"
#include "bench/progress.h"
#include "bench/step_work.h"
#include "common/check.h"
#include "engine/cpu/isa.h"
#include "engine/cpu/machine_probe.h"
#include "engine/kv_pool.h"
#include "engine/step.h"

namespace baton {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kDigestSteps = 8;  // decode steps that a digest covers
// Decode steps of one sample: as many as fit into the time, at most kSampleSteps.
constexpr int kSampleSteps = 8;
constexpr double kSampleSeconds = 0.1;
constexpr int64_t kLeastProbeBytes = int64_t{1} << 20;
constexpr double kTwoStates = 1.25;     // bandwidths this far apart are two states of the machine
constexpr double kMostMemoryMb = 300;   // of a worker, beside weights and KV
constexpr double kMostLoadSeconds = 1;  // of a model of 1 G parameters

double SecondsSince(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

int MostDecodeSteps(const StepBenchOptions& options) {
  return std::max(kDigestSteps, options.samples * kSampleSteps);
}

// Of this process. Pages of files do not count.
absl::StatusOr<int64_t> ResidentAnonymousBytes() {
  std::ifstream status("/proc/self/status");
  int64_t kib = 0, found = 0;
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("RssAnon:", 0) != 0 && line.rfind("RssShmem:", 0) != 0) continue;
    kib += std::atoll(line.c_str() + line.find(':') + 1);
    ++found;
  }
  if (found != 2) return absl::UnavailableError("/proc/self/status does not tell resident memory");
  return kib * 1024;
}

// GFLOP/s of the path's instruction: for linear layers by the type of the weights, for attention
// bf16. 0: unknown, and no limit.
struct Roof {
  double linear = 0, attention = 0;

  double Seconds(const StepFlops& flops) const {
    return linear > 0 ? (flops.linear / linear + flops.attention / attention) / 1e9 : 0;
  }
  Roof Max(const Roof& other) const {
    return {std::max(linear, other.linear), std::max(attention, other.attention)};
  }
};

// A decode measurement: steps between two probes of the bandwidth.
struct DecodeSample {
  double rate, limit;  // tokens per second
  double gbps;         // of the faster probe
  double seconds;      // of a step
  double share() const { return rate / limit; }
};

// A prompt in steps of `chunk` tokens, or as one slice in parts of so many.
struct PrefillWay {
  int chunk;
  bool is_slice;
  double best = 1e30;  // seconds
  uint64_t digest = 0;
};

// One sequence of made-up tokens.
struct Sequence {
  std::vector<int32_t> tokens;
  std::vector<int32_t> pages;
};

class StepBench {
 public:
  StepBench(const StepBenchOptions& options, std::unique_ptr<Backend> backend,
            std::unique_ptr<KvPool> pool, std::unique_ptr<ComputePool> probe_threads)
      : options_(options),
        backend_(std::move(backend)),
        pool_(std::move(pool)),
        probe_threads_(std::move(probe_threads)),
        work_(backend_->model(), backend_->kv_layout(), backend_->weight_memory().bytes),
        probe_(std::clamp(backend_->weight_memory().bytes, kLeastProbeBytes, kProbeBytes)) {
    backend_->SetPool(pool_.get());
  }

  // The ways take turns, so that what changes on the machine changes for all.
  std::vector<KernelResult> Prefill(int n) {
    Roof roof = ProbeRoof();
    Sequence sequence = Make(0, n);
    std::vector<PrefillWay> ways = Ways();
    const Clock::time_point begin = Clock::now();
    do {
      for (PrefillWay& way : ways) {
        const Clock::time_point run = Clock::now();
        if (way.is_slice) {
          RunSlice(sequence, n, way.chunk);
        } else {
          RunPrompt(sequence, n, way.chunk, true);
        }
        way.best = std::min(way.best, SecondsSince(run));
        way.digest = LogitsDigest(way.is_slice ? backend_->slice_logits() : backend_->logits(0), 0);
      }
    } while (SecondsSince(begin) < options_.seconds * static_cast<double>(ways.size()));
    pool_->Give(sequence.pages);
    roof = roof.Max(ProbeRoof());
    const double seconds = roof.Seconds(work_.PrefillFlops(n));
    const double limit = seconds > 0 ? n / seconds : 0;
    std::vector<KernelResult> results;
    for (const PrefillWay& way : ways) {
      const std::string name =
          way.is_slice || options_.chunks.size() > 1
              ? absl::StrFormat("_%s_%d", way.is_slice ? "slice" : "chunk", way.chunk)
              : "";
      results.push_back({absl::StrFormat("prefill_%d%s", n, name), n / way.best, "tok/s", limit,
                         absl::StrFormat("%016x", way.digest),
                         absl::StrFormat("roof %.0f GFLOP/s", roof.linear), way.best});
    }
    return results;
  }

  KernelResult Decode(int batch) {
    std::vector<Sequence> sequences;
    for (int i = 0; i < batch; ++i) {
      sequences.push_back(Make(i, options_.context + MostSteps()));
      RunPrompt(sequences.back(), options_.context, options_.chunks[0], false);
    }
    const Roof roof = ProbeRoof();
    std::vector<DecodeSample> samples;
    uint64_t digest = 0;
    int step = 0;
    double before = ProbeGbps();
    for (int i = 0; i < options_.samples; ++i) {
      const int first = step;
      const Clock::time_point begin = Clock::now();
      do {
        RunDecodeStep(sequences, options_.context + step);
        if (step++ < kDigestSteps) digest = LogitsDigest(backend_->logits(0), digest);
      } while (step < first + kSampleSteps && SecondsSince(begin) < kSampleSeconds);
      const double seconds = SecondsSince(begin) / (step - first);
      const double after = ProbeGbps();
      samples.push_back(
          SampleOf(batch, seconds, (first + step) / 2.0, std::max(before, after), roof));
      before = after;
    }
    while (step < kDigestSteps) {
      RunDecodeStep(sequences, options_.context + step++);
      digest = LogitsDigest(backend_->logits(0), digest);
    }
    for (const Sequence& sequence : sequences) pool_->Give(sequence.pages);
    return ResultOf(absl::StrFormat("decode_%d", batch), samples, digest);
  }

  // Of this process, beside packed weights, KV pool and the memory that the probe reads.
  absl::StatusOr<KernelResult> Memory() const {
    ASSIGN_OR_RETURN(const int64_t resident, ResidentAnonymousBytes());
    const WeightMemory weights = backend_->weight_memory();
    const int64_t beside = resident - pool_->layout().page_bytes * pool_->total() - probe_.bytes() -
                           (weights.is_shared ? 0 : weights.bytes);
    return KernelResult{"memory_beside_weights_and_kv",
                        static_cast<double>(beside) / 1e6,
                        "MB",
                        kMostMemoryMb,
                        "",
                        ""};
  }

  // Of a model whose weights are packed and in memory, as the host's next worker finds it.
  absl::StatusOr<KernelResult> LoadAgain() const {
    const Clock::time_point begin = Clock::now();
    RETURN_IF_ERROR(LoadBackend(options_.engine).status());
    const double seconds = SecondsSince(begin);
    return KernelResult{"load_packed_again", seconds, "s", kMostLoadSeconds, "", "", seconds};
  }

  // Whether decoding has to read more than the caches of any machine hold.
  bool IsLarge() const { return backend_->weight_memory().bytes > kProbeBytes; }

  const Backend& backend() const { return *backend_; }

 private:
  std::vector<PrefillWay> Ways() const {
    std::vector<PrefillWay> ways;
    for (const int chunk : options_.chunks) {
      ways.push_back({chunk, false});
      if (options_.slices) ways.push_back({chunk, true});
    }
    return ways;
  }

  void RunSlice(const Sequence& sequence, int n, int part) {
    step_.Clear();
    step_.AddPiece(std::span(sequence.tokens).first(static_cast<size_t>(n)), 0, sequence.pages);
    step_.WantLogits(n - 1);
    backend_->BeginSlice(step_.batch());
    const int n_layers = backend_->model().n_layers;
    for (int layer = 0; layer < n_layers; ++layer) {
      for (int from = 0; from < n; from += part)
        backend_->ProjectSlice(layer, from, std::min(n, from + part));
      const int first = layer + 1 < n_layers ? 0 : (n - 1) / part * part;  // the rest is for nobody
      for (int from = first; from < n; from += part)
        backend_->FinishSlice(layer, from, std::min(n, from + part));
    }
  }

  Sequence Make(int index, int n) {
    Sequence sequence;
    sequence.tokens = MadeUpPrompt(n, static_cast<uint64_t>(index), backend_->model().vocab);
    // MakeBench sized the pool for the largest measurement.
    CHECK(pool_->Take(pool_->layout().PagesFor(n), &sequence.pages));
    return sequence;
  }

  // The first n tokens in chunks; the logits of the last one if wanted.
  void RunPrompt(const Sequence& sequence, int n, int chunk, bool wants_logits) {
    for (int begin = 0; begin < n; begin += chunk) {
      const int size = std::min(chunk, n - begin);
      step_.Clear();
      step_.AddPiece(std::span(sequence.tokens).subspan(begin, size), begin, sequence.pages);
      if (wants_logits && begin + size == n) step_.WantLogits(size - 1);
      RunStep();
    }
  }

  void RunDecodeStep(const std::vector<Sequence>& sequences, int position) {
    step_.Clear();
    for (const Sequence& sequence : sequences) {
      const int row =
          step_.AddPiece(std::span(&sequence.tokens[position], 1), position, sequence.pages);
      step_.WantLogits(row);
    }
    RunStep();
  }

  void RunStep() {
    backend_->Begin(step_.batch());
    backend_->RunLayers(0, backend_->model().n_layers);
  }

  // The fp32 mode has no roof of its own: it is a reference, not a way to serve.
  Roof ProbeRoof() const {
    const absl::StatusOr<Isa> isa = ParseIsa(backend_->isa());
    if (!isa.ok()) return {};
    const std::string& dtype = options_.engine.dtype;
    const double dot = ProbeDotGflops(*isa, *probe_threads_);
    if (dtype != "int8" && dtype != "int4") return {dot, dot};
    const WeightType type = dtype == "int8" ? WeightType::kInt8 : WeightType::kInt4;
    return {ProbeIntegerGops(*isa, type, *probe_threads_), dot};
  }
  double ProbeGbps() const { return probe_.ReadGbps(*probe_threads_, 1); }

  DecodeSample SampleOf(int batch, double seconds, double steps, double gbps,
                        const Roof& roof) const {
    const double keys = options_.context + steps;
    double limit = batch * gbps * 1e9 / work_.DecodeBytes(batch, keys);
    limit = std::min(limit, batch / roof.Seconds(work_.DecodeFlops(batch, keys)));
    return {batch / seconds, limit, gbps, seconds};
  }

  // The median sample, and in which state of the machine it was taken: shared machines jump between
  // two bandwidths.
  static KernelResult ResultOf(const std::string& name, std::vector<DecodeSample>& samples,
                               uint64_t digest) {
    const auto [low, high] = std::minmax_element(
        samples.begin(), samples.end(),
        [](const DecodeSample& a, const DecodeSample& b) { return a.gbps < b.gbps; });
    const double lowest = low->gbps, highest = high->gbps;
    const auto middle = samples.begin() + static_cast<std::ptrdiff_t>(samples.size() / 2);
    std::nth_element(
        samples.begin(), middle, samples.end(),
        [](const DecodeSample& a, const DecodeSample& b) { return a.share() < b.share(); });
    const char* state = "steady";
    if (highest > kTwoStates * lowest) {
      state = middle->gbps * middle->gbps > lowest * highest ? "high" : "low";
    }
    return {name,
            middle->rate,
            "tok/s",
            middle->limit,
            absl::StrFormat("%016x", digest),
            absl::StrFormat("%.1f GB/s beside it, %s (%.1f to %.1f in %d samples)", middle->gbps,
                            state, lowest, highest, samples.size()),
            middle->seconds};
  }

  int MostSteps() const { return MostDecodeSteps(options_); }

  StepBenchOptions options_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<KvPool> pool_;
  std::unique_ptr<ComputePool> probe_threads_;  // idle while the backend computes
  StepWork work_;
  MemoryProbe probe_;  // a model that fits the caches is held to their speed
  StepBuilder step_;
};

absl::Status CheckSizes(const StepBenchOptions& options, int max_positions) {
  const auto check = [](const char* name, int value, int most) -> absl::Status {
    if (value >= 1 && value <= most) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrFormat("bench step: %s is %d; it must be from 1 to %d", name, value, most));
  };
  for (const int n : options.prompts) RETURN_IF_ERROR(check("a prompt", n, max_positions));
  for (const int n : options.decode) RETURN_IF_ERROR(check("a decode batch", n, 4096));
  for (const int n : options.chunks) RETURN_IF_ERROR(check("a chunk", n, 65536));
  if (options.chunks.empty()) return check("the number of chunks", 0, 16);
  RETURN_IF_ERROR(check("samples", options.samples, 1000));
  if (options.decode.empty()) return absl::OkStatus();
  return check("context", options.context, max_positions - MostDecodeSteps(options));
}

absl::StatusOr<std::unique_ptr<StepBench>> MakeBench(const StepBenchOptions& options) {
  EngineOptions engine = options.engine;
  engine.max_step_tokens = 1;
  for (const int n : options.chunks) engine.max_step_tokens = std::max(engine.max_step_tokens, n);
  for (const int n : options.decode) engine.max_step_tokens = std::max(engine.max_step_tokens, n);
  if (options.slices && !options.prompts.empty()) {
    engine.max_slice_tokens =
        std::max(1, *std::max_element(options.prompts.begin(), options.prompts.end()));
  }
  ASSIGN_OR_RETURN(std::unique_ptr<Backend> backend, LoadBackend(engine));
  RETURN_IF_ERROR(CheckSizes(options, backend->model().max_positions));
  const KvLayout& layout = backend->kv_layout();
  int n_pages = 1;
  for (const int n : options.prompts) n_pages = std::max(n_pages, layout.PagesFor(n));
  for (const int n : options.decode) {
    const int tokens = options.context + MostDecodeSteps(options);
    n_pages = std::max(n_pages, n * layout.PagesFor(tokens));
  }
  ASSIGN_OR_RETURN(std::unique_ptr<KvPool> pool, KvPool::Create(layout, n_pages));
  auto probe_threads =
      std::make_unique<ComputePool>(ComputeThreads(engine.threads), engine.spin_us);
  return std::make_unique<StepBench>(options, std::move(backend), std::move(pool),
                                     std::move(probe_threads));
}

absl::StatusOr<std::vector<KernelResult>> MeasureAll(const StepBenchOptions& options,
                                                     StepBench& bench) {
  std::vector<KernelResult> results;
  Progress progress(options.prompts.size() + options.decode.size());
  for (const int n : options.prompts) {
    progress.Next(absl::StrFormat("prefill of %d tokens", n));
    for (KernelResult& result : bench.Prefill(n)) results.push_back(std::move(result));
  }
  for (const int n : options.decode) {
    progress.Next(absl::StrFormat("decode of %d sequences", n));
    results.push_back(bench.Decode(n));
  }
  ASSIGN_OR_RETURN(results.emplace_back(), bench.Memory());
  if (bench.backend().weight_memory().is_shared) {
    ASSIGN_OR_RETURN(results.emplace_back(), bench.LoadAgain());
  }
  return results;
}

absl::Status Check(const std::vector<KernelResult>& results, bool is_large) {
  for (const KernelResult& result : results) {
    if (is_large && result.name.rfind("decode", 0) == 0) RETURN_IF_ERROR(CheckBelowLimit(result));
    if (result.unit == "MB" && result.value > result.limit) {
      return absl::InternalError(
          absl::StrFormat("an engine takes %.0f MB beside weights and KV pool; %.0f are promised",
                          result.value, result.limit));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<KernelResult>> MeasureSteps(const StepBenchOptions& options) {
  ASSIGN_OR_RETURN(const std::unique_ptr<StepBench> bench, MakeBench(options));
  return MeasureAll(options, *bench);
}

absl::Status RunStepBench(const StepBenchOptions& options) {
  ASSIGN_OR_RETURN(const std::unique_ptr<StepBench> bench, MakeBench(options));
  ASSIGN_OR_RETURN(const std::vector<KernelResult> results, MeasureAll(options, *bench));
  const Backend& backend = bench->backend();
  PrintKernelTable(
      absl::StrFormat("%s (%.1f M parameters), %s, %s, %d threads, chunks of %s, decode at context "
                      "%d",
                      backend.model().name,
                      static_cast<double>(backend.model().n_parameters()) / 1e6,
                      backend.numerics_id(), backend.isa(), ComputeThreads(options.engine.threads),
                      absl::StrJoin(options.chunks, " and "), options.context),
      results);
  if (options.json) PrintKernelJson(backend.numerics_id(), results);
  return Check(results, bench->IsLarge());
}

}  // namespace baton
