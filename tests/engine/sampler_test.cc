// The sampler against simple versions: exact probabilities, a full sort, published Philox vectors.
#include "engine/sampling/sampler.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <deque>
#include <limits>
#include <numeric>
#include <random>

#include "engine/numerics/log.h"
#include "engine/numerics/philox.h"
#include "engine/sampling/token_filter.h"
#include "engine/threads/mxcsr.h"

namespace baton {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::vector<float> RandomLogits(size_t n, float sigma, unsigned seed) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal(0, sigma);
  std::vector<float> logits(n);
  for (float& x : logits) x = normal(rng);
  return logits;
}

// Returns ids by descending logit, then ascending id.
std::vector<int32_t> Sorted(const std::vector<float>& logits) {
  std::vector<int32_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  std::stable_sort(ids.begin(), ids.end(), [&](int32_t a, int32_t b) {
    return logits[static_cast<size_t>(a)] > logits[static_cast<size_t>(b)];
  });
  return ids;
}

std::vector<double> Probabilities(const std::vector<float>& logits, double temperature) {
  const double top = *std::max_element(logits.begin(), logits.end());
  std::vector<double> p;
  for (float x : logits) p.push_back(std::exp((x - top) / temperature));
  const double sum = std::accumulate(p.begin(), p.end(), 0.0);
  for (double& x : p) x /= sum;
  return p;
}

// The tokens a filter must keep, in order, and the probabilities of the draw.
struct Kept {
  std::vector<int32_t> ids;  // best first
  std::vector<double> p;
};

Kept NaiveFilter(const std::vector<float>& logits, const SamplingParams& params) {
  Kept kept{Sorted(logits), {}};
  const std::vector<double> p = Probabilities(logits, double{params.temperature});
  if (params.top_k > 0 && static_cast<size_t>(params.top_k) < kept.ids.size())
    kept.ids.resize(static_cast<size_t>(params.top_k));
  double mass = 0, reached = 0;
  for (int32_t id : kept.ids) mass += p[static_cast<size_t>(id)];
  size_t n = 0;
  while (n < kept.ids.size() && (n == 0 || params.top_p >= 1 || reached < params.top_p * mass))
    reached += p[static_cast<size_t>(kept.ids[n++])];
  kept.ids.resize(n);
  for (int32_t id : kept.ids) kept.p.push_back(p[static_cast<size_t>(id)] / reached);
  return kept;
}

// Draws at many positions and compares the counts with the exact probabilities by chi-square.
void CheckDistribution(const std::vector<float>& logits, const SamplingParams& params, int draws) {
  const Kept kept = NaiveFilter(logits, params);
  std::vector<int> slot(logits.size(), -1);
  for (size_t i = 0; i < kept.ids.size(); ++i)
    slot[static_cast<size_t>(kept.ids[i])] = static_cast<int>(i);
  std::vector<double> count(kept.ids.size(), 0.0);
  Sampler sampler;
  for (int i = 0; i < draws; ++i) {
    const SampledToken sampled = sampler.Sample(logits, params, i);
    const int at = slot[static_cast<size_t>(sampled.token)];
    if (at < 0) FAIL("token " << sampled.token << " should have been filtered out");
    ++count[static_cast<size_t>(at)];
  }
  // Cells with low expectation are merged.
  double chi2 = 0, expected = 0, seen = 0;
  int cells = 0;
  for (size_t i = 0; i < count.size(); ++i) {
    expected += kept.p[i] * draws;
    seen += count[i];
    if (expected < 10 && i + 1 < count.size()) continue;
    if (expected < 1e-9) break;
    chi2 += (seen - expected) * (seen - expected) / expected;
    ++cells;
    expected = seen = 0;
  }
  // The mean of the distribution plus six standard deviations; the seed is fixed, so the result is
  // deterministic.
  const double freedom = std::max(1, cells - 1);
  CHECK(chi2 < freedom + 6 * std::sqrt(2 * freedom) + 6);
}

TEST_CASE("Philox gives the published numbers") {
  // Random123 1.09, kat_vectors, philox4x32 with 10 rounds.
  CHECK(Philox4x32({0, 0, 0, 0}, {0, 0}) ==
        PhiloxCounter{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  CHECK(Philox4x32({~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}) ==
        PhiloxCounter{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  CHECK(Philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}) ==
        PhiloxCounter{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST_CASE("uniform numbers differ by seed, position and draw, and lie in [0, 1)") {
  std::vector<double> numbers;
  for (uint64_t seed : {0ull, 1ull, 1ull << 32})
    for (int64_t position : {0ll, 1ll, 1ll << 33})
      for (uint32_t draw : {0u, 1u}) numbers.push_back(UniformAt(seed, position, draw));
  for (double u : numbers) CHECK((u >= 0 && u < 1));
  std::sort(numbers.begin(), numbers.end());
  CHECK(std::adjacent_find(numbers.begin(), numbers.end()) == numbers.end());
}

TEST_CASE("the logarithm is exact to a few ulps") {
  for (double x : {1.0, 1.5, 1.4142135623730949, 2.0, 3.0, 1e-300, 7.25, 128256.0, 1e300})
    CHECK(NaturalLog(x) == Approx(std::log(x)).epsilon(1e-14).margin(1e-16));
}

TEST_CASE("greedy takes the largest logit, the lowest id of equals") {
  Sampler sampler;
  const SamplingParams greedy{.temperature = 0};
  for (size_t n : {1u, 2u, 15u, 16u, 17u, 255u, 256u, 257u, 32000u}) {
    std::vector<float> logits = RandomLogits(n, 3, 11);
    const std::vector<double> p = Probabilities(logits, 1);
    const int32_t best = Sorted(logits)[0];
    const SampledToken sampled = sampler.Sample(logits, greedy, 5);
    CHECK(sampled.token == best);
    CHECK(sampled.logprob == Approx(std::log(p[static_cast<size_t>(best)])).margin(2e-6));
    logits[n - 1] = logits[n / 2] = 100;
    CHECK(sampler.Sample(logits, greedy, 5).token == static_cast<int32_t>(n / 2));
  }
}

TEST_CASE("draws follow the exact probabilities") {
  const std::vector<float> small = RandomLogits(50, 1.5f, 1);
  const std::vector<float> large = RandomLogits(4099, 2, 2);
  const float temperature = GENERATE(0.4f, 1.0f, 1.7f);
  const int32_t top_k = GENERATE(0, 1, 7, 40);
  const float top_p = GENERATE(1.0f, 0.9f, 0.3f);
  const SamplingParams params{
      .temperature = temperature, .top_k = top_k, .top_p = top_p, .seed = 12345};
  INFO("temperature " << temperature << ", top_k " << top_k << ", top_p " << top_p);
  CheckDistribution(small, params, 4000);
  CheckDistribution(large, params, 400);
}

TEST_CASE("draws spread over the whole vocabulary and all blocks of it") {
  const std::vector<float> flat(1000, 0.0f);
  CheckDistribution(flat, {.seed = 99}, 20000);
}

TEST_CASE("a result depends on logits, parameters and position alone") {
  const std::vector<float> logits = RandomLogits(32000, 3, 3);
  const SamplingParams params{.temperature = 0.8f, .top_k = 100, .top_p = 0.95f, .seed = 7};
  Sampler used, fresh;
  for (int position = 0; position < 50; ++position) {
    used.Sample(RandomLogits(500, 1, static_cast<unsigned>(position)), {.seed = 3}, 77);
    const SampledToken a = used.Sample(logits, params, position);
    const SampledToken b = fresh.Sample(logits, params, position);
    CHECK(a.token == b.token);
    CHECK(std::memcmp(&a.logprob, &b.logprob, sizeof(float)) == 0);
  }
}

TEST_CASE("the logprob is that of the plain softmax whatever the filters") {
  const std::vector<float> logits = RandomLogits(5000, 2, 4);
  const std::vector<double> p = Probabilities(logits, 1);
  Sampler sampler;
  for (int position = 0; position < 20; ++position) {
    const SampledToken sampled =
        sampler.Sample(logits, {.temperature = 2, .top_k = 50, .top_p = 0.8f, .seed = 5}, position);
    CHECK(sampled.logprob == Approx(std::log(p[static_cast<size_t>(sampled.token)])).margin(5e-6));
  }
}

TEST_CASE("NaN, infinities and hopeless rows do not crash and never win") {
  Sampler sampler;
  for (const SamplingParams& params :
       {SamplingParams{.temperature = 0}, SamplingParams{.seed = 1},
        SamplingParams{.top_k = 3, .seed = 2}, SamplingParams{.top_p = 0.5f, .seed = 3},
        SamplingParams{.top_k = 2, .top_p = 0.5f, .seed = 4}}) {
    std::vector<float> logits(600, kNan);
    const SampledToken none = sampler.Sample(logits, params, 9);
    CHECK(none.token == 0);
    CHECK(none.logprob == -kInfinity);
    logits[123] = -5;
    logits[77] = -kInfinity;
    CHECK(sampler.Sample(logits, params, 9).token == 123);
    CHECK(sampler.Sample(logits, params, 9).logprob == 0);
    logits[300] = kInfinity;
    CHECK(sampler.Sample(logits, params, 9).token == 300);
    logits[200] = kInfinity;
    const int32_t either = sampler.Sample(logits, params, 9).token;
    CHECK((either == 200 || either == 300));
  }
  CHECK(sampler.Sample(std::vector<float>{-3.0f}, {}, 0).token == 0);
}

TEST_CASE("extreme parameters fall back to greedy or to everything") {
  const std::vector<float> logits = RandomLogits(3000, 2, 6);
  const int32_t best = Sorted(logits)[0];
  Sampler sampler;
  for (int position = 0; position < 20; ++position) {
    CHECK(sampler.Sample(logits, {.temperature = 1e-45f, .seed = 1}, position).token == best);
    CHECK(
        sampler.Sample(logits, {.temperature = 1e-6f, .top_p = 0.9f, .seed = 1}, position).token ==
        best);
    CHECK(sampler.Sample(logits, {.top_p = 1e-30f, .seed = 1}, position).token == best);
    CHECK(sampler.Sample(logits, {.top_k = 1, .seed = 1}, position).token == best);
    CHECK(sampler.Sample(logits, {.top_k = 1 << 30, .seed = 1}, position).token ==
          sampler.Sample(logits, {.seed = 1}, position).token);
  }
  CheckDistribution(logits, {.temperature = 1e30f, .seed = 8}, 5000);
}

TEST_CASE("the filter keeps what a full sort would keep") {
  const NumericsMxcsrScope mxcsr;
  TokenFilter filter;
  std::mt19937 rng(17);
  for (int round = 0; round < 300; ++round) {
    const size_t n = 1 + rng() % 3000;
    std::vector<float> logits =
        RandomLogits(n, 0.1f + static_cast<float>(rng() % 50) / 10, static_cast<unsigned>(rng()));
    // Ties: some rows have few distinct values, some only one.
    if (round % 3 == 0)
      for (float& x : logits) x = std::round(x);
    if (round % 31 == 0)
      for (float& x : logits) x = 2;
    const float top = *std::max_element(logits.begin(), logits.end());
    std::vector<float> weights;
    for (float x : logits) weights.push_back(std::exp(x - top));
    const SamplingParams params{
        .top_k = round % 4 == 0 ? 0 : static_cast<int32_t>(1 + rng() % (n + n / 4)),
        .top_p = round % 5 == 0 ? 1.0f : static_cast<float>(1 + rng() % 998) / 1000};
    const auto span = filter.Keep({logits, weights}, top, top - 120, params.top_k, params.top_p);
    const std::vector<int32_t> kept(span.begin(), span.end());
    std::vector<int32_t> expected = NaiveFilter(logits, params).ids;
    INFO("n " << n << ", top_k " << params.top_k << ", top_p " << params.top_p);
    REQUIRE(std::is_sorted(kept.begin(), kept.end()));
    // A different order of sums may end one token earlier or later, not more; counts are exact.
    const std::vector<int32_t> order = Sorted(logits);
    const size_t slack = params.top_p < 1 ? 1 : 0;
    REQUIRE(kept.size() + slack >= expected.size());
    REQUIRE(kept.size() <= expected.size() + slack);
    expected.assign(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(kept.size()));
    std::sort(expected.begin(), expected.end());
    REQUIRE(kept == expected);
  }
}

// The token of a full sort and sums from the first token on, in double. is_close: so near to a
// limit of top_p or of the draw that another order of the sums may give a neighbour.
struct Drawn {
  int32_t token;
  bool is_close;
};

Drawn NaiveDraw(const std::vector<float>& logits, const SamplingParams& params, int64_t position) {
  constexpr double kClose = 1e-5;
  if (params.temperature == 0) return {Sorted(logits)[0], false};
  const std::vector<double> p = Probabilities(logits, double{params.temperature});
  std::vector<int32_t> ids = Sorted(logits);
  if (params.top_k > 0 && static_cast<size_t>(params.top_k) < ids.size())
    ids.resize(static_cast<size_t>(params.top_k));
  double mass = 0, reached = 0;
  for (const int32_t id : ids) mass += p[static_cast<size_t>(id)];
  bool is_close = false;
  size_t n = 0;
  while (n < ids.size() && (n == 0 || params.top_p >= 1 || reached < params.top_p * mass)) {
    reached += p[static_cast<size_t>(ids[n++])];
    is_close |= params.top_p < 1 && std::abs(reached / mass - params.top_p) < kClose;
  }
  ids.resize(n);
  std::sort(ids.begin(), ids.end());
  const double target = UniformAt(params.seed, position, 0) * reached;
  double below = 0;
  for (const int32_t id : ids) {
    below += p[static_cast<size_t>(id)];
    is_close |= std::abs(below - target) < kClose * reached && p[static_cast<size_t>(id)] > 0;
    if (below > target) return {id, is_close};
  }
  return {ids.back(), true};
}

struct ParamsRow {
  std::span<const float> logits;
  SamplingParams params;
  int64_t position;
};

// Returns rows with and without equal logits, with every combination of filters.
std::vector<ParamsRow> RowsOfAllKinds(const std::vector<std::vector<float>>& logits) {
  std::vector<ParamsRow> rows;
  for (const float temperature : {0.0f, 0.3f, 1.0f, 2.5f}) {
    for (const int32_t top_k : {0, 1, 5, 64, 1 << 20}) {
      for (const float top_p : {1.0f, 0.95f, 0.5f, 0.01f}) {
        const int64_t i = static_cast<int64_t>(rows.size());
        rows.push_back({.logits = logits[rows.size() % logits.size()],
                        .params = {.temperature = temperature,
                                   .top_k = top_k,
                                   .top_p = top_p,
                                   .seed = static_cast<uint64_t>(31 * i)},
                        .position = 1000 + i});
      }
    }
  }
  return rows;
}

TEST_CASE("tokens are those of a full sort, whatever the filters and the ties") {
  std::mt19937 rng(29);
  Sampler sampler;
  int close = 0, all = 0;
  for (int round = 0; round < 12; ++round) {
    std::vector<std::vector<float>> logits;
    for (int kind = 0; kind < 4; ++kind) {
      logits.push_back(RandomLogits(1 + rng() % 1200, 2, static_cast<unsigned>(rng())));
      if (kind == 1)  // few values
        for (float& x : logits.back()) x = std::round(x);
      if (kind == 2)  // pairs of equals far apart
        for (size_t i = 0; i < logits[2].size() / 2; ++i)
          logits[2][logits[2].size() - 1 - i] = logits[2][i];
      if (kind == 3)  // all equal
        for (float& x : logits.back()) x = -1.5f;
    }
    for (const ParamsRow& row : RowsOfAllKinds(logits)) {
      const std::vector<float> copy(row.logits.begin(), row.logits.end());
      const Drawn expected = NaiveDraw(copy, row.params, row.position);
      const int32_t token = sampler.Sample(row.logits, row.params, row.position).token;
      ++all;
      close += expected.is_close;
      INFO("n " << copy.size() << ", temperature " << row.params.temperature << ", top_k "
                << row.params.top_k << ", top_p " << row.params.top_p);
      if (!expected.is_close) REQUIRE(token == expected.token);
    }
  }
  CHECK(close < all / 10);
}

TEST_CASE("rows sampled together, on any number of threads, are those sampled alone") {
  std::vector<std::vector<float>> logits;
  for (unsigned i = 0; i < 7; ++i) logits.push_back(RandomLogits(900 + 50 * i, 3, i));
  const std::vector<ParamsRow> kinds = RowsOfAllKinds(logits);
  std::deque<SequenceSampling> sequences;
  std::vector<SampleRow> rows;
  for (const ParamsRow& kind : kinds)
    rows.push_back({kind.logits, &sequences.emplace_back(kind.params), kind.position});
  Sampler alone;
  for (const int threads : {1, 2, 3}) {
    ComputePool pool(threads, 0);
    Sampler together(&pool);
    std::vector<SampledToken> sampled(rows.size());
    together.SampleRows(rows, sampled);
    for (size_t i = 0; i < rows.size(); ++i) {
      const SampledToken one = alone.Sample(kinds[i].logits, kinds[i].params, kinds[i].position);
      REQUIRE(one.token == sampled[i].token);
      REQUIRE(std::memcmp(&one.logprob, &sampled[i].logprob, sizeof(float)) == 0);
    }
  }
  std::vector<SampledToken> sampled(rows.size());
  alone.SampleRows(rows, sampled);  // without a pool
  CHECK(sampled[9].token ==
        alone.Sample(kinds[9].logits, kinds[9].params, kinds[9].position).token);
}

}  // namespace
}  // namespace baton
