#include "bench/relay/relay_measurement.h"

#include <algorithm>
#include <cstdio>
#include <map>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "bench/median.h"
#include "bench/relay/cost_measurement.h"
#include "bench/relay/relay_result.h"
#include "bench/relay/relay_schemes.h"
#include "bench/relay/simulated_schemes.h"

namespace baton {
namespace {

constexpr char kMeasured[] = "measured";
// The min rate of loopback, for partitions; `baton bench transfer` measures the machine's own rate.
constexpr double kLoopbackBytesPerSecond = 1e9;
constexpr double kLoopbackLatency = 50e-6;
// The max distance of a ring's logits from one worker's: absolute for fp32, and for bf16 as a share
// of the max logit, a few units of its last place.
constexpr double kRingApartFp32 = 1e-3, kRingApart = 0.03;
constexpr int kMaxFittedTokens = 4096;
// The fit uses the min time of each slice: with 1,088 tokens on the first of two ranks, 64 more
// cost 6 %, and one disturbed time moves the partition by more.
constexpr int kFitRounds = 3;
// The effect of noise in the paper: min share for TSP, max share for the chains.
constexpr double kTspNoise = 0.1, kChainNoise = 0.037;

double Min(const std::vector<double>& values) {
  return *std::min_element(values.begin(), values.end());
}

std::string Megabytes(const std::vector<int64_t>& bytes) {
  return absl::StrJoin(bytes, "/", [](std::string* out, int64_t n) {
    absl::StrAppendFormat(out, "%.0f", static_cast<double>(n) / 1e6);
  });
}

// A scheme's turn in a round.
struct Turn {
  std::string scheme;
  bool noisy = false;
  std::string name() const { return noisy ? scheme + ", noise" : scheme; }
};

// Returns the turns of a round. One worker alone has no links.
std::vector<Turn> TurnsOf(const RelayMeasurementOptions& options) {
  std::vector<Turn> turns;
  for (const std::string& scheme : options.schemes) {
    turns.push_back({scheme, false});
    const bool has_links = scheme != "steps" && scheme != "one" && scheme != "wide";
    if (options.noise.is_set() && has_links) turns.push_back({scheme, true});
  }
  return turns;
}

// The measurements of a scheme in its turns, a value per round.
struct Samples {
  std::vector<double> first_token, kv_complete, waited;
  int64_t bytes_sent = 0, bytes_due = 0;  // of the last round, all links
  std::vector<int64_t> kv_bytes;          // (ranks) bytes of the pages that each rank held
  std::vector<double> computed;           // (ranks) seconds until each rank had computed its part
  std::vector<int64_t> peak_memory;       // (ranks) bytes, if measured
  std::vector<float> logits;              // of the last token, if compared
  std::string digest;
  bool same_digests = true;
  double predicted = 0;  // simulated with the fitted constants
};

// Measures one rig with one link.
class Measurement {
 public:
  Measurement(const RelayMeasurementOptions& options, double link, RelayRig& rig)
      : options_(options), link_(link), rig_(rig), turns_(TurnsOf(options)) {}

  absl::Status Run(ProgressBar* progress) {
    // Constants do not depend on the prompt's length. A shorter prompt needs less time, but with
    // few pairs the noise hides the cost of a pair.
    const int fitted = std::min(options_.tokens, kMaxFittedTokens);
    ASSIGN_OR_RETURN(cost_, MeasureCost(rig_, {fitted}, kFitRounds, false, rig_.ranks(), progress));
    cost_.cluster.row_bytes = static_cast<double>(rig_.started().residual_bytes);
    cost_.cluster.link = {
        link_ > 0 ? link_ : kLoopbackBytesPerSecond,
        kLoopbackLatency + 1e-6 * static_cast<double>(options_.rig.pace.latency_us)};
    for (const std::string& name : options_.schemes) {
      ASSIGN_OR_RETURN(schemes_[name], MakeScheme(name, cost_.cluster, rig_, options_.tokens));
    }
    for (const Turn& turn : turns_) samples_[turn.name()].predicted = Predict(turn);
    compares_logits_ = std::any_of(schemes_.begin(), schemes_.end(),
                                   [](const auto& entry) { return entry.second.rotates; });
    for (int round = 0; round < options_.rounds; ++round) {
      for (const Turn& turn : turns_) {
        progress->Next(absl::StrFormat("%s, round %d", turn.name(), round + 1));
        RETURN_IF_ERROR(RunOnce(turn));
      }
    }
    return absl::OkStatus();
  }

  absl::Status MeasureMemory() {
    for (const std::string& name : options_.schemes) {
      const Scheme& scheme = schemes_[name];
      if (scheme.kind == Scheme::Kind::kWide) continue;
      RelayRigOptions options = rig_.options();
      options.with_wide = false;
      options.with_sink = scheme.sink != Scheme::Sink::kNone;
      options.pool_pages.assign(static_cast<size_t>(rig_.ranks()), 1);
      for (size_t i = 0; i < samples_[name].kv_bytes.size(); ++i) {
        options.pool_pages[i] =
            static_cast<int>(samples_[name].kv_bytes[i] / rig_.started().page_bytes);
      }
      ASSIGN_OR_RETURN(const std::unique_ptr<RelayRig> rig, RelayRig::Start(options));
      ASSIGN_OR_RETURN(const RelayRig::Outcome outcome, rig->Run(PlanScheme(scheme, *rig)));
      for (int i = 0; i < scheme.ranks(); ++i) {
        samples_[name].peak_memory.push_back(outcome.ranks[static_cast<size_t>(i)].peak_memory);
      }
    }
    return absl::OkStatus();
  }

  std::string Table() const {
    const RankStarted& started = rig_.started();
    std::string table = absl::StrFormat(
        "measured: %s, %s, %s, %d tokens, %d ranks of %d threads, %s; constants of a layer: %.4g s "
        "per token, %.4g s per pair, +%.0f tokens (error of the fit %.1f %%), KV share %.2f, head "
        "%.3g s\n",
        started.model, started.numerics_id, started.isa, options_.tokens, rig_.ranks(),
        options_.rig.threads_per_rank, LinkText(), cost_.cluster.cost.token,
        cost_.cluster.cost.pair, cost_.cluster.cost.extra_tokens, 100 * cost_.error,
        cost_.cluster.qkv_share, cost_.cluster.cost.head);
    absl::StrAppendFormat(&table, "%-9s %-18s %9s %9s %9s %8s %9s %9s %10s %10s %9s  %-15s  %s\n",
                          "", "scheme", "best s", "median s", "simulated", "one/this", "waited s",
                          "link MB", "KV after s", "KV MB/rank", "peak MB", "ranks done s",
                          "slices");
    for (const Turn& turn : turns_) {
      const Samples& samples = samples_.at(turn.name());
      const Scheme& scheme = schemes_.at(turn.scheme);
      std::vector<std::string> computed;
      for (const double seconds : samples.computed) {
        computed.push_back(absl::StrFormat("%.4g", seconds));
      }
      absl::StrAppendFormat(
          &table, "%-9s %-18s %9.4f %9.4f %9.4f %8.3f %9.4f %9.2f %10s %10s %9s  %-15s  %s\n",
          kMeasured, turn.name(), Min(samples.first_token), MedianOf(samples.first_token),
          samples.predicted, OneSeconds() / Min(samples.first_token), MedianOf(samples.waited),
          static_cast<double>(samples.bytes_sent) / 1e6,
          samples.kv_complete.empty() ? "-"
                                      : absl::StrFormat("%+.4f", MedianOf(samples.kv_complete)),
          Megabytes(samples.kv_bytes), Megabytes(samples.peak_memory), absl::StrJoin(computed, "/"),
          absl::StrJoin(scheme.cuts(), " "));
    }
    return table + "\n";
  }

  void AddResults(std::vector<RelayResult>* results) const {
    const RankStarted& started = rig_.started();
    const std::string shape = absl::StrFormat("%s, %s, %d threads a rank", started.model,
                                              started.isa, options_.rig.threads_per_rank);
    for (const Turn& turn : turns_) {
      const Samples& samples = samples_.at(turn.name());
      const Scheme& scheme = schemes_.at(turn.scheme);
      const double complete =
          samples.kv_complete.empty()
              ? 0
              : Min(samples.first_token) + std::max(0.0, MedianOf(samples.kv_complete));
      results->push_back({kMeasured, shape, turn.name(), link_, rig_.ranks(),
                          static_cast<double>(options_.tokens), Min(samples.first_token), complete,
                          std::vector<double>(scheme.cuts().begin(), scheme.cuts().end())});
      results->push_back({kSimulation, shape, turn.name(), link_, rig_.ranks(),
                          static_cast<double>(options_.tokens), samples.predicted, 0,
                          std::vector<double>(scheme.cuts().begin(), scheme.cuts().end())});
    }
  }

  void AddClaims(std::vector<RelayClaim>* claims) const {
    const std::string where =
        absl::StrFormat("p = %d, %d tokens, %s", rig_.ranks(), options_.tokens, LinkText());
    const auto best = [&](const char* name) {
      const auto found = samples_.find(name);
      return found == samples_.end() ? 0 : Min(found->second.first_token);
    };
    if (best("streaming") > 0 && OneSeconds() > 0 && rig_.ranks() == 2) {
      claims->push_back({kMeasured, "relay", "one worker over the relay, " + where,
                         OneSeconds() / best("streaming"), true, 1.85});
    }
    const double wide = best("wide");
    if (best("streaming") > 0 && wide > 0) {
      claims->push_back({kMeasured, "relay",
                         "the relay over one worker with the threads of all, " + where,
                         best("streaming") / wide, false, 1.07});
    }
    if (best("tsp") > 0 && best("kvr-s") > 0) {
      claims->push_back(
          {kMeasured, "R4",
           absl::StrFormat("TSP / KVR-S, %s attention, %s", options_.rig.lab.attention(), where),
           best("tsp") / best("kvr-s"), true, 1.05});
    }
    double worst_bytes = 0, different = 0;
    std::string digest;
    for (const Turn& turn : turns_) {
      const Samples& samples = samples_.at(turn.name());
      worst_bytes = std::max(worst_bytes,
                             std::abs(static_cast<double>(samples.bytes_sent - samples.bytes_due)));
      if (!schemes_.at(turn.scheme).has_bits_of_one()) {
        different += !samples.same_digests;  // other bits than one worker's, the same in all rounds
        continue;
      }
      if (digest.empty()) digest = samples.digest;
      different += !samples.same_digests || samples.digest != digest;
    }
    claims->push_back({kMeasured, "R9",
                       "bytes of any scheme's links away from their formula, " + where, worst_bytes,
                       false, 0});
    claims->push_back({kMeasured, "R14", "schemes with other logits than one worker, " + where,
                       different, false, 0, digest});
    if (best("tsp") > 0 && best("kvr-s") > 0 && rig_.ranks() > 1) {
      claims->push_back({kMeasured, "R13",
                         "KV of TSP on the first rank over that of KVR-S, " + where,
                         static_cast<double>(samples_.at("tsp").kv_bytes[0]) /
                             static_cast<double>(samples_.at("kvr-s").kv_bytes[0]),
                         true, 1.05});
    }
    if (best("stubbed") > 0 && best("kvr-s") > 0) {
      claims->push_back({kMeasured, "R5", "KVR-S over the same without transfers, " + where,
                         best("kvr-s") / best("stubbed"), false, 1.17});
    }
    AddNoiseClaims(where, claims);
    AddMemoryClaim(where, claims);
    AddRingClaim(where, claims);
    const auto pushed = samples_.find("push");
    if (pushed != samples_.end() && !pushed->second.kv_complete.empty()) {
      const double layer =
          cost_.cluster.cost.kv_bytes * options_.tokens / cost_.cluster.link.bytes_per_second;
      claims->push_back({kMeasured, "push",
                         "KV complete after the first token, in transfers of one layer, " + where,
                         MedianOf(pushed->second.kv_complete) / layer, false, 1});
    }
  }

 private:
  std::string LinkText() const {
    return link_ > 0 ? absl::StrFormat("links emulated at %.4g MB/s", link_ / 1e6) : "loopback";
  }
  // Returns the mean of several simulated times, since the measured prompts, too, begin at any
  // time.
  double Predict(const Turn& turn) const {
    constexpr int kSeeds = 16;
    const Scheme& scheme = schemes_.at(turn.scheme);
    if (!turn.noisy) return PredictScheme(scheme, cost_.cluster, rig_.ranks());
    SimulatedCluster noisy = cost_.cluster;
    noisy.noise = rig_.options().pace.noise;
    double sum = 0;
    for (int i = 0; i < kSeeds; ++i, ++noisy.noise.seed) {
      sum += PredictScheme(scheme, noisy, rig_.ranks());
    }
    return sum / kSeeds;
  }
  // Returns the median over the rounds of the time that noise adds to a prompt, compared with the
  // prompt just before without noise.
  double LongerByNoise(const std::string& scheme) const {
    const std::vector<double>& quiet = samples_.at(scheme).first_token;
    std::vector<double> longer = samples_.at(Turn{scheme, true}.name()).first_token;
    for (size_t i = 0; i < longer.size(); ++i) longer[i] = longer[i] / quiet[i] - 1;
    return MedianOf(longer);
  }
  void AddNoiseClaims(const std::string& where, std::vector<RelayClaim>* claims) const {
    const LinkNoise& noise = rig_.options().pace.noise;
    for (const Turn& turn : turns_) {
      const bool is_tsp = turn.scheme == "tsp";
      const bool is_claimed =
          is_tsp || turn.scheme.starts_with("kvr") || turn.scheme == "streaming";
      if (!turn.noisy || !is_claimed) continue;
      const double simulated =
          samples_.at(turn.name()).predicted / samples_.at(turn.scheme).predicted - 1;
      claims->push_back(
          {kMeasured, "R10",
           absl::StrFormat(
               "%s longer by noise, ports of one pair in %d workers at 1/%g for %g ms, %s",
               turn.scheme, noise.workers, noise.factor, noise.period * 1e3, where),
           LongerByNoise(turn.scheme), is_tsp, is_tsp ? kTspNoise : kChainNoise,
           absl::StrFormat("simulated %+.4f; waited %.3g s for KV, %.3g s without noise", simulated,
                           MedianOf(samples_.at(turn.name()).waited),
                           MedianOf(samples_.at(turn.scheme).waited))});
    }
  }
  void AddMemoryClaim(const std::string& where, std::vector<RelayClaim>* claims) const {
    const auto tsp = samples_.find("tsp"), kvr = samples_.find("kvr-s");
    if (tsp == samples_.end() || kvr == samples_.end() || tsp->second.peak_memory.size() < 2)
      return;
    const double first = static_cast<double>(tsp->second.peak_memory[0]);
    claims->push_back({kMeasured, "R13", "peak memory of TSP's first rank over KVR-S's, " + where,
                       first / static_cast<double>(kvr->second.peak_memory[0]), true, 1});
  }
  // Attention that reads keys in another order gives other bits; the claim bounds the distance of
  // the logits.
  void AddRingClaim(const std::string& where, std::vector<RelayClaim>* claims) const {
    const auto ring = samples_.find("ring"), one = samples_.find("one");
    if (ring == samples_.end() || one == samples_.end()) return;
    double apart = 0, largest = 0;
    for (size_t i = 0; i < one->second.logits.size(); ++i) {
      const double logit = one->second.logits[i];
      apart = std::max(apart, std::abs(ring->second.logits[i] - logit));
      largest = std::max(largest, std::abs(logit));
    }
    const bool is_fp32 = options_.rig.engine.dtype == "fp32";
    claims->push_back({kMeasured, "R14",
                       absl::StrFormat("the ring's logits away from one worker's, %s, %s",
                                       rig_.started().numerics_id, where),
                       apart, false, is_fp32 ? kRingApartFp32 : kRingApart * largest,
                       absl::StrFormat("the largest logit is %.3g", largest)});
  }
  // Returns the seconds of the faster way of one worker.
  double OneSeconds() const {
    double seconds = 0;
    for (const char* name : {"one", "steps"}) {
      const auto found = samples_.find(name);
      if (found == samples_.end()) continue;
      const double min = Min(found->second.first_token);
      seconds = seconds == 0 ? min : std::min(seconds, min);
    }
    return seconds;
  }

  absl::Status RunOnce(const Turn& turn) {
    const Scheme& scheme = schemes_.at(turn.scheme);
    Samples* const samples = &samples_.at(turn.name());
    const int n = scheme.ranks();
    const auto tail = static_cast<size_t>(TailOf(scheme, rig_));
    std::vector<RankRun> runs = PlanScheme(scheme, rig_);
    for (RankRun& run : runs) run.noisy = turn.noisy;
    runs[tail].wants_logits = compares_logits_ && samples->logits.empty();
    ASSIGN_OR_RETURN(const RelayRig::Outcome outcome, rig_.Run(runs));
    if (runs[tail].wants_logits) samples->logits = outcome.ranks[tail].logits;
    const double first_token = outcome.ranks[tail].computed - outcome.begin;
    samples->first_token.push_back(first_token);
    samples->waited.push_back(outcome.ranks[tail].waited);
    if (scheme.sink != Scheme::Sink::kNone) {
      const double arrived = outcome.ranks[static_cast<size_t>(rig_.sink())].arrived;
      samples->kv_complete.push_back(arrived - outcome.begin - first_token);
    }
    samples->bytes_sent = 0;
    for (const RankDone& done : outcome.ranks) samples->bytes_sent += done.bytes_sent;
    samples->bytes_due = BytesDue(scheme, rig_);
    samples->kv_bytes.clear();
    samples->computed.clear();
    for (int i = 0; i < n; ++i) {
      const RankDone& done = outcome.ranks[n == 1 ? tail : static_cast<size_t>(i)];
      samples->kv_bytes.push_back(done.kv_bytes);
      samples->computed.push_back(done.computed - outcome.begin);
    }
    const std::string& digest = outcome.ranks[tail].digest;
    if (samples->digest.empty()) samples->digest = digest;
    samples->same_digests = samples->same_digests && samples->digest == digest;
    return absl::OkStatus();
  }

  const RelayMeasurementOptions& options_;
  const double link_;
  RelayRig& rig_;
  bool compares_logits_ = false;
  MeasuredCost cost_;
  const std::vector<Turn> turns_;
  std::map<std::string, Scheme> schemes_;
  std::map<std::string, Samples> samples_;  // key: name of the turn
};

absl::Status CheckNoise(const RelayMeasurementOptions& options) {
  const LinkNoise& noise = options.noise;
  if (!(noise.factor >= 1 && noise.factor <= 1e4)) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "bench relay: --noise %g; it must be from 1 (none) to 10000 times slower", noise.factor));
  }
  if (!(noise.period >= 1e-4 && noise.period <= 1e3)) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "bench relay: --noise-period %g; it must be from 1e-4 to 1e3 seconds", noise.period));
  }
  const auto& links = options.links;
  if (!noise.is_set() || std::count(links.begin(), links.end(), 0) == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "bench relay: --noise is for emulated links; --link says how fast they are without it");
}

absl::Status CheckOptions(const RelayMeasurementOptions& options) {
  const auto check = [](const char* name, int value, int min, int max) -> absl::Status {
    if (value >= min && value <= max) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrFormat("bench relay: %s is %d; it must be from %d to %d", name, value, min, max));
  };
  RETURN_IF_ERROR(check("--ranks", options.rig.ranks, 1, 16));
  RETURN_IF_ERROR(check("--threads-per-rank", options.rig.threads_per_rank, 1, 256));
  RETURN_IF_ERROR(check("--rounds", options.rounds, 1, 1000));
  RETURN_IF_ERROR(check("--noise-workers", options.noise.workers, 0, 1000));
  RETURN_IF_ERROR(CheckNoise(options));
  const int page = options.rig.engine.page_tokens;
  RETURN_IF_ERROR(check("--tokens", options.tokens, 2 * page * options.rig.ranks, 1 << 20));
  if (options.tokens % page == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrFormat("bench relay: --tokens %d; it must be a multiple of the %d tokens of a page",
                      options.tokens, page));
}

}  // namespace

absl::StatusOr<RelayMeasured> MeasureRelay(const RelayMeasurementOptions& options) {
  RETURN_IF_ERROR(CheckOptions(options));
  RelayMeasured measured;
  for (const double link : options.links) {
    RelayRigOptions rig_options = options.rig;
    rig_options.max_tokens = options.tokens;
    rig_options.pace.bytes_per_second = link;
    rig_options.pace.noise = options.noise;
    rig_options.pace.noise.workers = std::max(options.noise.workers, options.rig.ranks);
    rig_options.with_residuals =
        std::count(options.schemes.begin(), options.schemes.end(), std::string("pipeline")) > 0;
    ASSIGN_OR_RETURN(const std::unique_ptr<RelayRig> rig, RelayRig::Start(rig_options));
    Measurement measurement(options, link, *rig);
    ProgressBar progress(
        "measuring", ProgressUnit::kParts,
        static_cast<double>(CostMeasurements({options.tokens}, kFitRounds, false) +
                            TurnsOf(options).size() * static_cast<size_t>(options.rounds)));
    RETURN_IF_ERROR(measurement.Run(&progress));
    if (options.memory) RETURN_IF_ERROR(measurement.MeasureMemory());
    measured.table += measurement.Table();
    measurement.AddResults(&measured.results);
    measurement.AddClaims(&measured.claims);
  }
  return measured;
}

absl::Status RunRelayMeasurement(const RelayMeasurementOptions& options) {
  ASSIGN_OR_RETURN(const RelayMeasured measured, MeasureRelay(options));
  std::printf("%s", measured.table.c_str());
  PrintRelayClaims(measured.claims);
  if (options.json) PrintRelayJson(measured.results, measured.claims);
  for (const RelayClaim& claim : measured.claims) {
    if ((claim.id == "R9" || claim.id == "R14") && !claim.holds()) {
      return absl::InternalError("bench relay: wrong bits or bytes, see above");
    }
  }
  return absl::OkStatus();
}

}  // namespace baton
