// The table of limits as a property: the max and min value of every field pass the API's validator,
// Router::Submit and the wire, alone and all together, and values beyond are refused before they
// are sent.
#include "common/request_limits.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/api/api_request.h"
#include "server/api/prepared_prompt.h"
#include "server/api/served_model.h"
#include "tests/support/control_bytes.h"
#include "tests/support/router_harness.h"

namespace baton {
namespace {

using Limits = RequestLimits;

std::vector<int32_t> Ascending(size_t n, int32_t last) {
  std::vector<int32_t> ids(n);
  for (size_t i = 0; i < n; ++i) ids[i] = last - static_cast<int32_t>(n - 1 - i);
  return ids;
}

constexpr int32_t kLastToken = std::numeric_limits<int32_t>::max();

// Sets the field of a row in an otherwise small request.
using Setter = void (*)(GenerateRequest*, double);
const std::map<const FieldLimit*, Setter>& Setters() {
  static const std::map<const FieldLimit*, Setter> kSetters = {
      {&Limits::kTokenId,
       [](GenerateRequest* r, double value) {
         r->prompt = {static_cast<int32_t>(value)};
         r->stop_tokens = r->prompt;
       }},
      {&Limits::kPromptTokens,
       [](GenerateRequest* r, double n) {
         r->prompt.assign(static_cast<size_t>(n), kLastToken);
         r->max_tokens = 1;  // the rest of the context
       }},
      {&Limits::kMaxTokens,
       [](GenerateRequest* r, double n) { r->max_tokens = static_cast<int32_t>(n); }},
      {&Limits::kContext,
       [](GenerateRequest* r, double n) {
         const auto half = static_cast<int32_t>(n) / 2;
         r->prompt.assign(static_cast<size_t>(half), kLastToken);
         r->max_tokens = static_cast<int32_t>(n) - half;
       }},
      {&Limits::kTemperature,
       [](GenerateRequest* r, double t) { r->sampling.temperature = static_cast<float>(t); }},
      {&Limits::kTopP,
       [](GenerateRequest* r, double p) { r->sampling.top_p = static_cast<float>(p); }},
      {&Limits::kTopK,
       [](GenerateRequest* r, double k) { r->sampling.top_k = static_cast<int32_t>(k); }},
      {&Limits::kStopTokenIds, nullptr},  // parts of the next field, below
      {&Limits::kEosTokens, nullptr},
      {&Limits::kStopTokens,
       [](GenerateRequest* r, double n) {
         r->stop_tokens = Ascending(static_cast<size_t>(n), kLastToken);
       }},
      {&Limits::kMinP,
       [](GenerateRequest* r, double p) { r->sampling.min_p = static_cast<float>(p); }},
      {&Limits::kPresencePenalty,
       [](GenerateRequest* r, double p) { r->sampling.presence_penalty = static_cast<float>(p); }},
      {&Limits::kFrequencyPenalty,
       [](GenerateRequest* r, double p) { r->sampling.frequency_penalty = static_cast<float>(p); }},
      {&Limits::kRepetitionPenalty,
       [](GenerateRequest* r, double p) {
         r->sampling.repetition_penalty = static_cast<float>(p);
       }},
      {&Limits::kMinTokens,
       [](GenerateRequest* r, double n) { r->sampling.min_tokens = static_cast<int32_t>(n); }},
      {&Limits::kLogitBiases,
       [](GenerateRequest* r, double n) {
         for (const int32_t token : Ascending(static_cast<size_t>(n), kLastToken))
           r->sampling.logit_bias.push_back({token, -std::numeric_limits<float>::infinity()});
       }},
      {&Limits::kLogitBias,
       [](GenerateRequest* r, double bias) {
         r->sampling.logit_bias = {{kLastToken, static_cast<float>(bias)}};
       }},
      {&Limits::kAllowedTokens,
       [](GenerateRequest* r, double n) {
         r->sampling.allowed_tokens = Ascending(static_cast<size_t>(n), kLastToken);
       }},
      {&Limits::kBadWords,
       [](GenerateRequest* r, double n) {
         r->sampling.bad_words.assign(static_cast<size_t>(n), {kLastToken});
       }},
      {&Limits::kBadWordTokens,
       [](GenerateRequest* r, double n) {
         r->sampling.bad_words = {Ascending(static_cast<size_t>(n), kLastToken)};
       }},
      {&Limits::kGrammarKind,
       [](GenerateRequest* r, double kind) {
         r->sampling.grammar.kind = static_cast<GrammarKind>(kind);
       }},
      {&Limits::kGrammarBytes,
       [](GenerateRequest* r, double n) {
         r->sampling.grammar = {GrammarKind::kLark, std::string(static_cast<size_t>(n), 'a')};
       }},
      {&Limits::kReasoningTokens,
       [](GenerateRequest* r, double n) {
         r->sampling.reasoning.max_tokens = static_cast<int32_t>(n);
       }},
      {&Limits::kReasoningMarker,
       [](GenerateRequest* r, double id) { r->sampling.reasoning.end = static_cast<int32_t>(id); }},
      {&Limits::kVocabEnd,
       [](GenerateRequest* r, double end) { r->sampling.vocab_end = static_cast<int32_t>(end); }},
      {&Limits::kTopLogprobs,
       [](GenerateRequest* r, double k) { r->sampling.top_logprobs = static_cast<int32_t>(k); }},
      {&Limits::kLogprobTokens,
       [](GenerateRequest* r, double n) {
         r->sampling.logprob_tokens = Ascending(static_cast<size_t>(n), kLastToken);
       }},
      {&Limits::kTokenLogprobs, nullptr},  // of answers
      {&Limits::kPromptLogprobs,
       [](GenerateRequest* r, double k) { r->prompt_logprobs = static_cast<int32_t>(k); }},
      {&Limits::kPromptLogprobEntries,
       [](GenerateRequest* r, double n) {
         if (n == 0) return;  // none are asked for
         r->prompt.assign(static_cast<size_t>(n), kLastToken);
         r->prompt_logprobs = 0;
       }},
  };
  return kSetters;
}

GenerateRequest Small() {
  GenerateRequest request;
  request.prompt = {1};
  request.max_tokens = 2;
  request.sampling.seed = ~0ull;
  return request;
}

// Workers without limits of their own.
struct Roomy : RouterHarness {
  Roomy() {
    for (const auto& [id, role] : {std::pair(kP1, Role::kPrefill), std::pair(kD1, Role::kDecode)}) {
      WorkerAnnounce announce = Announce(id, role);
      announce.max_context = Limits::kContextTokens;
      announce.page_tokens = ControlLimits::kPageTokens;
      announce.pages_total = 1 << 20;
      REQUIRE(Report(id, {announce}).ok());
    }
  }
};

// Checks that the workers receive the request unchanged.
void CheckPasses(const GenerateRequest& request) {
  Roomy r;
  const RequestId id = r.Submit(request);
  REQUIRE(r.sent.size() == (request.max_tokens > 1 ? 2 : 1));  // one token: no decode
  for (const auto& [worker, message] : r.sent) {
    const std::string bytes = SerializeMessages(std::vector<RouterMessage>{message});
    CHECK(bytes.size() <= ControlLimits::kMessageBytes);
    const auto decoded = ParseMessages(bytes);
    INFO(decoded.status().ToString());
    REQUIRE(decoded.ok());
    INFO((decoded->unreadable.empty() ? "" : decoded->unreadable[0].message));
    CHECK(decoded->unreadable.empty());
    REQUIRE(decoded->messages.size() == 1);
    if (const auto* prefill = std::get_if<PrefillRequest>(&decoded->messages[0])) {
      CHECK(prefill->tokens == request.prompt);
      CHECK(prefill->sampling == request.sampling);
      CHECK(prefill->stop_tokens == request.stop_tokens);
      CHECK(prefill->prompt_logprobs == request.prompt_logprobs);
    } else {
      const auto& decode = std::get<DecodeRequest>(decoded->messages[0]);
      CHECK(decode.max_tokens == request.max_tokens);
      CHECK(decode.stop_tokens == request.stop_tokens);
      CHECK(decode.sampling == request.sampling);
      CHECK(decode.tokens == request.prompt);
    }
  }
  r.Cancel(id);
}

void CheckRefused(const GenerateRequest& request) {
  Roomy r;
  const auto id = r.router.Submit(request, r.now);
  CHECK(id.status().code() == absl::StatusCode::kInvalidArgument);
}

std::optional<ApiError> Api(const std::string& field, const std::string& value) {
  ApiRequest request;
  return ParseApiRequest(Endpoint::kCompletions,
                         absl::StrCat(R"({"prompt":[1],")", field, "\":", value, "}"), &request);
}

std::string Ids(size_t n) {
  return absl::StrCat("[", absl::StrJoin(Ascending(n, kLastToken), ","), "]");
}

}  // namespace

TEST_CASE("both ends of every row pass the router and the wire, alone") {
  REQUIRE(Setters().size() == std::size(Limits::kAll));
  for (const FieldLimit* limit : Limits::kAll) {
    INFO(limit->field);
    REQUIRE(Setters().contains(limit));
    const Setter set = Setters().at(limit);
    if (set == nullptr) continue;
    for (const double value : {limit->min, limit->max}) {
      INFO(value);
      GenerateRequest request = Small();
      set(&request, value);
      CheckPasses(request);
    }
  }
}

TEST_CASE("the largest of all rows pass together, and as many as travel in a batch") {
  GenerateRequest request = Small();
  for (const FieldLimit* limit : {&Limits::kContext, &Limits::kTemperature, &Limits::kTopP,
                                  &Limits::kTopK, &Limits::kStopTokens})
    Setters().at(limit)(&request, limit->max);
  const SamplingParams plain = request.sampling;
  for (const FieldLimit* limit :
       {&Limits::kMinP, &Limits::kPresencePenalty, &Limits::kFrequencyPenalty,
        &Limits::kRepetitionPenalty, &Limits::kMinTokens, &Limits::kLogitBiases,
        &Limits::kAllowedTokens, &Limits::kGrammarBytes, &Limits::kVocabEnd, &Limits::kTopLogprobs,
        &Limits::kLogprobTokens})
    Setters().at(limit)(&request, limit->max);
  request.sampling.bad_words.assign(
      static_cast<size_t>(Limits::kBadWords.max),
      Ascending(static_cast<size_t>(Limits::kBadWordTokens.max), kLastToken));
  CheckPasses(request);

  request.sampling = plain;  // copies of the largest would not fit the memory
  Setters().at (&Limits::kPromptTokens)(&request, 1 << 20);
  request.max_tokens = 2;
  Roomy r;
  r.Submit(request);
  std::vector<RouterMessage> messages;
  for (const auto& [worker, message] : r.sent) messages.insert(messages.end(), 10, message);
  for (std::span<const RouterMessage> left(messages); !left.empty();) {
    wire::RouterMessages batch;
    const size_t n = EncodeMessages(left, &batch);
    REQUIRE(n > 0);
    CHECK(batch.ByteSizeLong() <= ControlLimits::kMessageBytes);
    CHECK(DecodeMessages(batch).ok());
    left = left.subspan(n);
  }
}

TEST_CASE("what is beyond a row never leaves the router") {
  const auto refused = [](const FieldLimit& limit, double value) {
    INFO(limit.field << " " << value);
    GenerateRequest request = Small();
    Setters().at (&limit)(&request, value);
    CheckRefused(request);
  };
  refused(Limits::kTokenId, -1);
  refused(Limits::kPromptTokens, 0);
  refused(Limits::kPromptTokens, Limits::kPromptTokens.max + 1);
  refused(Limits::kMaxTokens, 0);
  refused(Limits::kMaxTokens, Limits::kMaxTokens.max + 1);
  refused(Limits::kContext, Limits::kContext.max + 1);
  refused(Limits::kTemperature, -0.1);
  refused(Limits::kTemperature, std::nextafter(2.0f, 3.0f));
  refused(Limits::kTemperature, std::numeric_limits<double>::quiet_NaN());
  refused(Limits::kTopP, std::nextafter(1e-6f, 0.0f));
  refused(Limits::kTopP, std::nextafter(1.0f, 2.0f));
  refused(Limits::kTopK, -2);
  refused(Limits::kStopTokens, Limits::kStopTokens.max + 1);
  refused(Limits::kMinP, std::nextafter(1.0f, 2.0f));
  refused(Limits::kPresencePenalty, std::nextafter(-2.0f, -3.0f));
  refused(Limits::kFrequencyPenalty, std::nextafter(2.0f, 3.0f));
  refused(Limits::kRepetitionPenalty, 0);
  refused(Limits::kMinTokens, -1);
  refused(Limits::kLogitBiases, Limits::kLogitBiases.max + 1);
  refused(Limits::kLogitBias, std::nextafter(100.0f, 101.0f));
  refused(Limits::kAllowedTokens, Limits::kAllowedTokens.max + 1);
  refused(Limits::kBadWords, Limits::kBadWords.max + 1);
  refused(Limits::kBadWordTokens, 0);
  refused(Limits::kReasoningTokens, -1);
  refused(Limits::kReasoningTokens, Limits::kReasoningTokens.max + 1);
  refused(Limits::kReasoningMarker, -2);
  refused(Limits::kVocabEnd, -1);
  refused(Limits::kTopLogprobs, Limits::kTopLogprobs.max + 1);
  refused(Limits::kLogprobTokens, Limits::kLogprobTokens.max + 1);
  refused(Limits::kPromptLogprobs, -2);
  refused(Limits::kPromptLogprobs, Limits::kPromptLogprobs.max + 1);
  refused(Limits::kPromptLogprobEntries, Limits::kPromptLogprobEntries.max + 1);
}

TEST_CASE("the API takes both ends of its rows, and nothing beyond") {
  CHECK_FALSE(Api("temperature", "2"));
  CHECK(Api("temperature", "2.0000001"));
  CHECK_FALSE(Api("top_p", "1"));
  CHECK_FALSE(Api("top_p", "1e-300"));  // raised to the min
  CHECK(Api("top_p", "0"));
  CHECK_FALSE(Api("top_k", "-1"));
  CHECK_FALSE(Api("top_k", absl::StrCat(kLastToken)));
  CHECK(Api("top_k", absl::StrCat(int64_t{kLastToken} + 1)));
  const auto max = static_cast<size_t>(Limits::kStopTokenIds.max);
  CHECK_FALSE(Api("stop_token_ids", Ids(max)));
  const auto error = Api("stop_token_ids", Ids(max + 1));
  REQUIRE(error);
  CHECK(error->param == "stop_token_ids");
}

TEST_CASE("the most stop tokens of a client and of a model, each once, pass as one request") {
  ServedModel model;
  model.vocab = kLastToken;
  model.max_context = 4096;
  model.eos_tokens = Ascending(static_cast<size_t>(Limits::kEosTokens.max), 1000);
  const auto max = static_cast<size_t>(Limits::kStopTokenIds.max);
  const std::string ids = absl::StrJoin(Ascending(max, kLastToken - 1), ",");
  ApiRequest request;
  // Each id twice, and one of the model's.
  const auto problem = ParseApiRequest(
      Endpoint::kCompletions,
      absl::StrCat(R"({"prompt":[1],"top_p":1e-300,"temperature":2,"stop_token_ids":[)", ids, ",",
                   ids, "]}"),
      &request);
  INFO((problem ? problem->message : ""));
  REQUIRE_FALSE(problem);
  const auto generate = [&] {
    std::vector<PreparedPrompt> prompts;
    REQUIRE_FALSE(PreparePrompts(model, request, 0, {}, &prompts));
    REQUIRE(prompts.size() == 1);
    return prompts[0].generate;
  };
  CHECK(generate().stop_tokens.size() == static_cast<size_t>(Limits::kStopTokens.max));
  CheckPasses(generate());
  request.stop_token_ids = {1000, 5, 999, 5};
  CHECK(generate().stop_tokens.size() == model.eos_tokens.size() + 1);
}

}  // namespace baton
