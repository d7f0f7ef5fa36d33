#include "server/api/completion_answer.h"

#include <boost/json.hpp>
#include <catch2/catch.hpp>

#include "absl/strings/str_split.h"
#include "server/api/endpoints/endpoints.h"

namespace baton {
namespace {

namespace json = boost::json;

const ServedModel& Demo() {
  static const std::unique_ptr<ServedModel> model = [] {
    ModelConfig config;
    config.path = BATON_SOURCE_DIR "/models/demo";
    config.name = "demo";
    auto loaded = ServedModel::Load(config);
    REQUIRE(loaded.ok());
    return *std::move(loaded);
  }();
  return *model;
}

const GenerationApi& ApiOf(Endpoint endpoint) {
  return endpoint == Endpoint::kChat ? kChatCompletionsApi : kCompletionsApi;
}

struct Asked {
  ApiRequest request;
  GenerateRequest generate;
  std::unique_ptr<Answer> answer;
  std::string head{};  // of a relay
  int32_t reused_tokens = 0;

  explicit Asked(const std::string& body, Endpoint endpoint = Endpoint::kCompletions) {
    REQUIRE_FALSE(ApiOf(endpoint).parse(body, &request).has_value());
    const auto error = BuildGenerateRequest(Demo(), request, 0, absl::CivilSecond(), &generate);
    REQUIRE_FALSE(error.has_value());
    answer = ApiOf(endpoint).answer(Demo(), request, generate, "id1", 1700000000);
  }
  const GeneratedText& text() const { return answer->text(); }
  std::string Token(int32_t id) {
    EmitToken token;
    token.index = static_cast<int32_t>(text().n_tokens());
    token.token = id;
    token.digest = 0xabcdef00u + static_cast<uint64_t>(token.index);
    return answer->OnToken(token);
  }
  std::string End(EndReason reason) {
    EmitEnd end;
    end.reason = reason;
    end.timeline.prefill = absl::Milliseconds(5);
    end.timeline.total = absl::Milliseconds(20);
    end.timeline.prefill_worker = "prefill0";
    end.timeline.prefill_heads = head;
    end.timeline.reused_tokens = reused_tokens;
    return answer->OnEnd(end, absl::Milliseconds(1));
  }
};

// Returns the payloads of `data:` events; checks the framing of each.
std::vector<std::string> Events(const std::string& stream) {
  std::vector<std::string> payloads;
  for (const auto event : absl::StrSplit(stream, "\n\n", absl::SkipEmpty())) {
    const std::string text(event);
    REQUIRE(text.rfind("data: ", 0) == 0);
    CHECK(text.find('\n') == std::string::npos);
    payloads.push_back(text.substr(6));
  }
  if (!stream.empty()) CHECK(stream.substr(stream.size() - 2) == "\n\n");
  return payloads;
}

std::vector<int32_t> Ids(const std::string& text) { return *Demo().tokenizer->Encode(text, false); }

TEST_CASE("a completion stream: one event per token, finish, usage, done") {
  Asked answer(R"({"prompt":"a","stream":true,"stream_options":{"include_usage":true}})");
  std::string stream, text;
  for (const int32_t id : Ids("two ducks")) stream += answer.Token(id);
  const size_t n_tokens = Ids("two ducks").size();
  stream += answer.End(EndReason::kLength);
  const std::vector<std::string> events = Events(stream);
  REQUIRE(events.size() == n_tokens + 3);
  for (size_t i = 0; i + 1 < events.size(); ++i) {
    const json::value chunk = json::parse(events[i]);
    CHECK(chunk.at("id") == "cmpl-id1");
    CHECK(chunk.at("object") == "text_completion");
    CHECK(chunk.at("created") == 1700000000);
    CHECK(chunk.at("model") == "demo");
    if (i == n_tokens + 1) {
      CHECK(chunk.at("choices").as_array().empty());
      CHECK(chunk.at("usage").at("prompt_tokens") == answer.text().n_prompt());
      CHECK(chunk.at("usage").at("completion_tokens") == n_tokens);
      CHECK(chunk.at("usage").at("total_tokens") == answer.text().n_prompt() + n_tokens);
      continue;
    }
    CHECK_FALSE(chunk.as_object().contains("usage"));
    const json::value& choice = chunk.at("choices").at(0);
    CHECK(choice.at("index") == 0);
    text += std::string(choice.at("text").as_string());
    CHECK((i == n_tokens ? choice.at("finish_reason") == "length"
                         : choice.at("finish_reason").is_null()));
  }
  CHECK(text == "two ducks");
  CHECK(events.back() == "[DONE]");
}

TEST_CASE("a chat stream: the role comes with the first token, the end without content") {
  Asked answer(R"({"messages":[{"role":"user","content":"hi"}],"stream":true})", Endpoint::kChat);
  const std::vector<int32_t> ids = Ids("yes no");
  const std::vector<std::string> first = Events(answer.Token(ids[0]));
  REQUIRE(first.size() == 2);
  const json::value role = json::parse(first[0]);
  CHECK(role.at("object") == "chat.completion.chunk");
  CHECK(role.at("id") == "chatcmpl-id1");
  CHECK(json::serialize(role.at("choices").at(0).at("delta")) ==
        R"({"role":"assistant","content":""})");
  CHECK_FALSE(json::parse(first[1]).at("choices").at(0).at("delta").as_object().contains("role"));
  CHECK(Events(answer.Token(ids[1])).size() == 1);
  // The stop token has no text and no event.
  CHECK(answer.Token(Demo().eos_tokens[0]).empty());
  const std::vector<std::string> last = Events(answer.End(EndReason::kStopToken));
  REQUIRE(last.size() == 2);
  const json::value finish = json::parse(last[0]);
  CHECK(json::serialize(finish.at("choices").at(0).at("delta")) == "{}");
  CHECK(finish.at("choices").at(0).at("finish_reason") == "stop");
  CHECK(finish.at("choices").at(0).at("stop_reason").is_null());
  CHECK(answer.text().n_tokens() == 3);
}

TEST_CASE("a chat whose first token is the stop token still has a role and an end") {
  Asked answer(R"({"messages":[{"role":"user","content":"hi"}],"stream":true})", Endpoint::kChat);
  CHECK(answer.Token(Demo().eos_tokens[0]).empty());
  CHECK(Events(answer.End(EndReason::kStopToken)).size() == 3);
}

TEST_CASE("no event holds half a character") {
  const std::string text = "a 🦆 in 東京 ¿qué?";
  Asked answer(R"({"prompt":"a","stream":true})");
  std::string all;
  std::string stream;
  for (const int32_t id : Ids(text)) {
    for (const std::string& event : Events(answer.Token(id))) {
      const json::value chunk = json::parse(event);  // fails on invalid UTF-8
      all += std::string(chunk.at("choices").at(0).at("text").as_string());
    }
  }
  for (const std::string& event : Events(answer.End(EndReason::kLength))) {
    if (event == "[DONE]") continue;
    all += std::string(json::parse(event).at("choices").at(0).at("text").as_string());
  }
  CHECK(all == text);
}

TEST_CASE("a stop string ends the text before it, across tokens") {
  Asked answer(R"({"prompt":"a","stop":["ducks"]})");
  bool stopped = false;
  for (const int32_t id : Ids("two ducks three")) {
    answer.Token(id);
    stopped |= answer.text().stopped();
  }
  CHECK(stopped);
  const json::value body = json::parse(answer.End(EndReason::kCancelled));
  CHECK(body.at("choices").at(0).at("text") == "two ");
  CHECK(body.at("choices").at(0).at("finish_reason") == "stop");
  CHECK(body.at("choices").at(0).at("stop_reason") == "ducks");

  Asked kept(R"({"prompt":"a","stop":"ducks","include_stop_str_in_output":true})");
  for (const int32_t id : Ids("two ducks three")) kept.Token(id);
  CHECK(json::parse(kept.End(EndReason::kCancelled)).at("choices").at(0).at("text") == "two ducks");

  Asked half(R"({"prompt":"a","stop":"ducksong"})");
  for (const int32_t id : Ids("two ducks")) half.Token(id);
  CHECK(json::parse(half.End(EndReason::kLength)).at("choices").at(0).at("text") == "two ducks");
}

TEST_CASE("ids, digests and timings when asked, in streams and in whole answers") {
  const std::string fields = R"("return_token_ids":true,"baton_digest":true,"timings":true)";
  Asked whole(R"({"prompt":[5,6],)" + fields + "}");
  whole.Token(7);
  whole.Token(8);
  const json::value body = json::parse(whole.End(EndReason::kLength));
  const json::value& choice = body.at("choices").at(0);
  CHECK(json::serialize(choice.at("token_ids")) == "[7,8]");
  CHECK(json::serialize(choice.at("prompt_token_ids")) == "[5,6]");
  CHECK(json::serialize(choice.at("baton_digests")) ==
        R"(["00000000abcdef00","00000000abcdef01"])");
  CHECK(body.at("timings").at("prefill_ms") == 5.0);
  CHECK(body.at("timings").at("text_ms") == 1.0);
  CHECK(body.at("timings").at("prefill_worker") == "prefill0");
  CHECK_FALSE(body.at("timings").as_object().contains("prefill_heads"));
  CHECK(body.at("usage").at("prompt_tokens_details").at("cached_tokens") == 0);

  Asked again(R"({"prompt":[5,6]})");
  again.reused_tokens = 1;
  again.Token(7);
  CHECK(json::parse(again.End(EndReason::kLength))
            .at("usage")
            .at("prompt_tokens_details")
            .at("cached_tokens") == 1);

  Asked relay(R"({"prompt":[5,6],)" + fields + "}");
  relay.head = "prefill1";
  relay.Token(7);
  const json::value timings = json::parse(relay.End(EndReason::kLength)).at("timings");
  CHECK(timings.at("prefill_heads") == "prefill1");
  CHECK(timings.at("prefill_worker") == "prefill0");

  Asked stream(R"({"prompt":[5,6],"stream":true,)" + fields + "}");
  const json::value first = json::parse(Events(stream.Token(7))[0]);
  CHECK(json::serialize(first.at("choices").at(0).at("token_ids")) == "[7]");
  CHECK(json::serialize(first.at("choices").at(0).at("prompt_token_ids")) == "[5,6]");
  const json::value second = json::parse(Events(stream.Token(8))[0]);
  CHECK_FALSE(second.at("choices").at(0).as_object().contains("prompt_token_ids"));
  stream.Token(Demo().eos_tokens[0]);
  const json::value finish = json::parse(Events(stream.End(EndReason::kStopToken))[0]);
  CHECK(finish.at("choices").at(0).at("baton_digests").as_array().size() == 1);
  CHECK(finish.as_object().contains("timings"));
}

TEST_CASE("a stream that fails says so and ends") {
  Asked asked(R"({"prompt":"a","stream":true})");
  asked.Token(5);
  const auto events =
      Events(asked.answer->OnError(FromClusterStatus(absl::UnavailableError("no worker is left"))));
  REQUIRE(events.size() == 2);
  CHECK(json::parse(events[0]).at("error").at("message") == "no worker is left");
  CHECK(events[1] == "[DONE]");
}

// --- from an API request to tokens ---------------------------------------------------------------

std::optional<ApiError> Build(const std::string& body, GenerateRequest* out,
                              Endpoint endpoint = Endpoint::kCompletions, int64_t context = 0) {
  ApiRequest request;
  REQUIRE_FALSE(ParseApiRequest(endpoint, body, &request).has_value());
  return BuildGenerateRequest(Demo(), request, context, absl::CivilSecond(), out);
}

TEST_CASE("prompts become tokens; what cannot be served is a 400 that names it") {
  GenerateRequest out;
  REQUIRE_FALSE(Build(R"({"prompt":"two ducks"})", &out));
  CHECK(out.prompt == *Demo().tokenizer->Encode("two ducks", true));
  CHECK(out.max_tokens == 16);
  CHECK(out.stop_tokens == Demo().eos_tokens);
  CHECK(out.sampling.temperature == 1.0f);

  GenerateRequest ignoring;
  REQUIRE_FALSE(
      Build(R"({"prompt":"a","ignore_eos":true,"stop_token_ids":[9],"seed":-1})", &ignoring));
  CHECK(ignoring.stop_tokens == std::vector<int32_t>{9});
  CHECK(ignoring.sampling.seed == ~uint64_t{0});

  GenerateRequest one, other;
  REQUIRE_FALSE(Build(R"({"prompt":"a"})", &one));
  REQUIRE_FALSE(Build(R"({"prompt":"a"})", &other));
  CHECK(one.sampling.seed != other.sampling.seed);

  const auto param = [&](const std::string& body, const char* code, int64_t context = 0) {
    GenerateRequest ignored;
    const auto error = Build(body, &ignored, Endpoint::kCompletions, context);
    REQUIRE(error.has_value());
    CHECK(error->status == 400);
    CHECK(error->code == code);
    return error->param;
  };
  CHECK(param(R"({"prompt":""})", "invalid_value") == "prompt");
  CHECK(param(R"({"prompt":[1,2048]})", "invalid_value") == "prompt[1]");
  CHECK(param(R"({"prompt":"a","stop_token_ids":[2048]})", "invalid_value") == "stop_token_ids[0]");
  CHECK(param(R"({"prompt":"a","max_tokens":4096})", "context_length_exceeded") == "max_tokens");
  CHECK(param(R"({"prompt":"a","max_tokens":90})", "context_length_exceeded", 64) == "max_tokens");
  CHECK(param(R"({"prompt":")" + std::string(200000, 'x') + R"("})", "context_length_exceeded") ==
        "prompt");
  std::string ids = "1";
  for (int i = 1; i < 4096; ++i) ids += ",1";
  GenerateRequest ignored;
  const auto full = Build(R"({"prompt":[)" + ids + "]}", &ignored);
  REQUIRE(full.has_value());
  CHECK(full->param == "prompt");
  CHECK(full->n_ctx == 4096);
  CHECK(full->n_prompt_tokens == 4096);
  CHECK(full->message.find("maximum context length is 4096 tokens") != std::string::npos);
}

TEST_CASE("chat uses the model's template and the whole context") {
  GenerateRequest out;
  REQUIRE_FALSE(
      Build(R"({"messages":[{"role":"user","content":"What is 2 + 2?"}]})", &out, Endpoint::kChat));
  const std::string text = *Demo().tokenizer->Decode(out.prompt, false);
  CHECK(text.find("<|im_start|>user\nWhat is 2 + 2?<|im_end|>") != std::string::npos);
  CHECK(text.rfind("<|im_start|>assistant\n") == text.size() - 22);
  CHECK(out.max_tokens == 4096 - static_cast<int>(out.prompt.size()));
}

TEST_CASE("random: models take token ids only") {
  ModelConfig config;
  config.path = "random:" BATON_SOURCE_DIR "/models/demo/config.json";
  config.name = "shape";
  const auto model = ServedModel::Load(config);
  REQUIRE(model.ok());
  ApiRequest text, ids;
  REQUIRE_FALSE(ParseApiRequest(Endpoint::kCompletions, R"({"prompt":"a"})", &text));
  REQUIRE_FALSE(ParseApiRequest(Endpoint::kCompletions, R"({"prompt":[3]})", &ids));
  GenerateRequest out;
  const auto error = BuildGenerateRequest(**model, text, 0, absl::CivilSecond(), &out);
  REQUIRE(error.has_value());
  CHECK(error->param == "prompt");
  REQUIRE_FALSE(BuildGenerateRequest(**model, ids, 0, absl::CivilSecond(), &out));
  const auto answer = kCompletionsApi.answer(**model, ids, out, "x", 0);
  EmitToken token;
  token.token = 5;
  CHECK(answer->OnToken(token).empty());
  EmitEnd end;
  CHECK(json::parse(answer->OnEnd(end, {})).at("choices").at(0).at("text") == "");
}

TEST_CASE("models that cannot be served say which file is wrong") {
  ModelConfig config;
  config.path = "/no/such/folder";
  CHECK(std::string(ServedModel::Load(config).status().message()).find("/no/such/folder") !=
        std::string::npos);
  config.path = BATON_SOURCE_DIR "/models/demo";
  config.max_context = 5000;
  CHECK(std::string(ServedModel::Load(config).status().message()).find("model.max_context") !=
        std::string::npos);
}

}  // namespace
}  // namespace baton
