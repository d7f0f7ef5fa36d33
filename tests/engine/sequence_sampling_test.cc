// Parameters that depend on the tokens of a sequence, against a plain model of each: what is drawn
// is what the sampler draws from the logits that the model changed, bit by bit.
#include "engine/sampling/sequence_sampling.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <numeric>
#include <random>
#include <set>

#include "engine/numerics/exp2.h"
#include "engine/numerics/fold.h"
#include "engine/numerics/log.h"
#include "engine/numerics/philox.h"
#include "engine/sampling/sampler.h"
#include "engine/sampling/sampler_rows.h"
#include "engine/threads/mxcsr.h"

namespace baton {
namespace {

using Tokens = std::vector<int32_t>;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

struct Case {
  std::vector<float> logits;
  SamplingParams params;
  Tokens stops, prompt, generated;

  Tokens History() const {
    Tokens history = prompt;
    history.insert(history.end(), generated.begin(), generated.end());
    return history;
  }
};

float Sane(float x) {
  if (std::isnan(x)) return -kInfinity;
  return std::min(x, std::numeric_limits<float>::max());
}

// docs/NUMERICS.md N8, as it stands there: for each id on its own, in the order of the text.
std::vector<float> Changed(const Case& c) {
  const NumericsMxcsrScope mxcsr;
  const SamplingParams& p = c.params;
  const Tokens history = c.History();
  const bool is_penalized =
      p.repetition_penalty != 1 || p.presence_penalty != 0 || p.frequency_penalty != 0;
  std::vector<float> out;
  for (int32_t id = 0; id < static_cast<int32_t>(c.logits.size()); ++id) {
    float x = Sane(c.logits[static_cast<size_t>(id)]);
    const auto is_in = [id](const Tokens& list) {
      return std::find(list.begin(), list.end(), id) != list.end();
    };
    for (const LogitBias& entry : p.logit_bias)
      if (entry.token == id) x = Sane(x + entry.bias);
    if (p.repetition_penalty != 1 && is_in(history))
      x = x > 0 ? x / p.repetition_penalty : x * p.repetition_penalty;
    const auto n = std::count(c.generated.begin(), c.generated.end(), id);
    if (n > 0 && is_penalized) {
      const float frequency = p.frequency_penalty * static_cast<float>(n);
      x = x - frequency;
      x = x - p.presence_penalty;
    }
    bool is_masked = !p.allowed_tokens.empty() && !is_in(p.allowed_tokens);
    for (const Tokens& word : p.bad_words) {
      if (word.back() != id || word.size() - 1 > c.generated.size()) continue;
      is_masked |= std::equal(word.begin(), word.end() - 1,
                              c.generated.end() - static_cast<std::ptrdiff_t>(word.size() - 1));
    }
    is_masked |= static_cast<int>(c.generated.size()) < p.min_tokens && is_in(c.stops);
    is_masked |= p.vocab_end > 0 && id >= p.vocab_end;
    out.push_back(is_masked ? -kInfinity : Sane(x));
  }
  return out;
}

class CaseMaker {
 public:
  explicit CaseMaker(unsigned seed) : rng_(seed) {}

  Case Make() {
    Case c;
    vocab_ = 1 + Below(700);
    std::normal_distribution<float> normal(0, 3);
    for (int i = 0; i < vocab_; ++i) c.logits.push_back(normal(rng_));
    if (Percent(30))
      for (float& x : c.logits) x = std::round(x);
    if (Percent(20)) c.logits[static_cast<size_t>(Id())] = kNan;
    if (Percent(20)) c.logits[static_cast<size_t>(Id())] = kInfinity;
    if (Percent(20)) c.logits[static_cast<size_t>(Id())] = -kInfinity;
    if (Percent(20)) c.logits[static_cast<size_t>(Id())] = 1e-40f;  // flushed to 0
    c.prompt = Ids(1 + Below(60));
    c.generated = Ids(Below(40));
    c.stops = Ids(Below(4));
    SamplingParams& p = c.params;
    p.seed = rng_();
    p.temperature = Percent(30) ? 0.0f : Uniform(0.2f, 2);
    if (Percent(30)) p.top_k = 1 + Below(40);
    if (Percent(30)) p.top_p = Uniform(0.05f, 1);
    if (Percent(30)) p.min_p = Uniform(0, 1);
    if (Percent(40)) p.presence_penalty = Uniform(-2, 2);
    if (Percent(40)) p.frequency_penalty = Uniform(-2, 2);
    if (Percent(40)) p.repetition_penalty = Percent(20) ? 1e-6f : Uniform(0.5f, 2);
    if (Percent(40)) p.min_tokens = Below(50);
    if (Percent(40))
      for (const int32_t id : Ascending(Ids(1 + Below(30))))
        p.logit_bias.push_back({id, Percent(20) ? -kInfinity : Uniform(-100, 100)});
    if (Percent(25)) p.allowed_tokens = Ascending(Ids(1 + Below(100)));
    if (Percent(40)) MakeBadWords(&c);
    if (Percent(25)) p.vocab_end = 1 + Below(vocab_ + 5);
    p.top_logprobs = Below(22) - 1;
    if (Percent(30)) p.logprob_tokens = Ids(Below(10));
    return c;
  }

  int Below(int n) { return static_cast<int>(rng_() % static_cast<unsigned>(n)); }

 private:
  // Half of them are such that the last token would complete them.
  void MakeBadWords(Case* c) {
    for (int i = 1 + Below(6); i > 0; --i) {
      Tokens word;
      const int n = std::min(Below(5), static_cast<int>(c->generated.size()));
      if (Percent(50))
        word.assign(c->generated.end() - n, c->generated.end());
      else
        word = Ids(n);
      word.push_back(Id());
      c->params.bad_words.push_back(word);
    }
  }
  bool Percent(int percent) { return Below(100) < percent; }
  float Uniform(float min, float max) {
    return std::uniform_real_distribution<float>(min, max)(rng_);
  }
  int32_t Id() { return Below(vocab_); }
  Tokens Ids(int n) {
    Tokens ids;
    for (int i = 0; i < n; ++i) ids.push_back(Id());
    return ids;
  }
  static Tokens Ascending(const Tokens& ids) {
    const std::set<int32_t> set(ids.begin(), ids.end());
    return {set.begin(), set.end()};
  }

  std::mt19937 rng_;
  int vocab_ = 1;
};

bool SameBits(float a, float b) { return std::memcmp(&a, &b, sizeof(float)) == 0; }

SampledToken SampleCase(const Case& c, int64_t position) {
  const Tokens history = c.History();
  const SequenceSampling sampling(c.params, c.stops, history,
                                  static_cast<int32_t>(c.generated.size()));
  Sampler sampler;
  return sampler.Sample(c.logits, sampling, position);
}

}  // namespace

TEST_CASE("parameters drawn together change the logits as the model of each does, to the bit") {
  CaseMaker maker(1);
  int changed = 0;
  for (int round = 0; round < 2000; ++round) {
    const Case c = maker.Make();
    const std::vector<float> expected = Changed(c);
    const Tokens history = c.History();
    const SequenceSampling sampling(c.params, c.stops, history,
                                    static_cast<int32_t>(c.generated.size()));
    const size_t n = sampling.DrawableOf(c.logits.size());
    std::vector<float> logits(c.logits.begin(), c.logits.begin() + static_cast<std::ptrdiff_t>(n));
    {
      const NumericsMxcsrScope mxcsr;
      std::vector<float> out(n);
      sampling.ChangeLogits(logits, out);
      if (sampling.ChangesLogits()) logits = out;
      // Parameters that are off leave every bit as it is.
      if (!sampling.ChangesLogits())
        REQUIRE(std::memcmp(logits.data(), out.data(), n * sizeof(float)) == 0);
    }
    changed += sampling.ChangesLogits();
    INFO("round " << round);
    for (size_t i = 0; i < expected.size(); ++i) {
      INFO("id " << i << ", logit " << c.logits[i]);
      REQUIRE(SameBits(i < n ? Sane(logits[i]) : -kInfinity, expected[i]));
    }
  }
  CHECK(changed > 1500);
}

TEST_CASE("parameters drawn together give the token that the changed logits alone give") {
  CaseMaker maker(2);
  Sampler plain;
  for (int round = 0; round < 2000; ++round) {
    const Case c = maker.Make();
    const std::vector<float> changed = Changed(c);
    const SamplingParams filters{.temperature = c.params.temperature,
                                 .top_k = c.params.top_k,
                                 .top_p = c.params.top_p,
                                 .min_p = c.params.min_p,
                                 .seed = c.params.seed};
    INFO("round " << round);
    const SampledToken sampled = SampleCase(c, 100 + round);
    REQUIRE(sampled.token == plain.Sample(changed, filters, 100 + round).token);
    // The logprob is that of the logits as they were.
    const SamplingParams only{.temperature = 0, .logprob_tokens = {sampled.token}};
    REQUIRE(SameBits(sampled.logprob, plain.Sample(c.logits, only, 0).logprobs.at(0).logprob));
  }
}

TEST_CASE("a state that is told of its tokens one by one is the state made from them") {
  CaseMaker maker(3);
  for (int round = 0; round < 500; ++round) {
    const Case c = maker.Make();
    const Tokens history = c.History();
    const auto n = static_cast<int32_t>(c.generated.size());
    const int first = maker.Below(n + 1);  // tokens before a failover
    SequenceSampling told(c.params, c.stops,
                          std::span(history).first(c.prompt.size() + static_cast<size_t>(first)),
                          first);
    for (int i = first; i < n; ++i) told.Push(c.generated[static_cast<size_t>(i)]);
    const SequenceSampling made(c.params, c.stops, history, n);
    CHECK(told.n_generated() == made.n_generated());
    REQUIRE(told.ChangesLogits() == made.ChangesLogits());
    const NumericsMxcsrScope mxcsr;
    std::vector<float> a(c.logits.size()), b(c.logits.size());
    told.ChangeLogits(c.logits, a);
    made.ChangeLogits(c.logits, b);
    INFO("round " << round << ", " << first << " of " << n);
    REQUIRE(std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
  }
}

TEST_CASE("each penalty counts what it should") {
  // 1 is in the prompt, 2 was generated twice, 3 once.
  const std::vector<float> logits = {0, 4, 4, -4, 4};
  const Tokens history = {1, 1, 2, 3, 2};
  const auto changed = [&](const SamplingParams& params) {
    const NumericsMxcsrScope mxcsr;
    std::vector<float> out(logits.size());
    SequenceSampling(params, {}, history, 3).ChangeLogits(logits, out);
    return out;
  };
  using Floats = std::vector<float>;
  CHECK(changed({.repetition_penalty = 2}) == Floats{0, 2, 2, -8, 4});
  CHECK(changed({.presence_penalty = 0.5f}) == Floats{0, 4, 3.5f, -4.5f, 4});
  CHECK(changed({.frequency_penalty = 0.5f}) == Floats{0, 4, 3, -4.5f, 4});
  CHECK(changed({.presence_penalty = -1, .frequency_penalty = 0.5f, .repetition_penalty = 2}) ==
        Floats{0, 2, 2, -7.5f, 4});
  // The bias comes first, so the penalty multiplies it too.
  CHECK(changed({.repetition_penalty = 2, .logit_bias = {{1, 2}, {4, 1}}}) ==
        Floats{0, 3, 2, -8, 5});
}

TEST_CASE("a bad word is never completed, and its beginning may come") {
  const std::vector<float> logits(10, 0);
  const SamplingParams params{.temperature = 0, .bad_words = {{0}, {1, 2}, {3, 4, 1}}};
  const auto best = [&](const Tokens& generated) {
    Tokens history = {1};  // a prompt's token begins no bad word
    history.insert(history.end(), generated.begin(), generated.end());
    const SequenceSampling sampling(params, {}, history, static_cast<int32_t>(generated.size()));
    Sampler sampler;
    std::vector<float> row = logits;
    row[2] = 1;
    return sampler.Sample(row, sampling, 0).token;
  };
  CHECK(best({}) == 2);
  CHECK(best({1}) == 1);
  CHECK(best({3, 1}) == 1);
  CHECK(best({1, 3}) == 2);
  // After 3 4 the 1 is masked, the 2 is not.
  std::vector<float> out(10);
  const Tokens history = {9, 3, 4};
  SequenceSampling(params, {}, history, 2).ChangeLogits(logits, out);
  CHECK(out[0] == -kInfinity);
  CHECK(out[1] == -kInfinity);
  CHECK(out[2] == 0);
}

TEST_CASE("stop tokens wait for min_tokens, counted over all attempts") {
  const std::vector<float> logits = {0, 5, 1};
  const SamplingParams params{.temperature = 0, .min_tokens = 3};
  const Tokens stops = {1};
  SequenceSampling sampling(params, stops, {}, 1);  // of an earlier attempt
  Sampler sampler;
  Tokens drawn;
  for (int i = 0; i < 3; ++i) {
    drawn.push_back(sampler.Sample(logits, sampling, i).token);
    sampling.Push(drawn.back());
  }
  CHECK(drawn == Tokens{2, 2, 1});
  CHECK_FALSE(sampling.ChangesLogits());
}

TEST_CASE("ids without a token are never drawn, and the row stays where it is") {
  std::vector<float> logits(300, 0.0f);
  for (size_t i = 250; i < 300; ++i) logits[i] = 20;
  for (const float temperature : {0.0f, 1.0f, 2.0f}) {
    const SamplingParams params{
        .temperature = temperature, .seed = 3, .vocab_end = 250, .top_logprobs = 20};
    CHECK_FALSE(SequenceSampling(params).ChangesLogits());
    Sampler sampler;
    for (int position = 0; position < 200; ++position) {
      const SampledToken sampled = sampler.Sample(logits, params, position);
      REQUIRE(sampled.token < 250);
      REQUIRE(sampled.logprobs.size() == 20);
      for (const TokenLogprob& entry : sampled.logprobs) REQUIRE(entry.token < 250);
      // The softmax is over all ids.
      REQUIRE(sampled.logprob < -20);
    }
  }
}

TEST_CASE("where nothing is left to draw the token is 0") {
  const std::vector<float> logits = {1, 2, 3};
  for (const float temperature : {0.0f, 1.0f}) {
    const SamplingParams params{.temperature = temperature,
                                .logit_bias = {{2, -kInfinity}},
                                .allowed_tokens = {1, 2},
                                .bad_words = {{1}}};
    Sampler sampler;
    const SampledToken sampled = sampler.Sample(logits, params, 0);
    CHECK(sampled.token == 0);
    CHECK(sampled.logprob ==
          Approx(std::log(std::exp(1) / (std::exp(1) + std::exp(2) + std::exp(3)))));
  }
}

TEST_CASE("min_p drops what is less probable than its share of the top, after the temperature") {
  std::mt19937 rng(5);
  Sampler sampler;
  for (int round = 0; round < 300; ++round) {
    const size_t n = 1 + rng() % 2000;
    std::normal_distribution<float> normal(0, 2);
    std::vector<float> logits(n);
    for (float& x : logits) x = normal(rng);
    SamplingParams params{.temperature = 0.5f + static_cast<float>(rng() % 100) / 50,
                          .top_k = round % 3 == 0 ? 1 + static_cast<int32_t>(rng() % 30) : 0,
                          .min_p = static_cast<float>(1 + rng() % 100) / 100,
                          .seed = rng()};
    // The test adds the weights of rule N8 one after the other.
    std::vector<std::pair<double, int32_t>> kept;  // (-weight, id)
    const double top = *std::max_element(logits.begin(), logits.end());
    bool is_close = false;
    for (size_t i = 0; i < n; ++i) {
      const double w = std::exp((logits[i] - top) / params.temperature);
      is_close |= std::abs(w - params.min_p) < 1e-5;
      if (w >= params.min_p || logits[i] == top) kept.push_back({-w, static_cast<int32_t>(i)});
    }
    std::sort(kept.begin(), kept.end());
    if (params.top_k > 0 && kept.size() > static_cast<size_t>(params.top_k))
      kept.resize(static_cast<size_t>(params.top_k));
    std::sort(kept.begin(), kept.end(),
              [](const auto& a, const auto& b) { return a.second < b.second; });
    double total = 0, below = 0;
    for (const auto& [w, id] : kept) total -= w;
    const double target = UniformAt(params.seed, round, 0) * total;
    int32_t expected = -1;
    for (const auto& [w, id] : kept) {
      below -= w;
      is_close |= std::abs(below - target) < 1e-5 * total;
      if (below > target && expected < 0) expected = id;
    }
    const int32_t token = sampler.Sample(logits, params, round).token;
    INFO("round " << round << ", n " << n << ", min_p " << params.min_p);
    if (!is_close) REQUIRE(token == expected);
    // top_p is a share of what min_p left.
    params.top_p = 1e-6f;
    REQUIRE(sampler.Sample(logits, params, round).token ==
            std::max_element(logits.begin(), logits.end()) - logits.begin());
  }
}

TEST_CASE("the most probable tokens come in order with the logprobs of a plain model, to the bit") {
  CaseMaker maker(6);
  for (int round = 0; round < 1000; ++round) {
    const Case c = maker.Make();
    const SampledToken sampled = SampleCase(c, round);
    const NumericsMxcsrScope mxcsr;
    const size_t n = c.logits.size();
    std::vector<float> sane;
    for (const float x : c.logits) sane.push_back(Sane(x));
    const float top = *std::max_element(sane.begin(), sane.end());
    // Sums of N8: blocks of 256 in sixteen lanes, blocks in fp64.
    double total = 0;
    for (size_t begin = 0; begin < n; begin += 256) {
      float lanes[16] = {};
      for (size_t i = begin; i < std::min(n, begin + 256); ++i)
        lanes[(i - begin) % 16] += Exp2((sane[i] - top) * static_cast<float>(kLog2E));
      total += static_cast<double>(FoldSum(lanes));
    }
    const auto logprob = [&](int32_t token) {
      if (top == -kInfinity) return -kInfinity;
      const double gap = static_cast<double>(sane[static_cast<size_t>(token)]) - double{top};
      return static_cast<float>(gap - NaturalLog(total));
    };
    size_t end = n;
    if (c.params.vocab_end > 0) end = std::min(n, static_cast<size_t>(c.params.vocab_end));
    Tokens ids(end);
    std::iota(ids.begin(), ids.end(), 0);
    std::stable_sort(ids.begin(), ids.end(), [&](int32_t a, int32_t b) {
      return sane[static_cast<size_t>(a)] > sane[static_cast<size_t>(b)];
    });
    ids.resize(std::min(end, static_cast<size_t>(std::max(0, c.params.top_logprobs))));
    ids.insert(ids.end(), c.params.logprob_tokens.begin(), c.params.logprob_tokens.end());
    INFO("round " << round << ", n " << n << ", top_logprobs " << c.params.top_logprobs);
    REQUIRE(sampled.logprobs.size() == ids.size());
    for (size_t i = 0; i < ids.size(); ++i) {
      REQUIRE(sampled.logprobs[i].token == ids[i]);
      REQUIRE(SameBits(sampled.logprobs[i].logprob, logprob(ids[i])));
    }
    REQUIRE(SameBits(sampled.logprob, logprob(sampled.token)));
  }
}

TEST_CASE("ids beyond the row are ignored, and have no probability") {
  const std::vector<float> logits = {1, 3, 2};
  const SamplingParams params{.temperature = 0,
                              .logit_bias = {{2, 5}, {700, 100}},
                              .allowed_tokens = {1, 2, 900},
                              .bad_words = {{800}},
                              .vocab_end = 1000,
                              .logprob_tokens = {3, 2}};
  Sampler sampler;
  const SampledToken sampled = sampler.Sample(logits, params, 0);
  CHECK(sampled.token == 2);
  REQUIRE(sampled.logprobs.size() == 2);
  CHECK(sampled.logprobs[0] == TokenLogprob{3, -kInfinity});
  CHECK(sampled.logprobs[1] == TokenLogprob{2, sampled.logprob});
}

}  // namespace baton
