// Sequences with a grammar: only its tokens are drawn, whatever else the parameters say, and a
// sequence that goes on elsewhere goes on in the same place.
#include <algorithm>
#include <catch2/catch.hpp>
#include <limits>
#include <random>

#include "engine/sampling/sampler.h"
#include "engine/sampling/sequence_sampling.h"
#include "tests/support/hash_grammar.h"

namespace baton {
namespace {

constexpr int kVocab = 100;
constexpr int32_t kEnd = HashMatcher::kEndToken;

std::vector<float> Logits(std::mt19937_64& random, int vocab = kVocab) {
  std::vector<float> logits(static_cast<size_t>(vocab));
  for (float& x : logits) x = static_cast<float>(random() % 1000) / 100;
  return logits;
}

SamplingParams Params(const std::string& text, uint64_t seed = 1) {
  return {.temperature = 1, .seed = seed, .grammar = {GrammarKind::kRegex, text}};
}

int32_t DrawNext(Sampler& sampler, SequenceSampling& sequence, const std::vector<float>& logits) {
  sequence.MakeMask();
  const int32_t token = sampler.Sample(logits, sequence, sequence.n_generated()).token;
  sequence.Push(token);
  return token;
}

TEST_CASE("only tokens of the grammar are drawn, and others are when it is left out") {
  std::mt19937_64 random(1);
  Sampler sampler;
  int n_outside = 0;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    SamplingParams params = Params("a", seed);
    params.logit_bias = {{static_cast<int32_t>(seed), 100}};  // brings no token back
    params.presence_penalty = 1;
    const HashGrammar grammar("a", kVocab);
    SequenceSampling sequence(params, {}, {}, 0, &grammar);
    CHECK(sequence.has_grammar());
    const auto judge = *grammar.NewMatcher();
    for (int i = 0; i < 30; ++i) {
      const std::vector<float> logits = Logits(random);
      SamplingParams free = params;
      free.grammar = {};
      std::vector<uint32_t> bits(judge->mask_words());
      REQUIRE(judge->FillMask(bits).ok());
      const auto without = static_cast<size_t>(sampler.Sample(logits, free, i).token);
      n_outside += (bits[without / 32] >> (without % 32) & 1) == 0;
      const int32_t token = DrawNext(sampler, sequence, logits);
      REQUIRE(sequence.status().ok());
      REQUIRE(judge->Push(token).ok());
    }
  }
  CHECK(n_outside > 100);
}

TEST_CASE("a sequence that goes on elsewhere has the same tokens") {
  std::mt19937_64 random(2);
  Sampler sampler;
  const SamplingParams params = Params("b", 5);
  const HashGrammar grammar("b", kVocab);
  std::vector<int32_t> history = {3, 4};
  SequenceSampling whole(params, {}, history, 0, &grammar);
  for (int n = 0; n < 40; ++n) {
    const std::vector<float> logits = Logits(random);
    SequenceSampling later(params, {}, history, n, &grammar);
    const int32_t token = DrawNext(sampler, whole, logits);
    CHECK(DrawNext(sampler, later, logits) == token);
    history.push_back(token);
  }
}

TEST_CASE("a text that is over ends, whatever min_tokens says") {
  std::mt19937_64 random(3);
  Sampler sampler;
  SamplingParams params = Params("c ends 5");
  params.min_tokens = 10;
  const std::vector<int32_t> stops = {kEnd, 20};
  const HashGrammar grammar("c ends 5", kVocab);
  SequenceSampling sequence(params, stops, {}, 0, &grammar);
  for (int i = 0; i < 5; ++i) {
    const int32_t token = DrawNext(sampler, sequence, Logits(random));
    CHECK(std::find(stops.begin(), stops.end(), token) == stops.end());
  }
  CHECK(DrawNext(sampler, sequence, Logits(random)) == kEnd);
  CHECK(sequence.status().ok());
}

TEST_CASE("the end of reasoning waits until the grammar allows it") {
  Sampler sampler;
  int n_waited = 0;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    std::mt19937_64 random(seed);
    SamplingParams params = Params(std::to_string(seed), seed);
    constexpr int32_t kClose = 30;
    params.reasoning = {.max_tokens = 3, .end = kClose};
    const HashGrammar grammar(params.grammar.text, kVocab);
    SequenceSampling sequence(params, {}, {}, 0, &grammar);
    const auto judge = *grammar.NewMatcher();
    bool is_open = true;
    for (int i = 0; i < 30; ++i) {
      std::vector<uint32_t> bits(judge->mask_words());
      REQUIRE(judge->FillMask(bits).ok());
      const bool may_close = (bits[0] >> kClose & 1) != 0;
      const int32_t token = DrawNext(sampler, sequence, Logits(random));
      REQUIRE(sequence.status().ok());
      REQUIRE(judge->Push(token).ok());
      if (is_open && i >= 3) CHECK((token == kClose) == may_close);
      n_waited += is_open && i >= 3 && !may_close;
      is_open = is_open && token != kClose;
    }
    CHECK_FALSE(is_open);
  }
  CHECK(n_waited > 10);
}

TEST_CASE("ids beyond the grammar's vocabulary are never drawn") {
  std::mt19937_64 random(4);
  Sampler sampler;
  const SamplingParams params = Params("d");
  const HashGrammar grammar("d", 40);  // its mask has 64 bits, of which 24 stand for nothing
  SequenceSampling sequence(params, {}, {}, 0, &grammar);
  for (int i = 0; i < 50; ++i) {
    std::vector<float> logits = Logits(random);
    for (size_t id = 40; id < logits.size(); ++id) logits[id] += 50;
    CHECK(DrawNext(sampler, sequence, logits) < 40);
  }
  CHECK(sequence.status().ok());
}

TEST_CASE("a grammar that cannot go on says so, and stays so") {
  std::mt19937_64 random(5);
  Sampler sampler;
  const SamplingParams params = Params("e breaks 3");
  const HashGrammar grammar("e breaks 3", kVocab);
  SequenceSampling sequence(params, {}, {}, 0, &grammar);
  for (int i = 0; i < 3; ++i) DrawNext(sampler, sequence, Logits(random));
  CHECK(sequence.status().ok());
  DrawNext(sampler, sequence, Logits(random));
  CHECK(absl::IsResourceExhausted(sequence.status()));
  DrawNext(sampler, sequence, Logits(random));
  CHECK(absl::IsResourceExhausted(sequence.status()));

  // Nothing is left that both the grammar and allowed_tokens allow.
  SamplingParams narrow = Params("f ends 0");
  narrow.allowed_tokens = {kEnd + 1};
  const HashGrammar over("f ends 0", kVocab);
  SequenceSampling stuck(narrow, {}, {}, 0, &over);
  DrawNext(sampler, stuck, Logits(random));
  CHECK(absl::IsInvalidArgument(stuck.status()));
}

}  // namespace
}  // namespace baton
