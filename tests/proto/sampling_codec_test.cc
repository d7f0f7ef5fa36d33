// The sampling parameters on the wire: every field survives, bounds hold by name, and what depends
// on the tokens so far comes with them.
#include <catch2/catch.hpp>

#include <functional>
#include <limits>
#include <random>

#include "tests/support/control_bytes.h"

namespace baton {
namespace {

using Catch::Contains;
using Catch::StartsWith;
using Limits = RequestLimits;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

SamplingParams EveryParameter() {
  return {.temperature = 0.7f,
          .top_k = -1,
          .top_p = 0.9f,
          .min_p = 0.25f,
          .seed = ~0ull,
          .presence_penalty = -2,
          .frequency_penalty = 1.5f,
          .repetition_penalty = 1.25f,
          .min_tokens = 9,
          .logit_bias = {{0, -100}, {7, -kInfinity}, {std::numeric_limits<int32_t>::max(), 100}},
          .allowed_tokens = {0, 3, 5},
          .bad_words = {{1}, {0, 2, 4}},
          .grammar = {GrammarKind::kRegex, "[a-z\xC3\xA9]+"},
          .vocab_end = 32000,
          .reasoning = {.max_tokens = 7, .begin = 0, .end = 8},
          .top_logprobs = 20,
          .logprob_tokens = {9, 1, 9}};
}

PrefillRequest Prefill() {
  PrefillRequest prefill{.request_id = 1, .epoch = 2};
  prefill.tokens = {5, 6, 7};
  prefill.n_generated = 2;
  prefill.sampling = EveryParameter();
  prefill.stop_tokens = {4, 0};
  prefill.prompt_logprobs = 0;
  return prefill;
}

DecodeRequest Decode() {
  return {.request_id = 1,
          .epoch = 2,
          .tokens = {5, 6, 7},
          .n_generated = 2,
          .max_tokens = 4,
          .sampling = EveryParameter(),
          .stop_tokens = {4, 0}};
}

std::vector<RouterMessage> Both() { return {Prefill(), Decode()}; }

std::string RefusalOf(const RouterMessage& message) {
  const auto decoded = ParseMessages(SerializeMessages(std::span(&message, 1)));
  REQUIRE(decoded.ok());
  if (decoded->unreadable.empty()) return "";
  CHECK(decoded->messages.empty());
  return decoded->unreadable[0].message;
}

// The refusal of the parameters, the same of both requests but for their own names.
std::string Refusal(const std::function<void(SamplingParams*)>& change) {
  PrefillRequest prefill = Prefill();
  DecodeRequest decode = Decode();
  change(&prefill.sampling);
  change(&decode.sampling);
  std::string refusal = RefusalOf(prefill);
  CHECK(CheckSampling(prefill.sampling).ok() == refusal.empty());
  if (refusal.empty()) {
    CHECK(RefusalOf(decode).empty());
    return refusal;
  }
  REQUIRE_THAT(refusal, StartsWith("prefill.sampling."));
  refusal.erase(0, std::string("prefill.").size());
  CHECK("decode." + refusal == RefusalOf(decode));
  return refusal;
}

std::vector<int32_t> UpTo(int n) {
  std::vector<int32_t> ids;
  for (int i = 0; i < n; ++i) ids.push_back(i);
  return ids;
}

}  // namespace

TEST_CASE("the parameters survive the wire field by field, with the tokens they need") {
  const auto out = ParseMessages(SerializeMessages(Both()));
  REQUIRE(out.ok());
  REQUIRE(out->messages.size() == 2);
  const auto& prefill = std::get<PrefillRequest>(out->messages[0]);
  CHECK(prefill.sampling == EveryParameter());
  CHECK(prefill.n_generated == 2);
  CHECK(prefill.stop_tokens == Prefill().stop_tokens);
  CHECK(prefill.prompt_logprobs == 0);
  const auto& decode = std::get<DecodeRequest>(out->messages[1]);
  CHECK(decode.sampling == EveryParameter());
  CHECK(decode.n_generated == 2);
  CHECK(decode.tokens == Decode().tokens);
}

TEST_CASE("parameters that nobody set survive the wire") {
  PrefillRequest prefill = Prefill();
  prefill.sampling = {};
  const auto out = ParseMessages(SerializeMessages(std::vector<RouterMessage>{prefill}));
  REQUIRE(out.ok());
  REQUIRE(out->messages.size() == 1);
  CHECK(std::get<PrefillRequest>(out->messages[0]).sampling == SamplingParams{});
}

TEST_CASE("a parameter out of bounds is refused by its name") {
  using P = SamplingParams;
  CHECK(Refusal([](P*) {}).empty());
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  CHECK_THAT(Refusal([](P* p) { p->grammar.text = std::string(kMaxGrammarBytes + 1, 'a'); }),
             Contains("bytes of a grammar"));
  CHECK(Refusal([](P* p) { p->grammar.text = std::string(kMaxGrammarBytes, 'a'); }).empty());
  CHECK_THAT(Refusal([](P* p) { p->grammar.kind = static_cast<GrammarKind>(7); }),
             Contains("sampling.grammar_kind"));
  CHECK_THAT(Refusal([](P* p) { p->grammar.kind = static_cast<GrammarKind>(-1); }),
             Contains("sampling.grammar_kind"));
  CHECK_THAT(Refusal([](P* p) { p->min_p = 1.01f; }), Contains("sampling.min_p"));
  CHECK_THAT(Refusal([](P* p) { p->min_p = kNan; }), Contains("sampling.min_p"));
  CHECK_THAT(Refusal([](P* p) { p->presence_penalty = -2.01f; }), Contains("presence_penalty"));
  CHECK_THAT(Refusal([](P* p) { p->frequency_penalty = 2.01f; }), Contains("frequency_penalty"));
  CHECK_THAT(Refusal([](P* p) { p->repetition_penalty = 0; }), Contains("repetition_penalty"));
  CHECK_THAT(Refusal([](P* p) { p->repetition_penalty = kNan; }), Contains("repetition_penalty"));
  CHECK_THAT(Refusal([](P* p) { p->min_tokens = -1; }), Contains("sampling.min_tokens"));
  CHECK_THAT(Refusal([](P* p) { p->logit_bias[1].bias = 100.5f; }), Contains("logit_bias"));
  CHECK_THAT(Refusal([](P* p) { p->logit_bias[1].bias = kInfinity; }), Contains("logit_bias"));
  CHECK_THAT(Refusal([](P* p) { p->logit_bias[1].bias = kNan; }), Contains("logit_bias"));
  CHECK_THAT(Refusal([](P* p) { p->logit_bias[1].token = 0; }), Contains("must ascend"));
  CHECK_THAT(Refusal([](P* p) { p->logit_bias[0].token = -1; }), Contains("logit_bias.token"));
  CHECK_THAT(Refusal([](P* p) { p->allowed_tokens = {3, 2}; }), Contains("allowed_token_ids"));
  CHECK_THAT(Refusal([](P* p) { p->bad_words.push_back({}); }), Contains("bad_words.tokens"));
  CHECK_THAT(Refusal([](P* p) { p->bad_words[0][0] = -1; }), Contains("bad_words.tokens"));
  CHECK_THAT(Refusal([](P* p) { p->bad_words[0] = UpTo(65); }), Contains("bad_words.tokens"));
  CHECK_THAT(Refusal([](P* p) { p->bad_words.resize(1025, {1}); }), Contains("bad_words"));
  CHECK_THAT(Refusal([](P* p) { p->vocab_end = -1; }), Contains("vocabulary"));
  CHECK_THAT(Refusal([](P* p) { p->top_logprobs = 21; }), Contains("sampling.top_logprobs"));
  CHECK_THAT(Refusal([](P* p) { p->top_logprobs = -2; }), Contains("sampling.top_logprobs"));
  CHECK_THAT(Refusal([](P* p) { p->logprob_tokens[0] = -7; }), Contains("sampling.logprob_tokens"));
  CHECK_THAT(Refusal([](P* p) { p->logprob_tokens = UpTo(129); }),
             Contains("sampling.logprob_tokens"));
  CHECK_THAT(Refusal([](P* p) { p->allowed_tokens = UpTo(65537); }), Contains("allowed_tokens"));
  CHECK_THAT(Refusal([](P* p) {
               p->logit_bias.clear();
               for (int32_t i = 0; i < 1025; ++i) p->logit_bias.push_back({i, 1});
             }),
             Contains("sampling.logit_bias has 1025 entries"));
}

TEST_CASE("the tokens come, and the number of the generated ones fits them") {
  const auto refusal = [](const std::function<void(DecodeRequest*)>& change) {
    DecodeRequest decode = Decode();
    change(&decode);
    return RefusalOf(decode);
  };
  CHECK_THAT(refusal([](DecodeRequest* d) { d->tokens.clear(); }), Contains("decode.tokens"));
  CHECK_THAT(refusal([](DecodeRequest* d) { d->tokens[0] = -1; }), Contains("decode.tokens"));
  CHECK_THAT(refusal([](DecodeRequest* d) { d->n_generated = 3; }), Contains("decode.n_generated"));
  CHECK_THAT(refusal([](DecodeRequest* d) { d->n_generated = -1; }),
             Contains("decode.n_generated"));
  PrefillRequest prefill = Prefill();
  prefill.n_generated = 3;
  CHECK_THAT(RefusalOf(prefill), Contains("prefill.n_generated"));
  prefill = Prefill();
  prefill.stop_tokens[1] = -1;
  CHECK_THAT(RefusalOf(prefill), Contains("prefill.stop_tokens"));
}

TEST_CASE("logprobs of a token survive the wire, and have a bound") {
  TokenOut token{.request_id = 1, .epoch = 1, .position = 3, .token = 4, .logprob = -0.5f};
  for (int i = 0; i < static_cast<int>(Limits::kTokenLogprobs.max); ++i)
    token.logprobs.push_back({i, i == 5 ? -kInfinity : -static_cast<float>(i)});
  const WorkerReport report{.events = {token}};
  const auto out = ParseReport(SerializeReport(report));
  REQUIRE(out.ok());
  CHECK(std::get<TokenOut>(out->events[0]).logprobs == token.logprobs);
  token.logprobs.push_back({1, 1});
  CHECK_THAT(std::string(ParseReport(SerializeReport({.events = {token}})).status().message()),
             Contains("token.logprobs has 149 entries"));
  token.logprobs = {{-1, 0}};
  CHECK_THAT(std::string(ParseReport(SerializeReport({.events = {token}})).status().message()),
             Contains("token.logprobs.token"));
}

TEST_CASE("log-probabilities of a prompt survive the wire, and have bounds") {
  const auto report = [](int n, int top) {
    PromptLogprobs told{.request_id = ~0ull, .epoch = 2, .position = 7};
    for (int i = 0; i < n; ++i) {
      told.tokens.push_back(
          {.logprob = i == 1 ? -kInfinity : -static_cast<float>(i), .rank = 1 + 1000 * i});
      for (int k = 0; k < top; ++k)
        told.tokens.back().top.push_back({std::numeric_limits<int32_t>::max() - k, -0.5f});
    }
    return WorkerReport{.events = {told}};
  };
  const int max_top = static_cast<int>(Limits::kTopLogprobs.max);
  for (const auto& [n, top] : {std::pair(1, 0), {3, 2}, {PromptLogprobs::kMaxTokens, max_top}}) {
    const WorkerReport in = report(n, top);
    const auto out = ParseReport(SerializeReport(in));
    REQUIRE(out.ok());
    const auto& a = std::get<PromptLogprobs>(in.events[0]);
    const auto& b = std::get<PromptLogprobs>(out->events[0]);
    CHECK(b.request_id == a.request_id);
    CHECK(b.epoch == a.epoch);
    CHECK(b.position == a.position);
    CHECK(b.tokens == a.tokens);
  }
  const auto refusal = [](const WorkerReport& in) {
    return std::string(ParseReport(SerializeReport(in)).status().message());
  };
  CHECK_THAT(refusal(report(0, 0)), Contains("prompt_logprobs.tokens has"));
  CHECK_THAT(refusal(report(PromptLogprobs::kMaxTokens + 1, 0)),
             Contains("prompt_logprobs.tokens has"));
  CHECK_THAT(refusal(report(2, max_top + 1)), Contains("prompt_logprobs.tokens.top"));
  WorkerReport uneven = report(2, 2);
  std::get<PromptLogprobs>(uneven.events[0]).tokens[1].top.pop_back();
  CHECK_THAT(refusal(uneven), Contains("prompt_logprobs.tokens"));
  WorkerReport unranked = report(1, 0);
  std::get<PromptLogprobs>(unranked.events[0]).tokens[0].rank = 0;
  CHECK_THAT(refusal(unranked), Contains("prompt_logprobs.tokens.rank"));
  WorkerReport first = report(1, 0);
  std::get<PromptLogprobs>(first.events[0]).position = 0;
  CHECK_THAT(refusal(first), Contains("prompt_logprobs.position"));
}

TEST_CASE("a worker of another wire version is refused, for it would overlook fields") {
  wire::WorkerReport report = Encoded(WorkerReport{.events = {WorkerAnnounce{.incarnation = 1}}});
  wire::WorkerAnnounce* const announce = report.mutable_events(0)->mutable_announce();
  CHECK(announce->wire_version() == kControlVersion);
  announce->clear_wire_version();  // as version 1 had none
  CHECK_THAT(std::string(DecodeReport(report).status().message()),
             Contains("announce.wire_version is 0") && Contains("the same version of baton"));
}

TEST_CASE("as many of the largest parameters travel together as fit a batch") {
  DecodeRequest decode = Decode();
  decode.sampling.allowed_tokens = UpTo(static_cast<int>(Limits::kAllowedTokens.max));
  for (int32_t& token : decode.sampling.allowed_tokens) token += 1 << 30;
  decode.sampling.bad_words.assign(
      static_cast<size_t>(Limits::kBadWords.max),
      std::vector<int32_t>(static_cast<size_t>(Limits::kBadWordTokens.max), 1 << 30));
  decode.tokens.assign(1 << 16, 1 << 30);
  const std::vector<RouterMessage> messages(20, decode);
  wire::RouterMessages batch;
  const size_t n = EncodeMessages(messages, &batch);
  CHECK(n >= 2);
  CHECK(n < 20);
  CHECK(batch.ByteSizeLong() <= ControlLimits::kBatchBytes);
  const auto out = DecodeMessages(batch);
  REQUIRE(out.ok());
  CHECK(out->messages.size() == n);
}

TEST_CASE("changed bytes of parameters are decoded within bounds or refused, never worse") {
  const std::string all = SerializeMessages(Both());
  std::mt19937_64 random(11);
  int decoded = 0, refused = 0;
  for (int run = 0; run < 20000; ++run) {
    std::string bytes = all;
    for (uint64_t n = 1 + random() % 3; n > 0; --n)
      bytes[random() % bytes.size()] = static_cast<char>(random());
    const auto parsed = ParseMessages(bytes);
    if (!parsed.ok() || !parsed->unreadable.empty()) {
      ++refused;
      continue;
    }
    ++decoded;
    for (const RouterMessage& message : parsed->messages) {
      if (const auto* prefill = std::get_if<PrefillRequest>(&message))
        REQUIRE(CheckSampling(prefill->sampling).ok());
      if (const auto* decode = std::get_if<DecodeRequest>(&message)) {
        REQUIRE(CheckSampling(decode->sampling).ok());
        REQUIRE(decode->n_generated < static_cast<int32_t>(decode->tokens.size()));
      }
    }
  }
  CHECK(decoded > 1000);
  CHECK(refused > 1000);
}

}  // namespace baton
