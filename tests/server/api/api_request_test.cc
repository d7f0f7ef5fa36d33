#include "server/api/api_request.h"

#include <catch2/catch.hpp>
#include <chrono>

#include "absl/strings/str_cat.h"
#include "tests/server/api/refused_body.h"

namespace baton {
namespace {

using Prompts = std::vector<std::variant<std::string, std::vector<int32_t>>>;

TEST_CASE("completions: every wrong field is a 400 that names it") {
  const BadCase kCases[] = {
      {"", "", ""},
      {"{", "", ""},
      {"[]", "", "invalid_type"},
      {"\"x\"", "", "invalid_type"},
      {"null", "", "invalid_type"},
      {"{} x", "", ""},
      {"\xef\xbb\xbf{}", "", ""},
      {R"({"prompt":"a","prompt":"b"})", "", ""},
      {R"({"prompt":"a","x":NaN})", "", ""},
      {R"({"prompt":"a","x":1e999})", "", ""},
      {R"({"prompt":"a","x":-1e999})", "", ""},
      {"{\"prompt\":\"\xff\xfe\"}", "", ""},
      {R"({"prompt":"\ud83d"})", "", ""},
      {R"({})", "prompt", "missing_required_parameter"},
      {R"({"prompt":null})", "prompt", "missing_required_parameter"},
      {R"({"prompt":7})", "prompt", "invalid_type"},
      {R"({"prompt":{}})", "prompt", "invalid_type"},
      {R"({"prompt":[]})", "prompt", "invalid_value"},
      {R"({"prompt":[[]]})", "prompt[0]", "invalid_value"},
      {R"({"prompt":[1,-1]})", "prompt[1]", "invalid_value"},
      {R"({"prompt":[1.5]})", "prompt[0]", "invalid_value"},
      {R"({"prompt":[1,"a"]})", "prompt[1]", "invalid_value"},
      {R"({"prompt":[9999999999]})", "prompt[0]", "invalid_value"},
      {R"({"prompt":["a",7]})", "prompt[1]", "invalid_type"},
      {R"({"prompt":["a",[]]})", "prompt[1]", "invalid_value"},
      {R"({"prompt":[[1],[2,-1]]})", "prompt[1][1]", "invalid_value"},
      {R"({"prompt":["","","","","","","","","","","","","","","","",""]})", "prompt",
       "invalid_value"},
      {R"({"prompt":[true]})", "prompt[0]", "invalid_type"},
      {R"({"prompt":"a","model":5})", "model", "invalid_type"},
      {R"({"prompt":"a","max_tokens":0})", "max_tokens", "invalid_value"},
      {R"({"prompt":"a","max_tokens":-1})", "max_tokens", "invalid_value"},
      {R"({"prompt":"a","max_tokens":1.5})", "max_tokens", "invalid_value"},
      {R"({"prompt":"a","max_tokens":1e300})", "max_tokens", "invalid_value"},
      {R"({"prompt":"a","max_tokens":99999999999999999999})", "max_tokens", "invalid_value"},
      {R"({"prompt":"a","max_tokens":"many"})", "max_tokens", "invalid_type"},
      {R"({"prompt":"a","max_completion_tokens":0})", "max_completion_tokens", "invalid_value"},
      {R"({"prompt":"a","temperature":-0.1})", "temperature", "invalid_value"},
      {R"({"prompt":"a","temperature":2.1})", "temperature", "invalid_value"},
      {R"({"prompt":"a","temperature":"hot"})", "temperature", "invalid_type"},
      {R"({"prompt":"a","top_p":0})", "top_p", "invalid_value"},
      {R"({"prompt":"a","top_p":1.1})", "top_p", "invalid_value"},
      {R"({"prompt":"a","top_k":-2})", "top_k", "invalid_value"},
      {R"({"prompt":"a","seed":0.5})", "seed", "invalid_value"},
      {R"({"prompt":"a","seed":"x"})", "seed", "invalid_type"},
      {R"({"prompt":"a","stop":5})", "stop", "invalid_type"},
      {R"({"prompt":"a","stop":""})", "stop", "invalid_value"},
      {R"({"prompt":"a","stop":["b",""]})", "stop[1]", "invalid_value"},
      {R"({"prompt":"a","stop":["b",1]})", "stop[1]", "invalid_type"},
      {R"({"prompt":"a","stop":["\u0000"]})", "stop[0]", "invalid_value"},
      {R"({"prompt":"a","stop_token_ids":"b"})", "stop_token_ids", "invalid_type"},
      {R"({"prompt":"a","stop_token_ids":[-1]})", "stop_token_ids[0]", "invalid_value"},
      {R"({"prompt":"a","ignore_eos":1})", "ignore_eos", "invalid_type"},
      {R"({"prompt":"a","stream":"yes"})", "stream", "invalid_type"},
      {R"({"prompt":"a","stream_options":true})", "stream_options", "invalid_type"},
      {R"({"prompt":"a","stream_options":{"include_usage":1}})", "stream_options.include_usage",
       "invalid_type"},
      {R"({"prompt":"a","timings":"yes"})", "timings", "invalid_type"},
      {R"({"prompt":"a","n":0})", "n", "invalid_value"},
      {R"({"prompt":"a","n":9})", "n", "invalid_value"},
      {R"({"prompt":"a","n":"2"})", "n", "invalid_type"},
      {R"({"prompt":"a","best_of":9})", "best_of", "invalid_value"},
      {R"({"prompt":"a","n":3,"best_of":2})", "best_of", "invalid_value"},
      {R"({"prompt":"a","best_of":2,"stream":true})", "best_of", "invalid_value"},
      {R"({"prompt":"a","echo":1})", "echo", "invalid_type"},
      {R"({"prompt":"a","echo":true,"logprob_token_ids":[1]})", "echo", "unsupported_parameter"},
      {R"({"prompt":"a","echo":true,"max_tokens":0,"min_tokens":1})", "min_tokens",
       "invalid_value"},
      {R"({"prompt":"a","n_predict":0})", "n_predict", "invalid_value"},
      {R"({"prompt":"a","logprobs":1,"max_tokens":5,"max_completion_tokens":0})",
       "max_completion_tokens", "invalid_value"},
      {R"({"prompt":"a","logprobs":21})", "logprobs", "invalid_value"},
      {R"({"prompt":"a","logprobs":-1})", "logprobs", "invalid_value"},
      {R"({"prompt":"a","logprobs":true})", "logprobs", "invalid_type"},
      {R"({"prompt":"a","n_probs":21})", "n_probs", "invalid_value"},
      {R"({"prompt":"a","prompt_logprobs":21})", "prompt_logprobs", "invalid_value"},
      {R"({"prompt":"a","prompt_logprobs":-1})", "prompt_logprobs", "invalid_value"},
      {R"({"prompt":"a","prompt_logprobs":true})", "prompt_logprobs", "invalid_type"},
      {R"({"prompt":"a","logprob_token_ids":[-1]})", "logprob_token_ids[0]", "invalid_value"},
      {R"({"prompt":"a","stream_interval":0})", "stream_interval", "invalid_value"},
      {R"({"prompt":"a","n_predict":-1})", "n_predict", "invalid_value"},
      {R"({"prompt":"a","min_p":1.1})", "min_p", "invalid_value"},
      {R"({"prompt":"a","min_tokens":-1})", "min_tokens", "invalid_value"},
      {R"({"prompt":"a","min_tokens":6,"max_tokens":5})", "min_tokens", "invalid_value"},
      {R"({"prompt":"a","allowed_token_ids":[]})", "allowed_token_ids", "invalid_value"},
      {R"({"prompt":"a","allowed_token_ids":["a"]})", "allowed_token_ids[0]", "invalid_value"},
      {R"({"prompt":"a","bad_words":"a"})", "bad_words", "invalid_type"},
      {R"({"prompt":"a","bad_words":["a",""]})", "bad_words[1]", "invalid_value"},
      {R"({"prompt":"a","truncate_prompt_tokens":0})", "truncate_prompt_tokens", "invalid_value"},
      {R"({"prompt":"a","truncate_prompt_tokens":-2})", "truncate_prompt_tokens", "invalid_value"},
      {R"({"prompt":"a","truncation_side":"up"})", "truncation_side", "invalid_value"},
      {R"({"prompt":"a","suffix":"x"})", "suffix", "unsupported_parameter"},
      {R"({"prompt":"a","prompt_embeds":"x"})", "prompt_embeds", "unsupported_parameter"},
      {R"({"prompt":"a","logit_bias":7})", "logit_bias", "invalid_type"},
      {R"({"prompt":"a","logit_bias":{"a":1}})", "logit_bias.a", "invalid_value"},
      {R"({"prompt":"a","logit_bias":{"-1":1}})", "logit_bias.-1", "invalid_value"},
      {R"({"prompt":"a","logit_bias":{"1":101}})", "logit_bias.1", "invalid_value"},
      {R"({"prompt":"a","logit_bias":{"1":"a"}})", "logit_bias.1", "invalid_type"},
      {R"({"prompt":"a","logit_bias":{"1":1,"01":1}})", "logit_bias.1", "invalid_value"},
      {R"({"prompt":"a","presence_penalty":2.5})", "presence_penalty", "invalid_value"},
      {R"({"prompt":"a","frequency_penalty":-2.5})", "frequency_penalty", "invalid_value"},
      {R"({"prompt":"a","repetition_penalty":0})", "repetition_penalty", "invalid_value"},
      {R"({"prompt":"a","repeat_penalty":0})", "repeat_penalty", "invalid_value"},
      {R"({"prompt":"a","priority":1})", "priority", "unsupported_parameter"},
      {R"({"prompt":"a","tools":[{}]})", "tools", "unsupported_parameter"},
      {R"({"prompt":"a","top_logprobs":1})", "top_logprobs", "unsupported_parameter"},
      {R"({"prompt":"a","response_format":{"type":"xml"}})", "response_format.type",
       "invalid_value"},
  };
  for (const BadCase& bad : kCases) CheckRefused(Endpoint::kCompletions, bad);
  CheckRefused(Endpoint::kCompletions, {std::string(2000, '[').c_str(), "", ""});
}

TEST_CASE("what peers know, changes what comes out and is not built is refused by name") {
  const std::pair<const char*, const char*> kFields[] = {
      {"extra_key", R"("tenant")"},
      {"kv_transfer_params", R"({"do_remote_decode":true})"},
      {"spaces_between_special_tokens", "false"},
      {"use_beam_search", "true"},
      {"length_penalty", "2"},
      {"logits_processors", R"(["x"])"},
      {"vllm_xargs", R"({"a":1})"},
      {"ebnf", R"("a")"},
      {"guided_decoding_backend", R"("xgrammar")"},
      {"grammar_lazy", "true"},
      {"stop_regex", R"("a")"},
      {"no_stop_trim", "true"},
      {"custom_logit_processor", R"("a")"},
      {"lora_path", R"("a")"},
      {"min_keep", "3"},
      {"samplers", R"(["top_k"])"},
      {"t_max_predict_ms", "100"},
      {"typical_p", "0.9"},
      {"top_n_sigma", "1"},
      {"dynatemp_range", "0.5"},
      {"dry_multiplier", "0.8"},
      {"xtc_probability", "0.5"},
      {"mirostat", "2"},
      {"modalities", R"(["text","audio"])"},
      {"priority", "1"},
      {"structural_tag", "{}"},
      {"suffix", R"("x")"},
      {"input_ids", "[1]"},
      {"return_hidden_states", "true"},
      {"enable_thinking", "false"},
  };
  for (const auto& [field, value] : kFields) {
    CheckRefused(Endpoint::kCompletions,
                 {absl::StrCat(R"({"prompt":"a",")", field, "\":", value, "}").c_str(), field,
                  "unsupported_parameter"});
    CheckRefused(Endpoint::kChat, {absl::StrCat(R"({"messages":[{"role":"user","content":"a"}],")",
                                                field, "\":", value, "}")
                                       .c_str(),
                                   field, "unsupported_parameter"});
  }
  for (const auto& [field, value] :
       {std::pair("echo", "true"), {"best_of", "2"}, {"chat_template", R"("a")"}}) {
    CheckRefused(Endpoint::kChat, {absl::StrCat(R"({"messages":[{"role":"user","content":"a"}],")",
                                                field, "\":", value, "}")
                                       .c_str(),
                                   field, "unsupported_parameter"});
  }
  // A field with the default's value is accepted.
  ApiRequest request;
  const auto error = ParseApiRequest(
      Endpoint::kChat,
      R"({"messages":[{"role":"user","content":"a"}],"cache_salt":null,"kv_transfer_params":{},
          "spaces_between_special_tokens":true,"use_beam_search":false,"length_penalty":1.0,
          "logits_processors":[],"priority":0.0,"echo":false,"best_of":1,"typical_p":1,"top_n_sigma":-1,"mirostat":0,
          "modalities":["text"],"documents":[],"lora_path":null,"n_probs":0,"grammar":""})",
      &request);
  INFO((error ? error->message : ""));
  CHECK_FALSE(error);
}

TEST_CASE("what clients really send is understood") {
  ApiRequest request;
  const auto error = ParseApiRequest(
      Endpoint::kCompletions,
      R"({"model":"m","prompt":["hi"],"max_tokens":5,"max_completion_tokens":7.0,"temperature":0,
          "top_p":1,"top_k":-1,"seed":-3,"stop":["a","b"],"ignore_eos":true,"stream":true,
          "stream_options":{"include_usage":true,"include_obfuscation":false},"n":1,"best_of":0,
          "echo":false,"logprobs":null,"suffix":null,"logit_bias":{},"presence_penalty":0,
          "frequency_penalty":0.0,"repetition_penalty":1.0,"user":"u","metadata":{"a":1},
          "some_new_field":[1,2,{"x":null}],"timings":true,"baton_digest":true,
          "return_token_ids":true,"response_format":{"type":"text"}})",
      &request);
  INFO((error ? error->message : ""));
  REQUIRE_FALSE(error.has_value());
  CHECK(request.model == "m");
  CHECK(request.prompts == Prompts{"hi"});
  CHECK_FALSE(request.best_of);
  CHECK(request.max_tokens == 7);
  CHECK(request.temperature == 0.0);
  CHECK(request.top_k == -1);
  CHECK(request.seed == -3);
  CHECK(request.stop == std::vector<std::string>{"a", "b"});
  CHECK(request.ignore_eos);
  CHECK(request.stream);
  CHECK(request.include_usage);
  CHECK(request.timings);
  CHECK(request.digests);
  CHECK(request.return_token_ids);

  ApiRequest ids;
  REQUIRE_FALSE(ParseApiRequest(Endpoint::kCompletions, R"({"prompt":[[1,2,3.0]]})", &ids));
  CHECK(ids.prompts == Prompts{std::vector<int32_t>{1, 2, 3}});
  ids = {};
  REQUIRE_FALSE(ParseApiRequest(Endpoint::kCompletions, R"({"prompt":[1,2]})", &ids));
  CHECK(ids.prompts == Prompts{std::vector<int32_t>{1, 2}});
  ApiRequest several;
  REQUIRE_FALSE(ParseApiRequest(Endpoint::kCompletions, R"({"prompt":["a",[1],"b"]})", &several));
  CHECK(several.prompts == Prompts{"a", std::vector<int32_t>{1}, "b"});
}

TEST_CASE("parameters of sampling and of the answer are understood") {
  ApiRequest request;
  const auto error = ParseApiRequest(
      Endpoint::kCompletions,
      R"({"prompt":"a","n":3,"best_of":8,"echo":true,"min_p":0.1,"presence_penalty":-2,
          "frequency_penalty":2,"repeat_penalty":1.5,"repetition_penalty":1.25,"min_tokens":4,
          "max_tokens":5,"logit_bias":{"9":1.5,"5":-100},"allowed_token_ids":[7,3,7],
          "bad_words":["x","y z"],"truncate_prompt_tokens":-1,"truncation_side":"right",
          "return_tokens_as_token_ids":true,"stream_interval":4})",
      &request);
  INFO((error ? error->message : ""));
  REQUIRE_FALSE(error);
  CHECK(request.n == 3);
  CHECK(request.best_of == 8);
  CHECK(request.echo);
  CHECK(request.min_p == 0.1);
  CHECK(request.presence_penalty == -2.0);
  CHECK(request.frequency_penalty == 2.0);
  CHECK(request.repetition_penalty == 1.25);
  CHECK(request.min_tokens == 4);
  CHECK(request.logit_bias == std::vector<LogitBias>{{5, -100}, {9, 1.5}});
  CHECK(request.allowed_token_ids == std::vector<int32_t>{3, 7});
  CHECK(request.bad_words == std::vector<std::string>{"x", "y z"});
  CHECK(request.truncate_prompt_tokens == -1);
  CHECK_FALSE(request.truncate_left);
  CHECK(request.tokens_as_ids);
  CHECK(request.stream_interval == 4);
  CHECK_FALSE(request.top_logprobs);

  const auto completions = [](const std::string& more) {
    ApiRequest parsed;
    REQUIRE_FALSE(ParseApiRequest(Endpoint::kCompletions,
                                  absl::StrCat(R"({"prompt":"a",)", more, "}"), &parsed));
    return parsed;
  };
  CHECK(completions(R"("logprobs":0)").top_logprobs == 0);
  CHECK(completions(R"("logprobs":20)").top_logprobs == 20);
  CHECK_FALSE(completions(R"("logprobs":false)").top_logprobs);
  CHECK(completions(R"("n_probs":3)").top_logprobs == 3);
  CHECK_FALSE(completions(R"("n_probs":0)").top_logprobs);
  CHECK(completions(R"("n_predict":3)").max_tokens == 3);
  const ApiRequest tokens = completions(R"("logprob_token_ids":[9,2,9])");
  CHECK(tokens.logprob_token_ids == std::vector<int32_t>{9, 2});
  CHECK(tokens.top_logprobs == 0);
  // Usage in every event is told only where usage is asked for at all.
  CHECK_FALSE(completions(R"("stream_options":{"continuous_usage_stats":true})").continuous_usage);
}

TEST_CASE("the setting bounds n and best_of, and the error has the range") {
  ApiRequest request;
  const RequestSettings settings{.max_choices = 16};
  CHECK_FALSE(
      ParseApiRequest(Endpoint::kCompletions, R"({"prompt":"a","n":16})", &request, settings));
  const auto error =
      ParseApiRequest(Endpoint::kCompletions, R"({"prompt":"a","n":17})", &request, settings);
  REQUIRE(error);
  CHECK(error->message == "n must be an integer from 1 to 16; got 17.");
}

TEST_CASE("depth and keys are bounded, and time is linear in the keys") {
  ApiRequest request;
  const auto keys = [](int n) {
    std::string body = "{\"prompt\":\"a\"";
    for (int i = 0; i < n; ++i) absl::StrAppend(&body, ",\"k", i, "\":0");
    return body + "}";
  };
  const auto start = std::chrono::steady_clock::now();
  CHECK_FALSE(ParseApiRequest(Endpoint::kCompletions, keys(199'999), &request));
  const auto error = ParseApiRequest(Endpoint::kCompletions, keys(200'000), &request);
  REQUIRE(error.has_value());
  CHECK(error->message.find("more than 200000 keys") != std::string::npos);
  // Quadratic time would be minutes.
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(20));
  const std::string deep =
      "{\"prompt\":\"a\",\"x\":" + std::string(70, '[') + std::string(70, ']') + "}";
  CHECK(ParseApiRequest(Endpoint::kCompletions, deep, &request).has_value());
}

TEST_CASE("error bodies always have the four keys") {
  ApiError error = InvalidField("stop[1]", "bad \"thing\"\n\x01");
  CHECK(
      ErrorBody(error) ==
      "{\"error\":{\"message\":\"bad \\\"thing\\\"\\n\\u0001\",\"type\":\"invalid_request_error\","
      "\"param\":\"stop[1]\",\"code\":\"invalid_value\"}}");
  const HttpReply busy = ErrorReply(FromClusterStatus(absl::ResourceExhaustedError("full")));
  CHECK(busy.status == 429);
  CHECK(busy.body ==
        "{\"error\":{\"message\":\"full\",\"type\":\"rate_limit_error\",\"param\":null,"
        "\"code\":\"server_overloaded\"}}");
  REQUIRE(busy.headers.size() == 2);
  const HttpReply internal = ErrorReply(FromClusterStatus(absl::InternalError("/secret/path")));
  CHECK(internal.status == 500);
  CHECK(internal.body.find("secret") == std::string::npos);
}

}  // namespace
}  // namespace baton
