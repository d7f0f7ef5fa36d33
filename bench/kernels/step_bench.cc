#include "bench/kernels/step_bench.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "bench/kernels/step_limits.h"
#include "bench/kernels/step_phases.h"
#include "bench/kernels/step_work.h"
#include "bench/probed_sample.h"
#include "bench/synthetic_prompt.h"
#include "common/check.h"
#include "common/progress_bar.h"
#include "engine/cpu/machine/isa.h"
#include "engine/kv/kv_pool.h"
#include "engine/load_backend.h"
#include "engine/sampling/sampler.h"
#include "engine/sampling/sequence_sampling.h"
#include "engine/step/step.h"
#include "engine/threads/phase_clock.h"

namespace baton {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kDigestSteps = 8;  // decode steps in a digest
// Max decode steps of one sample; a sample takes at most kSampleSeconds.
constexpr int kSampleSteps = 8;
constexpr double kSampleSeconds = 0.1;
// Steps before a sample, which take back the caches from the probe: weights of a small model stay
// in L3 from step to step, and a step right after a probe takes up to twice as long. Large models
// read memory in any case.
constexpr int kWarmSteps = 6;
constexpr double kWarmSeconds = 0.02;
constexpr int64_t kMinProbeBytes = int64_t{1} << 20;
constexpr double kMaxMemoryMb = 300;   // of a worker, without weights and KV
constexpr double kMaxLoadSeconds = 1;  // of a model of 1 G parameters

double SecondsSince(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

int MaxDecodeSteps(const StepBenchOptions& options) {
  return std::max(kDigestSteps, options.samples * kSampleSteps);
}

// Returns the resident bytes of this process without pages of files.
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

// A prompt in steps of `chunk` tokens, or as one slice in parts of that length.
struct PrefillWay {
  int chunk;
  bool is_slice;
  std::vector<ProbedSample> samples = {};
  uint64_t digest = 0;
};

// One sequence of generated tokens.
struct Sequence {
  std::vector<int32_t> tokens;
  std::vector<int32_t> pages;
};

// Returns nullopt for the fp32 mode, which has no peak because it is only a reference.
std::optional<Isa> IsaOf(const Backend& backend) {
  const absl::StatusOr<Isa> isa = ParseIsa(backend.isa());
  return isa.ok() ? std::optional<Isa>(*isa) : std::nullopt;
}

class StepBench {
 public:
  StepBench(const StepBenchOptions& options, std::unique_ptr<Backend> backend,
            std::unique_ptr<KvPool> pool)
      : options_(options),
        backend_(std::move(backend)),
        pool_(std::move(pool)),
        work_(backend_->model(), backend_->kv_layout(), backend_->weight_memory().bytes),
        probe_(IsaOf(*backend_), WeightTypes::Of(options.engine.dtype),
               std::clamp(backend_->weight_memory().bytes, kMinProbeBytes, kProbeBytes),
               *backend_->compute_pool()),
        sampler_(backend_->compute_pool()) {
    backend_->SetPages(pool_->pages());
  }

  // Measures the ways in turns, so that a change of the machine's state reaches all of them.
  std::vector<KernelResult> Prefill(int n) {
    Sequence sequence = Make(0, n);
    std::vector<PrefillWay> ways = Ways();
    const double max_seconds = options_.seconds * static_cast<double>(ways.size());
    const Clock::time_point begin = Clock::now();
    for (int round = 0; round < options_.rounds || SecondsSince(begin) < max_seconds; ++round) {
      for (PrefillWay& way : ways) {
        way.samples.push_back(way.is_slice ? RunSlice(sequence, n, way.chunk)
                                           : RunChunks(sequence, n, way.chunk));
        way.digest = LogitsDigest(way.is_slice ? backend_->slice_logits() : backend_->logits(0), 0);
      }
    }
    std::vector<KernelResult> lines;
    for (const PrefillWay& way : ways) {
      KernelResult& line = lines.emplace_back();
      line.name = absl::StrFormat("prefill_%d", n);
      if (way.is_slice || options_.chunks.size() > 1) {
        absl::StrAppendFormat(&line.name, "_%s_%d", way.is_slice ? "slice" : "chunk", way.chunk);
      }
      line.unit = "tok/s";
      line.digest = absl::StrFormat("%016x", way.digest);
      SetSamples(way.samples, n, &line);
      const double flops = work_.PrefillFlops(n).linear() + work_.PrefillFlops(n).attention;
      if (line.limit > 0) {
        line.note = absl::StrFormat("peak %.0f GFLOP/s", flops * line.limit / n / 1e9);
      }
    }
    if (options_.phases) AddPrefillPhases(sequence, n, &lines);
    pool_->Give(sequence.pages);
    return lines;
  }

  std::vector<KernelResult> Decode(int batch) {
    std::vector<Sequence> sequences = MakeBatch(batch);
    std::vector<ProbedSample> samples;
    std::vector<double> gbps;
    uint64_t digest = 0;
    int step = 0, bound_by_peak = 0;
    MachineState before = probe_.PeaksAndBandwidth();
    for (int i = 0; i < options_.samples; ++i) {
      const int first = step;
      WarmUp(sequences, options_.context + first);
      double seconds = 0;
      do {
        seconds += RunDecodeStep(sequences, options_.context + step);
        if (step++ < kDigestSteps) digest = LogitsDigest(backend_->logits(0), digest);
      } while (step < first + kSampleSteps && seconds < kSampleSeconds);
      const double keys = options_.context + (first + step) / 2.0;
      const StepFlops flops = work_.DecodeFlops(batch, keys);
      const double bytes = work_.DecodeBytes(batch, keys);
      const MachineState after = probe_.PeaksAndBandwidth();
      samples.emplace_back().Add(seconds / (step - first), before.MinSeconds(flops, bytes),
                                 after.MinSeconds(flops, bytes));
      gbps.push_back(after.gbps);
      bound_by_peak += after.MinSeconds(flops) == after.MinSeconds(flops, bytes);
      before = after;
    }
    while (step < kDigestSteps) {
      RunDecodeStep(sequences, options_.context + step++);
      digest = LogitsDigest(backend_->logits(0), digest);
    }
    std::vector<KernelResult> lines(1);
    KernelResult& line = lines.front();
    line.name = absl::StrFormat("decode_%d", batch);
    line.unit = "tok/s";
    line.digest = absl::StrFormat("%016x", digest);
    SetSamples(samples, batch, &line);
    std::sort(gbps.begin(), gbps.end());
    line.note = absl::StrFormat("bound by %s, %.1f GB/s beside it",
                                2 * bound_by_peak > options_.samples ? "multiply-adds" : "memory",
                                gbps[gbps.size() / 2]);
    if (options_.phases) AddDecodePhases(sequences, &lines);
    for (const Sequence& sequence : sequences) pool_->Give(sequence.pages);
    return lines;
  }

  // Returns the memory of this process without packed weights, KV pool and the memory that the
  // probe reads.
  absl::StatusOr<KernelResult> Memory() const {
    ASSIGN_OR_RETURN(const int64_t resident, ResidentAnonymousBytes());
    const WeightMemory weights = backend_->weight_memory();
    const int64_t beside = resident - pool_->layout().page_bytes * pool_->total() - probe_.bytes() -
                           (weights.is_shared ? 0 : weights.bytes);
    return KernelResult{"memory_beside_weights_and_kv",
                        static_cast<double>(beside) / 1e6,
                        "MB",
                        kMaxMemoryMb,
                        "",
                        ""};
  }

  // Measures the load of a model whose weights are packed and in memory, as for the host's next
  // worker.
  absl::StatusOr<KernelResult> LoadAgain() const {
    const Clock::time_point begin = Clock::now();
    RETURN_IF_ERROR(LoadLabBackend(options_.engine, options_.lab).status());
    const double seconds = SecondsSince(begin);
    return KernelResult{"load_packed_again", seconds, "s", kMaxLoadSeconds, "", "", seconds};
  }

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

  // Runs one sample of one part; no probes run between its layers.
  ProbedSample RunSlice(const Sequence& sequence, int n, int part) {
    const MachineState before = probe_.Peaks();
    const Clock::time_point begin = Clock::now();
    step_.Clear();
    step_.AddPiece(std::span(sequence.tokens).first(static_cast<size_t>(n)), 0, sequence.pages);
    step_.WantLogits(n - 1);
    backend_->BeginSlice(step_.batch());
    const int n_layers = backend_->model().n_layers;
    for (int layer = 0; layer < n_layers; ++layer) {
      for (int from = 0; from < n; from += part)
        backend_->ProjectSlice(layer, from, std::min(n, from + part));
      const int first =
          layer + 1 < n_layers ? 0 : (n - 1) / part * part;  // only the last rows are read
      for (int from = first; from < n; from += part)
        backend_->FinishSlice(layer, from, std::min(n, from + part));
    }
    const double seconds = SecondsSince(begin);
    const StepFlops flops = work_.PrefillFlops(n);
    ProbedSample sample;
    sample.Add(seconds, before.MinSeconds(flops), probe_.Peaks().MinSeconds(flops));
    return sample;
  }

  // Runs a prompt in steps, each a part with probes before and after.
  ProbedSample RunChunks(const Sequence& sequence, int n, int chunk) {
    ProbedSample sample;
    MachineState before = probe_.Peaks();
    for (int begin = 0; begin < n; begin += chunk) {
      const int end = std::min(begin + chunk, n);
      const double seconds = RunChunk(sequence, begin, end, end == n);
      const MachineState after = probe_.Peaks();
      const StepFlops flops = work_.PrefillFlops(begin, end, end == n);
      sample.Add(seconds, before.MinSeconds(flops), after.MinSeconds(flops));
      before = after;
    }
    return sample;
  }

  // Adds the phases of one prompt, computed in steps of the first chunk size.
  void AddPrefillPhases(const Sequence& sequence, int n, std::vector<KernelResult>* lines) {
    const int chunk = options_.chunks[0];
    std::vector<PhaseClock> runs;
    RunChunk(sequence, 0, 1, true);  // the sampler gets its memory
    Sample(1);
    const Clock::time_point start = Clock::now();
    do {
      PhaseClock& clock = runs.emplace_back(backend_->compute_pool()->n_threads());
      for (int begin = 0; begin < n; begin += chunk) {
        const int end = std::min(begin + chunk, n);
        RunTimed(&clock, end == n ? 1 : 0, [&] { RunChunk(sequence, begin, end, end == n); });
      }
    } while (static_cast<int>(runs.size()) < options_.rounds ||
             SecondsSince(start) < options_.seconds);
    AddLines(PhaseLines(absl::StrFormat("prefill_%d", n), runs, (n + chunk - 1) / chunk), lines);
  }

  // Runs the first steps again, so that tokens and keys are those of the samples.
  void AddDecodePhases(const std::vector<Sequence>& sequences, std::vector<KernelResult>* lines) {
    const int batch = static_cast<int>(sequences.size());
    std::vector<PhaseClock> runs;
    RunDecodeStep(sequences, options_.context);  // the probes have used the caches
    Sample(batch);                               // and the sampler has no memory yet
    const Clock::time_point start = Clock::now();
    do {
      const int position = options_.context + static_cast<int>(runs.size());
      RunTimed(&runs.emplace_back(backend_->compute_pool()->n_threads()), batch,
               [&] { RunDecodeStep(sequences, position); });
    } while (static_cast<int>(runs.size()) < MaxSteps() && SecondsSince(start) < options_.seconds);
    AddLines(PhaseLines(absl::StrFormat("decode_%d", batch), runs, 1), lines);
  }

  // Runs a step, and chooses a token from each of its logits.
  template <typename Step>
  void RunTimed(PhaseClock* clock, int n_logits, const Step& run_step) {
    ComputePool& pool = *backend_->compute_pool();
    pool.SetClock(clock);
    clock->Start();
    run_step();
    if (n_logits > 0) {
      const PhaseScope sampling(clock, Phase::kSample);
      Sample(n_logits);
    }
    clock->Stop();
    pool.SetClock(nullptr);
  }

  void Sample(int n_logits) {
    std::vector<SampleRow> rows;
    for (int i = 0; i < n_logits; ++i) rows.push_back({backend_->logits(i), &sampling_, 0});
    std::vector<SampledToken> sampled(rows.size());
    sampler_.SampleRows(rows, sampled);
  }

  static void AddLines(const std::vector<KernelResult>& more, std::vector<KernelResult>* lines) {
    lines->insert(lines->end(), more.begin(), more.end());
  }

  Sequence Make(int index, int n) {
    Sequence sequence;
    sequence.tokens = MadeUpPrompt(n, static_cast<uint64_t>(index), backend_->model().vocab);
    // MakeBench sized the pool for the largest measurement.
    BATON_CHECK(pool_->Take(pool_->layout().PagesFor(n), &sequence.pages));
    return sequence;
  }

  // Makes sequences whose next token is the one after the context.
  std::vector<Sequence> MakeBatch(int batch) {
    std::vector<Sequence> sequences;
    for (int i = 0; i < batch; ++i) {
      const Sequence& sequence = sequences.emplace_back(Make(i, options_.context + MaxSteps()));
      for (int begin = 0; begin < options_.context; begin += options_.chunks[0]) {
        RunChunk(sequence, begin, std::min(begin + options_.chunks[0], options_.context), false);
      }
    }
    return sequences;
  }

  // Returns the seconds of a step.
  double RunChunk(const Sequence& sequence, int begin, int end, bool wants_logits) {
    step_.Clear();
    const size_t size = static_cast<size_t>(end - begin);
    step_.AddPiece(std::span(sequence.tokens).subspan(begin, size), begin, sequence.pages);
    if (wants_logits) step_.WantLogits(end - begin - 1);
    return RunStep();
  }

  void WarmUp(const std::vector<Sequence>& sequences, int position) {
    double seconds = 0;
    for (int i = 0; i < kWarmSteps && seconds < kWarmSeconds; ++i)
      seconds += RunDecodeStep(sequences, position);
  }

  double RunDecodeStep(const std::vector<Sequence>& sequences, int position) {
    step_.Clear();
    for (const Sequence& sequence : sequences) {
      const int row =
          step_.AddPiece(std::span(&sequence.tokens[position], 1), position, sequence.pages);
      step_.WantLogits(row);
    }
    return RunStep();
  }

  double RunStep() {
    const Clock::time_point begin = Clock::now();
    backend_->Begin(step_.batch());
    backend_->RunLayers(0, backend_->model().n_layers);
    return SecondsSince(begin);
  }

  int MaxSteps() const { return MaxDecodeSteps(options_); }

  StepBenchOptions options_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<KvPool> pool_;
  StepWork work_;
  StepProbe probe_;  // for a model that fits the caches, the limit is their speed
  StepBuilder step_;
  Sampler sampler_;
  const SamplingParams params_;
  const SequenceSampling sampling_{params_};
};

absl::Status CheckSizes(const StepBenchOptions& options, int max_positions) {
  const auto check = [](const char* name, int value, int max) -> absl::Status {
    if (value >= 1 && value <= max) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrFormat("bench step: %s is %d; it must be from 1 to %d", name, value, max));
  };
  for (const int n : options.prompts) RETURN_IF_ERROR(check("a prompt", n, max_positions));
  for (const int n : options.decode) RETURN_IF_ERROR(check("a decode batch", n, 4096));
  for (const int n : options.chunks) RETURN_IF_ERROR(check("a chunk", n, 65536));
  if (options.chunks.empty()) return check("the number of chunks", 0, 16);
  RETURN_IF_ERROR(check("samples", options.samples, 1000));
  RETURN_IF_ERROR(check("rounds", options.rounds, 1000));
  if (options.decode.empty()) return absl::OkStatus();
  return check("context", options.context, max_positions - MaxDecodeSteps(options));
}

absl::StatusOr<std::unique_ptr<StepBench>> MakeBench(const StepBenchOptions& options) {
  EngineOptions engine = options.engine;
  engine.limits.max_step_tokens = 1;
  for (const int n : options.chunks)
    engine.limits.max_step_tokens = std::max(engine.limits.max_step_tokens, n);
  for (const int n : options.decode)
    engine.limits.max_step_tokens = std::max(engine.limits.max_step_tokens, n);
  if (options.slices && !options.prompts.empty()) {
    engine.limits.max_slice_tokens =
        std::max(1, *std::max_element(options.prompts.begin(), options.prompts.end()));
  }
  ASSIGN_OR_RETURN(std::unique_ptr<Backend> backend, LoadLabBackend(engine, options.lab));
  RETURN_IF_ERROR(CheckSizes(options, backend->model().max_positions));
  if (backend->compute_pool() == nullptr) {
    return absl::UnimplementedError("bench step: this backend has no threads to probe with");
  }
  const KvLayout& layout = backend->kv_layout();
  int n_pages = 1;
  for (const int n : options.prompts) n_pages = std::max(n_pages, layout.PagesFor(n));
  for (const int n : options.decode) {
    const int tokens = options.context + MaxDecodeSteps(options);
    n_pages = std::max(n_pages, n * layout.PagesFor(tokens));
  }
  ASSIGN_OR_RETURN(std::unique_ptr<KvPool> pool, KvPool::Create(layout, n_pages));
  return std::make_unique<StepBench>(options, std::move(backend), std::move(pool));
}

absl::StatusOr<std::vector<KernelResult>> MeasureAll(const StepBenchOptions& options,
                                                     StepBench& bench) {
  std::vector<KernelResult> results;
  ProgressBar progress("measuring", ProgressUnit::kParts,
                       static_cast<double>(options.prompts.size() + options.decode.size()));
  for (const int n : options.prompts) {
    progress.Next(absl::StrFormat("prefill of %d tokens", n));
    for (KernelResult& result : bench.Prefill(n)) results.push_back(std::move(result));
  }
  for (const int n : options.decode) {
    progress.Next(absl::StrFormat("decode of %d sequences", n));
    for (KernelResult& result : bench.Decode(n)) results.push_back(std::move(result));
  }
  ASSIGN_OR_RETURN(results.emplace_back(), bench.Memory());
  if (bench.backend().weight_memory().is_shared) {
    ASSIGN_OR_RETURN(results.emplace_back(), bench.LoadAgain());
  }
  return results;
}

absl::Status Check(const std::vector<KernelResult>& results) {
  for (const KernelResult& result : results) {
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
  return Check(results);
}

}  // namespace baton
