// Draws the parameters of a request that change which tokens are chosen, or what is reported with
// them, all together: for tests that compare ways of serving the request. The same seed gives the
// same parameters on every machine.
#pragma once

#include <cstdint>
#include <limits>
#include <random>
#include <set>
#include <vector>

#include "common/request_limits.h"
#include "common/sampling_params.h"

namespace baton {

// Draws everything but temperature and seed, which are `from`'s, for token ids below `vocab`.
inline SamplingParams DrawSampling(SamplingParams from, int vocab) {
  std::mt19937_64 random(from.seed);
  const auto below = [&random](int n) {
    return static_cast<int>(random() % static_cast<uint64_t>(n));
  };
  const auto percent = [&below](int share) { return below(100) < share; };
  const auto hundredths = [&below](int min, int max) {
    return static_cast<float>(min + below(max - min + 1)) / 100;
  };
  const auto distinct = [&](int n) {
    std::set<int32_t> ids;
    while (n-- > 0) ids.insert(below(vocab));
    return std::vector<int32_t>(ids.begin(), ids.end());
  };
  SamplingParams params = from;
  if (percent(30)) params.top_k = 1 + below(vocab);
  if (percent(30)) params.top_p = hundredths(10, 100);
  if (percent(30)) params.min_p = hundredths(0, 50);
  if (percent(50)) params.presence_penalty = hundredths(-200, 200);
  if (percent(50)) params.frequency_penalty = hundredths(-200, 200);
  if (percent(50)) params.repetition_penalty = hundredths(50, 200);
  if (percent(30)) params.min_tokens = below(20);
  if (percent(30))
    for (const int32_t token : distinct(1 + below(10)))
      params.logit_bias.push_back(
          {token, percent(20) ? -std::numeric_limits<float>::infinity() : hundredths(-400, 400)});
  if (percent(20)) params.allowed_tokens = distinct(vocab / 2 + 1);
  if (percent(30))
    for (int n = 1 + below(40); n > 0; --n) {
      std::vector<int32_t> word;
      for (int i = 1 + below(3); i > 0; --i) word.push_back(below(vocab));
      params.bad_words.push_back(word);
    }
  if (percent(25)) {
    params.reasoning.max_tokens = below(12);
    if (percent(30)) params.reasoning.begin = below(vocab / 2);
    params.reasoning.end = below(vocab / 2);
  }
  if (percent(20)) params.vocab_end = vocab / 2 + 1 + below(vocab / 2);
  if (percent(50))
    params.top_logprobs = below(static_cast<int>(RequestLimits::kTopLogprobs.max) + 1);
  if (percent(30)) params.logprob_tokens = distinct(1 + below(5));
  return params;
}

}  // namespace baton
