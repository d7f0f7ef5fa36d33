// baton_replay: runs a trace on a modelled cluster, with relays on and off (replay.h).
//   baton_replay TRACE [--scale-lengths 1/32] [--scale-time 0.4,0.6,1,2] [--seeds N] [--requests N]
//                [--prefill N] [--ranks N] [--relay-from TOKENS] [--local 0|1] [--foretold FILE]
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "common/log.h"
#include "tests/sim/replay.h"
#include "tests/support/hash_backend.h"

namespace baton::sim {
namespace {

constexpr char kUsage[] =
    "usage: baton_replay TRACE [--scale-lengths X] [--scale-time X,X..] [--seeds N]\n"
    "                    [--requests N] [--prefill N] [--ranks N] [--relay-from TOKENS]\n"
    "                    [--local 0|1] [--foretold FILE]\n";

struct Arguments {
  TraceOptions trace;
  std::vector<double> time_scales = {0.4, 0.6, 1, 2};
  int seeds = 3;
  int relay_from = kShippedRelayMinTokens;
  int local = 1;
  std::string foretold;  // file with a line per request of the runs without relays; empty: none
  ReplayCluster cluster;
};

bool ParseScales(const std::string& text, std::vector<double>* out) {
  out->clear();
  for (const auto& item : absl::StrSplit(text, ',')) {
    if (!absl::SimpleAtod(item, &out->emplace_back()) || out->back() <= 0) return false;
  }
  return true;
}

bool Parse(int argc, char** argv, Arguments* out) {
  out->trace.length_scale = 1.0 / 32;
  out->trace.n_requests = 400;
  out->trace.spread_s = 3;  // arrivals of the trace are multiples of 3 s
  out->trace.vocab = HashBackend::kVocab;
  const std::vector<std::pair<std::string, int*>> numbers = {
      {"--seeds", &out->seeds},
      {"--requests", &out->trace.n_requests},
      {"--prefill", &out->cluster.prefill_workers},
      {"--ranks", &out->cluster.router.relay.max_ranks},
      {"--relay-from", &out->relay_from},
      {"--local", &out->local}};
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (!name.starts_with("--")) {
      out->trace.path = name;
      continue;
    }
    if (++i == argc) return false;
    bool known = false;
    for (const auto& [flag, value] : numbers)
      if (name == flag && (known = true) &&
          (!absl::SimpleAtoi(argv[i], value) || *value < (name == "--local" ? 0 : 1)))
        return false;
    if (name == "--foretold" && (known = true)) out->foretold = argv[i];
    if (name == "--scale-time") known = ParseScales(argv[i], &out->time_scales);
    if (name == "--scale-lengths") known = absl::SimpleAtod(argv[i], &out->trace.length_scale);
    if (!known) return false;
  }
  return !out->trace.path.empty();
}

std::string Figures(const Distribution& ttfts) {
  return absl::StrFormat(" %8.3f %8.3f %8.3f ", ttfts.mean(), ttfts.percentile(50),
                         ttfts.percentile(99));
}

// How far off nine of ten predictions were, in percent: of the first token, of the gaps.
std::string Errors(const ReplayResult& result) {
  return absl::StrFormat("%4.0f %4.0f", 100 * result.TtftErrors().percentile(90),
                         100 * result.GapErrors().percentile(90));
}

// Writes a line per request: when it came, what it asked for, what was predicted and what came.
void Write(std::FILE* file, double time_scale, const std::vector<LoadRequest>& requests,
           const ReplayResult& result) {
  for (size_t i = 0; i < result.foretold.size(); ++i) {
    const Foretold& each = result.foretold[i];
    absl::FPrintF(file, "%g\t%.3f\t%d\t%d\t%d\t%.6f\t%.6f\t%.6f\t%.6f\t%.6f\t%.6f\t%.6f\t%s\t%s\n",
                  time_scale, requests[i].start_s, requests[i].prompt.size(), each.reused_tokens,
                  requests[i].max_tokens, each.predicted, each.took, each.predicted_gap, each.gap,
                  each.predicted_queue, each.queue, each.compute, each.prefill_worker,
                  each.decode_worker);
  }
}

int Main(int argc, char** argv) {
  Arguments arguments;
  if (!Parse(argc, argv, &arguments)) {
    std::fputs(kUsage, stderr);
    return 1;
  }
  SetLog(LogLevel::kError, "replay");
  std::FILE* const foretold =
      arguments.foretold.empty() ? nullptr : std::fopen(arguments.foretold.c_str(), "w");
  if (foretold != nullptr)
    std::fputs(
        "time x\tcame s\tprompt\treused\tmax tokens\tpredicted s\ttook s\tpredicted gap\tgap\t"
        "predicted queue\tqueue\tcompute\tprefill\tdecode\n",
        foretold);
  std::printf(
      "simulation: seconds to the first token; relays off: p90 of |actual / predicted - 1| "
      "in percent, of the first token and of the time between tokens\n%24s%27s%28s\n",
      "", "relays off", "relays on");
  std::printf("%8s%8s%8s %s %s   on / off: mean, p99  p90 %%\n", "time x", "seed", "relays",
              "    mean      p50      p99 ", "    mean      p50      p99 ");
  for (const double time_scale : arguments.time_scales) {
    for (int seed = 1; seed <= arguments.seeds; ++seed) {
      TraceOptions trace = arguments.trace;
      trace.time_scale = time_scale;
      trace.seed = static_cast<uint64_t>(seed);
      const auto requests = ReadTrace(trace);
      if (!requests.ok()) {
        std::fprintf(stderr, "%s\n", requests.status().ToString().c_str());
        return 1;
      }
      ReplayCluster cluster = arguments.cluster;
      cluster.router.local = arguments.local > 0;
      const ReplayResult off = Replay(*requests, cluster);
      cluster.router.relay.min_tokens = arguments.relay_from;
      const ReplayResult on = Replay(*requests, cluster);
      for (const ReplayResult* result : {&off, &on}) {
        if (result->violation.empty()) continue;
        std::fprintf(stderr, "%s\n", result->violation.c_str());
        return 2;
      }
      if (foretold != nullptr) Write(foretold, time_scale, *requests, off);
      const Distribution without = off.distribution(), with = on.distribution();
      std::printf("%8.2f%8d%8d %s %s   %.3f %.3f  %s\n", time_scale, seed,
                  static_cast<int>(on.relays), Figures(without).c_str(), Figures(with).c_str(),
                  with.mean() / without.mean(), with.percentile(99) / without.percentile(99),
                  Errors(off).c_str());
      std::fflush(stdout);
    }
  }
  if (foretold != nullptr) std::fclose(foretold);
  return 0;
}

}  // namespace
}  // namespace baton::sim

int main(int argc, char** argv) { return baton::sim::Main(argc, argv); }
