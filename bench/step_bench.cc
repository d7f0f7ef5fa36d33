#include "bench/step_bench.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <numeric>
#include <utility>

#include "absl/strings/str_format.h"
#include "common/check.h"
#include "engine/cpu/isa.h"
#include "engine/cpu/machine_probe.h"
#include "engine/kv_pool.h"
#include "engine/step.h"

namespace baton {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kDigestSteps = 8;  // decode steps that a digest covers
constexpr int kMostSteps = 256;  // decode steps of one measurement

double SecondsSince(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// Multiply-adds count twice. Linear layers of one token, LM head of one row, and attention of one
// (query, key) pair over all layers and heads.
struct Work {
  double token, head, pair;
  double weight_bytes;    // read by a decode step
  double kv_token_bytes;  // of one position in all layers

  explicit Work(const ModelDesc& m) {
    const double h = m.hidden, q = m.q_width(), kv = m.kv_width();
    const double layer = h * (q + 2 * kv) + q * h + 3 * h * m.intermediate;
    token = 2 * layer * m.n_layers;
    head = 2 * h * m.vocab;
    pair = 4 * q * m.n_layers;
    weight_bytes = 2 * (layer * m.n_layers + h * m.vocab);
    kv_token_bytes = 2 * 2 * kv * m.n_layers;
  }
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
        work_(backend_->model()) {
    backend_->SetPool(pool_.get());
  }

  KernelResult Prefill(int n) {
    const double gflops = ProbeGflops();
    Sequence sequence = Make(0, n);
    double best = 1e30;
    uint64_t digest = 0;
    const Clock::time_point begin = Clock::now();
    do {
      const Clock::time_point run = Clock::now();
      RunPrompt(sequence, n, true);
      best = std::min(best, SecondsSince(run));
      digest = LogitsDigest(backend_->logits(0), 0);
    } while (SecondsSince(begin) < options_.seconds);
    pool_->Give(sequence.pages);
    const double flops = n * work_.token + work_.head + work_.pair * n * (n + 1.0) / 2;
    return {absl::StrFormat("prefill_%d", n), n / best, "tok/s", n * gflops * 1e9 / flops,
            absl::StrFormat("%016x", digest)};
  }

  KernelResult Decode(int batch) {
    const double gbps = ProbeGbps();
    std::vector<Sequence> sequences;
    for (int i = 0; i < batch; ++i) {
      sequences.push_back(Make(i, options_.context + kMostSteps));
      RunPrompt(sequences.back(), options_.context, false);
    }
    std::vector<double> steps;
    uint64_t digest = 0;
    const Clock::time_point begin = Clock::now();
    while (
        static_cast<int>(steps.size()) < kMostSteps &&
        (static_cast<int>(steps.size()) < kDigestSteps || SecondsSince(begin) < options_.seconds)) {
      const Clock::time_point step = Clock::now();
      RunDecodeStep(sequences, options_.context + static_cast<int>(steps.size()));
      steps.push_back(SecondsSince(step));
      if (static_cast<int>(steps.size()) <= kDigestSteps) {
        digest = LogitsDigest(backend_->logits(0), digest);
      }
    }
    const double keys = options_.context + static_cast<double>(steps.size()) / 2;
    for (const Sequence& sequence : sequences) pool_->Give(sequence.pages);
    std::nth_element(steps.begin(), steps.begin() + steps.size() / 2, steps.end());
    const double median = steps[steps.size() / 2];
    const double bytes = work_.weight_bytes + batch * keys * work_.kv_token_bytes;
    return {absl::StrFormat("decode_%d", batch), batch / median, "tok/s",
            batch * gbps * 1e9 / bytes, absl::StrFormat("%016x", digest)};
  }

  const Backend& backend() const { return *backend_; }

 private:
  Sequence Make(int index, int n) {
    Sequence sequence;
    uint32_t state = 777u + static_cast<uint32_t>(index) * 7919u;
    for (int i = 0; i < n; ++i) {
      state = state * 1664525u + 1013904223u;
      sequence.tokens.push_back(
          static_cast<int32_t>((state >> 8) % static_cast<uint32_t>(backend_->model().vocab)));
    }
    // MakeBench sized the pool for the largest measurement.
    CHECK(pool_->Take(pool_->layout().PagesFor(n), &sequence.pages));
    return sequence;
  }

  // The first n tokens in chunks; the logits of the last one if wanted.
  void RunPrompt(const Sequence& sequence, int n, bool wants_logits) {
    for (int begin = 0; begin < n; begin += options_.engine.max_step_tokens) {
      const int size = std::min(options_.engine.max_step_tokens, n - begin);
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
  double ProbeGflops() const {
    const absl::StatusOr<Isa> isa = ParseIsa(backend_->isa());
    return isa.ok() ? ProbeDotGflops(*isa, *probe_threads_) : 0;
  }
  // As many bytes as a step reads, so that a model that fits the caches is held to their speed.
  double ProbeGbps() const {
    const double bytes = std::clamp(work_.weight_bytes, 1.0 * (1 << 20), 1024.0 * (1 << 20));
    return MemoryProbe(static_cast<int64_t>(bytes)).ReadGbps(*probe_threads_);
  }

  StepBenchOptions options_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<KvPool> pool_;
  std::unique_ptr<ComputePool> probe_threads_;  // idle while the backend computes
  Work work_;
  StepBuilder step_;
};

absl::Status CheckSizes(const StepBenchOptions& options, int max_positions) {
  const auto refuse = [&](const char* name, int value, int most) {
    return absl::InvalidArgumentError(
        absl::StrFormat("bench step: %s is %d; it must be from 1 to %d", name, value, most));
  };
  for (const int n : options.prompts) {
    if (n < 1 || n > max_positions) return refuse("a prompt", n, max_positions);
  }
  for (const int n : options.decode) {
    const int most = options.engine.max_step_tokens;
    if (n < 1 || n > most) return refuse("a decode batch", n, most);
  }
  const int most = max_positions - kMostSteps;
  if (!options.decode.empty() && (options.context < 1 || options.context > most)) {
    return refuse("context", options.context, most);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<StepBench>> MakeBench(const StepBenchOptions& options) {
  ASSIGN_OR_RETURN(std::unique_ptr<Backend> backend, LoadBackend(options.engine));
  RETURN_IF_ERROR(CheckSizes(options, backend->model().max_positions));
  const KvLayout& layout = backend->kv_layout();
  int n_pages = 1;
  for (const int n : options.prompts) n_pages = std::max(n_pages, layout.PagesFor(n));
  for (const int n : options.decode) {
    n_pages = std::max(n_pages, n * layout.PagesFor(options.context + kMostSteps));
  }
  ASSIGN_OR_RETURN(std::unique_ptr<KvPool> pool, KvPool::Create(layout, n_pages));
  auto probe_threads =
      std::make_unique<ComputePool>(ComputeThreads(options.engine.threads), options.engine.spin_us);
  return std::make_unique<StepBench>(options, std::move(backend), std::move(pool),
                                     std::move(probe_threads));
}

// A line that is overwritten, on a terminal only.
class Progress {
 public:
  explicit Progress(size_t total) : total_(total), is_terminal_(::isatty(STDERR_FILENO) == 1) {}
  ~Progress() {
    if (is_terminal_) std::fprintf(stderr, "\r\033[K");
  }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  void Next(const std::string& name) {
    if (!is_terminal_) return;
    const std::string bar(done_ * 20 / total_, '#');
    std::fprintf(stderr, "\r\033[K[%-20s] %s", bar.c_str(), name.c_str());
    ++done_;
  }

 private:
  size_t total_, done_ = 0;
  bool is_terminal_;
};

std::vector<KernelResult> MeasureAll(const StepBenchOptions& options, StepBench& bench) {
  std::vector<KernelResult> results;
  Progress progress(options.prompts.size() + options.decode.size());
  for (const int n : options.prompts) {
    progress.Next(absl::StrFormat("prefill of %d tokens", n));
    results.push_back(bench.Prefill(n));
  }
  for (const int n : options.decode) {
    progress.Next(absl::StrFormat("decode of %d sequences", n));
    results.push_back(bench.Decode(n));
  }
  return results;
}

}  // namespace

absl::StatusOr<std::vector<KernelResult>> MeasureSteps(const StepBenchOptions& options) {
  ASSIGN_OR_RETURN(const std::unique_ptr<StepBench> bench, MakeBench(options));
  return MeasureAll(options, *bench);
}

absl::Status RunStepBench(const StepBenchOptions& options) {
  ASSIGN_OR_RETURN(const std::unique_ptr<StepBench> bench, MakeBench(options));
  const std::vector<KernelResult> results = MeasureAll(options, *bench);
  const Backend& backend = bench->backend();
  PrintKernelTable(
      absl::StrFormat("%s (%.1f M parameters), %s, %d threads, chunk %d, decode at context %d",
                      backend.model().name,
                      static_cast<double>(backend.model().n_parameters()) / 1e6, backend.isa(),
                      ComputeThreads(options.engine.threads), options.engine.max_step_tokens,
                      options.context),
      results);
  if (options.json) PrintKernelJson(backend.numerics_id(), results);
  return absl::OkStatus();
}

}  // namespace baton
