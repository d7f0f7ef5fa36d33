#include "bench/load/load_bench.h"

#include <algorithm>
#include <boost/json.hpp>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "bench/load/idle_probe.h"
#include "bench/load/latency_plot.h"
#include "bench/load/load_replay.h"
#include "bench/load/load_summary.h"
#include "bench/load/metrics_page.h"
#include "bench/load/rate_search.h"
#include "bench/load/session_summary.h"

namespace baton {
namespace {

// Added to the seed of a run, so that no prompt of one was sent by another. Probes add 1, 2, ...
constexpr uint64_t kIdleSeeds = 500, kWarmUpSeeds = 600;
constexpr double kProbeSeconds = 30;
constexpr double kMinProbeRequests = 10;  // fewer say nothing about a share of 90 %

// Seconds since `start`, and at least those in which requests could have arrived.
double Duration(absl::Time start, double arrivals_s) {
  return std::max(absl::ToDoubleSeconds(absl::Now() - start), arrivals_s);
}

struct LoadRun {
  std::vector<Outcome> outcomes;
  std::optional<SessionSummary> sessions;
  std::optional<WorkerCounters> workers;
  double duration_s = 0;
};

class LoadBench {
 public:
  LoadBench(const LoadBenchOptions& options, const HttpUrl& url) : options_(options), url_(url) {}

  absl::StatusOr<int> Measure();   // one run
  absl::StatusOr<int> FindRate();  // probes

 private:
  uint64_t seed() const { return options_.workload.synthetic.seed; }
  bool has_conversations() const { return options_.conversations.n_users > 0; }
  ConversationOptions Conversations(double rate, double seconds, uint64_t seed) const;
  absl::StatusOr<double> FirstRate() const;
  absl::StatusOr<std::pair<int, int>> PromptLengths() const;  // shortest and longest
  absl::Status WarmUp(int n, uint64_t seed) const;
  absl::StatusOr<IdleFigures> Idle() const;
  absl::StatusOr<LoadRun> Run(double rate, double seconds, uint64_t seed) const;
  absl::StatusOr<LoadRun> RunTalks(const ConversationOptions& talks) const;
  absl::StatusOr<GoodputJudge> Prepare() const;

  const LoadBenchOptions& options_;
  const HttpUrl url_;
};

ConversationOptions LoadBench::Conversations(double rate, double seconds, uint64_t seed) const {
  const TraceOptions& trace = options_.workload.trace;
  ConversationOptions talks = options_.conversations;
  talks.trace = trace.path;
  talks.length_scale = trace.length_scale;
  talks.time_scale = trace.time_scale;
  talks.max_context = trace.max_context;
  talks.vocab = options_.workload.synthetic.vocab;
  talks.first_tokens = options_.workload.synthetic.prompt_tokens;
  talks.answer_tokens = options_.workload.synthetic.output_tokens;
  talks.rate = rate;
  talks.seconds = seconds;
  talks.seed = seed;
  return talks;
}

absl::StatusOr<double> LoadBench::FirstRate() const {
  if (options_.workload.rate > 0) return options_.workload.rate;
  if (has_conversations() || options_.workload.trace.path.empty()) return 1;
  ASSIGN_OR_RETURN(const auto requests, MakeRequests(options_.workload, seed()));
  return MeanRate(requests);
}

absl::StatusOr<std::pair<int, int>> LoadBench::PromptLengths() const {
  std::vector<int> lengths;
  if (has_conversations()) {
    ASSIGN_OR_RETURN(const auto talks, MakeConversations(Conversations(0, 0, seed())));
    for (const Conversation& talk : talks) {
      lengths.push_back(talk.turns.front().new_tokens);
      lengths.push_back(PromptTokens(talk, talk.turns.size() - 1));
    }
  } else {
    Workload all = options_.workload;
    all.rate = all.seconds = 0;
    ASSIGN_OR_RETURN(const auto requests, MakeRequests(all, seed()));
    for (const LoadRequest& request : requests) {
      lengths.push_back(static_cast<int>(request.prompt.size()));
    }
  }
  const auto [low, high] = std::minmax_element(lengths.begin(), lengths.end());
  return std::pair(*low, *high);
}

absl::Status LoadBench::WarmUp(int n, uint64_t seed) const {
  const SyntheticOptions options{
      .n_requests = n,
      .prompt_tokens = std::min(256, options_.workload.trace.max_context / 2),
      .output_tokens = 16,
      .vocab = options_.workload.synthetic.vocab,
      .seed = seed + kWarmUpSeeds};
  for (const LoadRequest& request : MakeSynthetic(options)) {
    const Outcome out = RunLoadRequest(HttpClient(url_), request);
    if (!out.ok) return absl::UnavailableError("warm-up request failed: " + out.error);
  }
  return absl::OkStatus();
}

absl::StatusOr<IdleFigures> LoadBench::Idle() const {
  const bool has_file = !options_.idle_file.empty();
  if (has_file) {
    if (std::ifstream file(options_.idle_file); file) {
      return ParseIdleJson(std::string(std::istreambuf_iterator<char>(file), {}));
    }
  } else if (!options_.limits.NeedsIdle()) {
    return IdleFigures();
  }
  ASSIGN_OR_RETURN(const auto lengths, PromptLengths());
  IdleProbeOptions probe;
  probe.min_prompt = lengths.first;
  probe.max_prompt = lengths.second;
  probe.vocab = options_.workload.synthetic.vocab;
  probe.seed = seed() + kIdleSeeds;
  ASSIGN_OR_RETURN(const IdleFigures figures, MeasureIdle(HttpClient(url_), probe));
  if (has_file) {
    std::ofstream file(options_.idle_file);
    file << IdleJson(figures) << "\n";
    if (!file.flush()) {
      return absl::UnavailableError("--idle-file " + options_.idle_file + ": cannot be written");
    }
  }
  return figures;
}

absl::StatusOr<GoodputJudge> LoadBench::Prepare() const {
  RETURN_IF_ERROR(WarmUp(options_.n_warmup, seed()));
  ASSIGN_OR_RETURN(IdleFigures idle, Idle());
  return GoodputJudge(options_.limits, std::move(idle));
}

absl::StatusOr<LoadRun> LoadBench::RunTalks(const ConversationOptions& talks) const {
  LoadRun run;
  ASSIGN_OR_RETURN(const auto conversations, MakeConversations(talks));
  WorkerCounters before;
  if (!options_.worker_metrics.empty()) {
    ASSIGN_OR_RETURN(before, ReadWorkerCounters(options_.worker_metrics));
  }
  const absl::Time start = absl::Now();
  const std::vector<SessionOutcome> sessions = RunConversations(
      url_, conversations, {.seconds = talks.seconds, .vocab = talks.vocab, .seed = talks.seed});
  run.duration_s = Duration(start, talks.rate > 0 ? talks.seconds : 0);
  if (!options_.worker_metrics.empty()) {
    ASSIGN_OR_RETURN(const WorkerCounters after, ReadWorkerCounters(options_.worker_metrics));
    run.workers = after.Since(before);
  }
  run.sessions = SummarizeSessions(sessions);
  for (const SessionOutcome& session : sessions)
    run.outcomes.insert(run.outcomes.end(), session.turns.begin(), session.turns.end());
  return run;
}

absl::StatusOr<LoadRun> LoadBench::Run(double rate, double seconds, uint64_t seed) const {
  if (has_conversations()) return RunTalks(Conversations(rate, seconds, seed));
  Workload workload = options_.workload;
  workload.rate = rate;
  workload.seconds = seconds;
  ASSIGN_OR_RETURN(const auto requests, MakeRequests(workload, seed));
  LoadRun run;
  const absl::Time start = absl::Now();
  run.outcomes =
      Replay(url_, requests, {.max_concurrency = options_.max_concurrency, .seconds = seconds});
  const bool has_arrivals = rate > 0 || !workload.trace.path.empty();
  run.duration_s = Duration(start, has_arrivals ? seconds : 0);
  return run;
}

// Adds a detail per request in the order of sending; a failed request has a TTFT of 0.
void AddDetails(const std::vector<Outcome>& outcomes, boost::json::object* object) {
  boost::json::array lengths, ttfts;
  for (const Outcome& out : outcomes) {
    lengths.push_back(out.n_prompt);
    ttfts.push_back(out.ok ? out.ttft_ms() / 1e3 : 0.0);
  }
  (*object)["input_lens"] = std::move(lengths);
  (*object)["ttfts"] = std::move(ttfts);
}

// How far the router's predictions were off in a run, by its own page. Bounds of its buckets.
void PrintPredictions(const MetricsPage& page, boost::json::object* object) {
  for (const auto& [name, key] :
       {std::pair{"time to first token", "prefill"}, std::pair{"time between tokens", "decode"}}) {
    const std::string histogram = absl::StrFormat("baton_%s_plan_error_ratio", key);
    const double n = page.Sum(histogram + "_count");
    if (n <= 0) continue;
    const double p50 = page.Quantile(histogram, 0.5), p90 = page.Quantile(histogram, 0.9);
    std::printf("  predicted %s off by at most  p50 %.0f %%  p90 %.0f %%  (of %.0f)\n", name,
                100 * p50, 100 * p90, n);
    (*object)[absl::StrFormat("%s_plan_error_p50", key)] = p50;
    (*object)[absl::StrFormat("%s_plan_error_p90", key)] = p90;
  }
}

absl::Status WritePlot(const std::string& path, const LoadSummary& sum, const std::string& label,
                       const std::optional<SessionSummary>& sessions) {
  std::ofstream file(path);
  file << LatencyPlot(sum, label, sessions ? &*sessions : nullptr);
  if (file.flush()) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("--plot ", path, ": cannot be written; give a file in a folder that is there"));
}

absl::StatusOr<int> LoadBench::Measure() {
  ASSIGN_OR_RETURN(const GoodputJudge judge, Prepare());
  const auto before = MetricsPage::Fetch(url_);  // of another server there may be none
  ASSIGN_OR_RETURN(const LoadRun run,
                   Run(options_.workload.rate, options_.workload.seconds, seed()));
  const auto after = MetricsPage::Fetch(url_);
  const LoadSummary sum = Summarize(run.outcomes, judge, run.duration_s);
  const WorkerCounters* workers = run.workers ? &*run.workers : nullptr;
  std::printf("%s  %s\n", options_.label.c_str(), options_.url.c_str());
  PrintSummary(sum, judge);
  if (run.sessions) PrintSessions(*run.sessions, workers);
  boost::json::object object{{"label", options_.label}};
  if (before.ok() && after.ok()) PrintPredictions(after->Since(*before), &object);
  if (options_.json) {
    AddSummary(sum, judge, &object);
    if (run.sessions) AddSessions(*run.sessions, workers, &object);
    if (options_.detailed) AddDetails(run.outcomes, &object);
    std::printf("%s\n", boost::json::serialize(object).c_str());
  }
  if (!options_.plot_file.empty())
    RETURN_IF_ERROR(WritePlot(options_.plot_file, sum, options_.label, run.sessions));
  return sum.failed == 0 ? 0 : 1;
}

absl::StatusOr<int> LoadBench::FindRate() {
  ASSIGN_OR_RETURN(const double first, FirstRate());
  ASSIGN_OR_RETURN(const GoodputJudge judge, Prepare());
  const double seconds = options_.workload.seconds > 0 ? options_.workload.seconds : kProbeSeconds;
  RateSearch search({.first = first, .min_rate = kMinProbeRequests / seconds});
  boost::json::array probes;
  std::printf("%s  %s  probes of %g s\n  good: %s\n", options_.label.c_str(), options_.url.c_str(),
              seconds, LimitsInWords(judge).c_str());
  std::printf("  %10s %8s %8s %8s %10s %10s\n", "requests/s", "judged", "good", "good %", "good/s",
              "ttft p50");
  uint64_t seed_of_probe = seed();
  while (const std::optional<double> rate = search.Next()) {
    ++seed_of_probe;
    ASSIGN_OR_RETURN(const LoadRun run, Run(*rate, seconds, seed_of_probe));
    const LoadSummary sum = Summarize(run.outcomes, judge, run.duration_s);
    if (sum.completed == 0 && sum.failed > 0) {
      return absl::UnavailableError(
          absl::StrCat("no request of a probe at ", *rate, "/s was answered: ", sum.first_error));
    }
    const double ttft_ms = sum.metrics.front().values.percentile(50);
    std::printf("  %10.3f %8d %8d %8.1f %10.2f %10.1f\n", *rate, sum.judged, sum.good,
                100 * sum.good_share(), sum.good_per_s(), ttft_ms);
    std::fflush(stdout);
    probes.push_back(boost::json::object{{"rate", *rate},
                                         {"judged_requests", sum.judged},
                                         {"good_requests", sum.good},
                                         {"good_percent", 100 * sum.good_share()},
                                         {"request_goodput", sum.good_per_s()},
                                         {"median_ttft_ms", ttft_ms}});
    search.Take(sum.good_share());
    RETURN_IF_ERROR(WarmUp(1, seed_of_probe));  // behind what the end of the probe has cancelled
  }
  if (search.found() > 0) {
    std::printf("  rate found: %.3f requests/s%s\n", search.found(),
                search.is_bounded() ? "" : ", or more");
  } else {
    std::printf("  no rate found: too few requests were good at every rate\n");
  }
  if (options_.json) {
    boost::json::object object{{"label", options_.label},
                               {"found_rate", search.found()},
                               {"is_bounded", search.is_bounded()},
                               {"probes", std::move(probes)}};
    AddLimits(judge, &object);
    std::printf("%s\n", boost::json::serialize(object).c_str());
  }
  return search.found() > 0 ? 0 : 1;
}

}  // namespace

int RunLoadBench(const LoadBenchOptions& options) {
  const auto run = [&]() -> absl::StatusOr<int> {
    ASSIGN_OR_RETURN(const HttpUrl url, HttpUrl::Parse(options.url));
    LoadBench bench(options, url);
    return options.find_rate ? bench.FindRate() : bench.Measure();
  };
  const absl::StatusOr<int> code = run();
  if (code.ok()) return *code;
  std::fprintf(stderr, "bench load: %s\n", std::string(code.status().message()).c_str());
  return 2;
}

}  // namespace baton
