// Relays on and off on a real trace, with loads from mostly idle to saturated, on virtual time: the
// planner's choices must be better or no worse at every load.
#include "tests/sim/replay.h"

#include <algorithm>
#include <cmath>

#include "tests/support/hash_backend.h"

#include <catch2/catch.hpp>  // last

namespace baton::sim {
namespace {

struct OffAndOn {
  ReplayResult off, on;
};

// Runs the same requests without relays, and with the defaults.
OffAndOn Both(const std::vector<LoadRequest>& requests, int prefill_workers) {
  ReplayCluster cluster{.prefill_workers = prefill_workers};
  cluster.router.local = false;  // relays are of prefill workers
  OffAndOn both;
  both.off = Replay(requests, cluster);
  cluster.router.relay.min_tokens = kShippedRelayMinTokens;
  both.on = Replay(requests, cluster);
  for (const ReplayResult* result : {&both.off, &both.on}) {
    INFO(result->violation);
    REQUIRE(result->violation.empty());
    REQUIRE(result->ttfts.size() == requests.size());
  }
  CHECK(both.off.relays == 0);
  return both;
}

// Returns the Mooncake conversation trace, lengths / 32, arrivals stretched by `time_scale`.
std::vector<LoadRequest> Trace(double time_scale, uint64_t seed = 1) {
  TraceOptions trace;
  trace.path = BATON_SOURCE_DIR "/bench/traces/mooncake_conversation_400.jsonl";
  trace.n_requests = 200;
  trace.length_scale = 1.0 / 32;
  trace.time_scale = time_scale;
  trace.spread_s = 3;
  trace.vocab = HashBackend::kVocab;
  trace.seed = seed;
  const auto requests = ReadTrace(trace);
  REQUIRE(requests.ok());
  return *requests;
}

OffAndOn OfTrace(double time_scale) { return Both(Trace(time_scale), 2); }

TEST_CASE("at low load relays bring the first token sooner") {
  const OffAndOn both = OfTrace(1.5);
  CHECK(both.on.relays >= 20);
  CHECK(both.on.distribution().mean() < 0.85 * both.off.distribution().mean());
  CHECK(both.on.distribution().percentile(99) < both.off.distribution().percentile(99));
}

// The means, and the times of the last percent, of four draws of the arrivals, summed up: the least
// change of a time gives other queues.
struct Sums {
  double mean_off = 0, mean_on = 0, last_off = 0, last_on = 0;
};

Sums OfDraws(double time_scale, uint64_t min_relays, uint64_t max_relays) {
  Sums sums;
  for (const uint64_t seed : {1, 2, 3, 4}) {
    const OffAndOn both = Both(Trace(time_scale, seed), 2);
    CHECK(both.on.relays >= min_relays);
    CHECK(both.on.relays <= max_relays);
    sums.mean_off += both.off.distribution().mean();
    sums.mean_on += both.on.distribution().mean();
    sums.last_off += both.off.distribution().percentile(99);
    sums.last_on += both.on.distribution().percentile(99);
  }
  return sums;
}

TEST_CASE("near saturation they are no worse, neither on average nor for the last percent") {
  const Sums sums = OfDraws(0.6, 1, 200);
  CHECK(sums.mean_on < sums.mean_off);
  CHECK(sums.last_on < 1.05 * sums.last_off);
}

// The queues grow until the end, so the order of service decides how long each request waits; in
// steps of prompts that are short it is nearly ideal without relays.
TEST_CASE("where more comes than workers can do, few prompts are shared and nothing is lost") {
  const Sums sums = OfDraws(0.3, 0, 30);
  CHECK(sums.mean_on < 1.1 * sums.mean_off);
  CHECK(sums.last_on < 1.1 * sums.last_off);
}

// The decode worker computes prompts as the prefill workers do, and a step of rows takes ten times
// theirs at least.
TEST_CASE(
    "with one worker for both where that is sooner, the first token is no later at any load") {
  for (const double time_scale : {0.4, 0.6, 1.5}) {
    ReplayCluster cluster{.decode_token_us = 1000, .decode_pair_us = 0.1};
    const std::vector<LoadRequest> requests = Trace(time_scale);
    const ReplayResult local = Replay(requests, cluster);
    cluster.router.local = false;
    const ReplayResult by_role = Replay(requests, cluster);
    CAPTURE(time_scale);
    CHECK(local.violation.empty());
    CHECK(local.distribution().mean() < 1.02 * by_role.distribution().mean());
    CHECK(local.distribution().percentile(99) < 1.05 * by_role.distribution().percentile(99));
  }
}

// Workers know their costs here, so what is left are messages, promises and prompts that come
// later.
TEST_CASE("times to the first token and between tokens are predicted, best on idle workers") {
  const auto off_by = [](double time_scale) {
    const ReplayResult result = Replay(Trace(time_scale), {});
    CHECK(result.violation.empty());
    REQUIRE(result.foretold.size() > 150);
    return std::pair(result.TtftErrors(), result.GapErrors());
  };
  const auto [idle, idle_gaps] = off_by(6);
  CHECK(idle.percentile(90) < .15);
  CHECK(idle_gaps.percentile(90) < .15);
  const auto [busy, busy_gaps] = off_by(1);  // two thirds of what the prefill workers can do
  CHECK(busy.percentile(50) < .15);
  CHECK(busy_gaps.percentile(50) < .15);
}

TEST_CASE("short prompts faster than workers can do: as many tokens per second as without relays") {
  const int prefill_workers = GENERATE(2, 4);
  const std::vector<LoadRequest> requests =
      MakeSynthetic({.n_requests = 300,
                     .prompt_tokens = 300,
                     .output_tokens = 2,
                     .request_rate = 8.0 * prefill_workers,  // the workers manage three
                     .vocab = HashBackend::kVocab});
  const OffAndOn both = Both(requests, prefill_workers);
  const auto seconds = [&](const ReplayResult& result) {
    double last = 0;
    for (size_t i = 0; i < requests.size(); ++i)
      last = std::max(last, requests[i].start_s + result.ttfts[i]);
    return last;
  };
  CHECK(seconds(both.on) < 1.02 * seconds(both.off));
  CHECK(both.on.distribution().mean() < 1.02 * both.off.distribution().mean());
}

// Requests of one size at so many per second, evenly: 100 s of each rate.
std::vector<LoadRequest> Steady(const std::vector<double>& rates, int prompt, int output) {
  std::vector<LoadRequest> requests;
  double at = 0;
  for (const double rate : rates) {
    for (const double end = at + 100; at < end; at += 1 / rate) {
      LoadRequest request{.start_s = at, .max_tokens = output};
      for (int i = 0; i < prompt; ++i)
        request.prompt.push_back(
            MadeUpToken(requests.size(), static_cast<uint64_t>(i), HashBackend::kVocab));
      requests.push_back(std::move(request));
    }
  }
  return requests;
}

TEST_CASE("twice the load moves the wanted workers to the optimum, and they do not swing") {
  // More workers than are wanted, so that the load is not cut by what they can do.
  const ReplayCluster cluster{
      .prefill_workers = 8, .decode_workers = 8, .pair_us = 0, .router = {.local = false}};
  constexpr int kPrompt = 200, kOutput = 100, kBatch = 64;
  const std::vector<double> rates = {8, 16, 8};
  const std::vector<LoadRequest> requests = Steady(rates, kPrompt, kOutput);
  const ReplayResult result = Replay(requests, cluster);
  REQUIRE(result.violation == "");
  REQUIRE(result.wanted.size() == requests.size());
  // Workers that the modelled costs keep busy for 70 % of their time (PoolSizing::Options).
  const auto optimum = [](double rate, double seconds) { return std::ceil(rate * seconds / 0.7); };
  const double prompt_s = kPrompt * static_cast<double>(cluster.token_us) / 1e6;
  const double full_step_s =
      static_cast<double>(cluster.decode_step_us + kBatch * cluster.decode_token_us) / 1e6;
  size_t at = 0;
  for (size_t phase = 0; phase < rates.size(); ++phase) {
    const double rate = rates[phase];
    const WantedWorkers first = result.wanted[at];
    const size_t end = std::min(result.wanted.size(), at + static_cast<size_t>(100 * rate));
    int falls = 0, rises = 0;
    for (size_t i = at + 1; i < end; ++i) {
      falls += result.wanted[i].prefill < result.wanted[i - 1].prefill;
      rises += result.wanted[i].prefill > result.wanted[i - 1].prefill;
    }
    const WantedWorkers last = result.wanted[end - 1];
    INFO("phase " << phase << ": " << first.prefill << " + " << first.decode << " to "
                  << last.prefill << " + " << last.decode << ", " << rises << " rises, " << falls
                  << " falls");
    CHECK(std::abs(last.prefill - optimum(rate, prompt_s)) <= 1);
    CHECK(std::abs(last.decode - optimum(rate, kOutput * full_step_s / kBatch)) <= 1);
    if (phase == 1) CHECK(falls == 0);
    if (phase == 2) CHECK(rises <= 1);
    at = end;
  }
}

}  // namespace
}  // namespace baton::sim
