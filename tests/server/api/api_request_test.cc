#include "server/api/api_request.h"

#include <catch2/catch.hpp>

#include "absl/strings/str_cat.h"

namespace baton {
namespace {

struct BadCase {
  const char* body;
  const char* param;  // "" = null
  const char* code;
};

void CheckRefused(Endpoint endpoint, const BadCase& bad) {
  ApiRequest request;
  const auto error = ParseApiRequest(endpoint, bad.body, &request);
  INFO(bad.body);
  REQUIRE(error.has_value());
  INFO(error->message);
  CHECK(error->status == 400);
  CHECK(error->type == "invalid_request_error");
  CHECK(error->param == bad.param);
  CHECK(error->code == bad.code);
  CHECK_FALSE(error->message.empty());
}

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
      {R"({"prompt":"a","suffix":"x"})", "suffix", "unsupported_parameter"},
      {R"({"prompt":"a","prompt_embeds":"x"})", "prompt_embeds", "unsupported_parameter"},
      {R"({"prompt":"a","logit_bias":{"1":5}})", "logit_bias", "unsupported_parameter"},
      {R"({"prompt":"a","presence_penalty":0.5})", "presence_penalty", "unsupported_parameter"},
      {R"({"prompt":"a","repetition_penalty":1.1})", "repetition_penalty", "unsupported_parameter"},
      {R"({"prompt":"a","response_format":{"type":"json_object"}})", "response_format",
       "unsupported_parameter"},
  };
  for (const BadCase& bad : kCases) CheckRefused(Endpoint::kCompletions, bad);
  CheckRefused(Endpoint::kCompletions, {std::string(2000, '[').c_str(), "", ""});
}

TEST_CASE("what peers know, changes what comes out and is not built is refused by name") {
  const std::pair<const char*, const char*> kFields[] = {
      {"cache_salt", R"("tenant")"},
      {"kv_transfer_params", R"({"do_remote_decode":true})"},
      {"logprob_token_ids", "[1]"},
      {"return_tokens_as_token_ids", "true"},
      {"spaces_between_special_tokens", "false"},
      {"truncate_prompt_tokens", "5"},
      {"use_beam_search", "true"},
      {"length_penalty", "2"},
      {"logits_processors", R"(["x"])"},
      {"vllm_xargs", R"({"a":1})"},
      {"thinking_token_budget", "5"},
      {"guided_json", "{}"},
      {"guided_regex", R"("a")"},
      {"guided_choice", R"(["a"])"},
      {"guided_grammar", R"("a")"},
      {"structured_outputs", "{}"},
      {"regex", R"("a")"},
      {"ebnf", R"("a")"},
      {"json_schema", R"({"type":"object"})"},
      {"stop_regex", R"("a")"},
      {"no_stop_trim", "true"},
      {"custom_logit_processor", R"("a")"},
      {"lora_path", R"("a")"},
      {"n_predict", "5"},
      {"grammar", R"("a")"},
      {"n_probs", "3"},
      {"min_keep", "3"},
      {"samplers", R"(["top_k"])"},
      {"t_max_predict_ms", "100"},
      {"repeat_penalty", "1.1"},
      {"typical_p", "0.9"},
      {"top_n_sigma", "1"},
      {"dynatemp_range", "0.5"},
      {"dry_multiplier", "0.8"},
      {"xtc_probability", "0.5"},
      {"mirostat", "2"},
      {"min_p", "0.1"},
      {"min_tokens", "3"},
      {"bad_words", R"(["a"])"},
      {"allowed_token_ids", "[1]"},
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
  for (const auto& [field, value] : {std::pair("modalities", R"(["text","audio"])"),
                                     {"documents", R"([{"text":"a"}])"},
                                     {"reasoning_effort", R"("high")"}}) {
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
          "logits_processors":[],"repeat_penalty":1.0,"typical_p":1,"top_n_sigma":-1,"mirostat":0,
          "modalities":["text"],"documents":[],"lora_path":null,"n_probs":0,"grammar":""})",
      &request);
  INFO((error ? error->message : ""));
  CHECK_FALSE(error);
}

TEST_CASE("chat: every wrong message is a 400 that names its place") {
  const BadCase kCases[] = {
      {R"({})", "messages", "missing_required_parameter"},
      {R"({"messages":"hello"})", "messages", "invalid_type"},
      {R"({"messages":[]})", "messages", "invalid_value"},
      {R"({"messages":["a"]})", "messages[0]", "invalid_type"},
      {R"({"messages":[{"content":"a"}]})", "messages[0].role", "invalid_type"},
      {R"({"messages":[{"role":5,"content":"a"}]})", "messages[0].role", "invalid_type"},
      {R"({"messages":[{"role":"king","content":"a"}]})", "messages[0].role", "invalid_value"},
      {R"({"messages":[{"role":"user"}]})", "messages[0].content", "missing_required_parameter"},
      {R"({"messages":[{"role":"user","content":null}]})", "messages[0].content",
       "missing_required_parameter"},
      {R"({"messages":[{"role":"user","content":7}]})", "messages[0].content", "invalid_type"},
      {R"({"messages":[{"role":"user","content":[7]}]})", "messages[0].content[0]", "invalid_type"},
      {R"({"messages":[{"role":"user","content":[{"type":"image_url","image_url":{}}]}]})",
       "messages[0].content[0].type", "unsupported_parameter"},
      {R"({"messages":[{"role":"user","content":[{"type":"text"}]}]})",
       "messages[0].content[0].text", "invalid_type"},
      {R"({"messages":[{"role":"user","content":"a"}],"tools":{}})", "tools", "invalid_type"},
      {R"({"messages":[{"role":"user","content":"a"}],"tool_choice":"required"})", "tool_choice",
       "unsupported_parameter"},
      {R"({"messages":[{"role":"user","content":"a"}],"logprobs":true})", "logprobs",
       "unsupported_parameter"},
      {R"({"messages":[{"role":"user","content":"a"}],"chat_template":"x"})", "chat_template",
       "unsupported_parameter"},
  };
  for (const BadCase& bad : kCases) CheckRefused(Endpoint::kChat, bad);
}

TEST_CASE("what clients really send is understood") {
  ApiRequest request;
  const auto error = ParseApiRequest(
      Endpoint::kCompletions,
      R"({"model":"m","prompt":["hi"],"max_tokens":5,"max_completion_tokens":7.0,"temperature":0,
          "top_p":1,"top_k":-1,"seed":-3,"stop":["a","b"],"ignore_eos":true,"stream":true,
          "stream_options":{"include_usage":true,"include_obfuscation":false},"n":1,"best_of":1,
          "echo":false,"logprobs":null,"suffix":null,"logit_bias":{},"presence_penalty":0,
          "frequency_penalty":0.0,"repetition_penalty":1.0,"user":"u","metadata":{"a":1},
          "some_new_field":[1,2,{"x":null}],"timings":true,"baton_digest":true,
          "return_token_ids":true,"response_format":{"type":"text"}})",
      &request);
  INFO((error ? error->message : ""));
  REQUIRE_FALSE(error.has_value());
  CHECK(request.model == "m");
  CHECK(std::get<std::string>(request.prompts.at(0)) == "hi");
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
  CHECK(std::get<std::vector<int32_t>>(ids.prompts.at(0)) == std::vector<int32_t>{1, 2, 3});
}

TEST_CASE("chat parts are joined, roles and other keys kept in order") {
  ApiRequest request;
  REQUIRE_FALSE(ParseApiRequest(Endpoint::kChat,
                                R"({"messages":[{"role":"developer","content":"d"},
                      {"name":"n","role":"user","content":[{"type":"text","text":"a"},
                                                          {"type":"text","text":"b"}]},
                      {"role":"assistant","content":null,"tool_calls":[]}],
          "tools":[{"type":"function"}]})",
                                &request));
  CHECK(request.messages ==
        R"([{"role":"system","content":"d"},{"name":"n","role":"user","content":"ab"},)"
        R"({"role":"assistant","content":null,"tool_calls":[]}])");
  CHECK(request.tools == R"([{"type":"function"}])");
  ApiRequest none;
  REQUIRE_FALSE(ParseApiRequest(Endpoint::kChat,
                                R"({"messages":[{"role":"user","content":"a"}],
                                    "tools":[{"type":"function"}],"tool_choice":"none"})",
                                &none));
  CHECK(none.tools.empty());
}

TEST_CASE("depth and keys are bounded") {
  ApiRequest request;
  std::string keys = "{\"prompt\":\"a\"";
  for (int i = 0; i < 10001; ++i) absl::StrAppend(&keys, ",\"k", i, "\":0");
  auto error = ParseApiRequest(Endpoint::kCompletions, keys + "}", &request);
  REQUIRE(error.has_value());
  CHECK(error->message.find("more than 10000 keys") != std::string::npos);
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
