// Answers of all APIs to any tokens: events are single lines of strict JSON, streams join to the
// whole answer, and texts are those of the tokens.
#include <bit>
#include <charconv>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "server/api/endpoints/endpoints.h"
#include "server/api/json_writer.h"
#include "tests/fuzz/file_text.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/told_answer.h"
#include "text/detokenizer.h"

namespace baton {
namespace {

namespace json = boost::json;

constexpr size_t kMaxTokens = 300;
constexpr char kWriterMode = 4;  // of the first byte; below: the API

struct Api {
  const GenerationApi& api;
  Endpoint endpoint;
  const char* body;
};
constexpr char kTools[] =
    R"("tools":[{"type":"function","function":{"name":"find","parameters":{"type":"object"}}}])";

const std::vector<Api>& Apis() {
  static const auto* const apis = new std::vector<Api>{
      {kCompletionsApi, Endpoint::kCompletions, R"({"prompt":["a b",[5,6]]})"},
      {kChatCompletionsApi, Endpoint::kChat, R"({"messages":[{"role":"user","content":"a"}],)"},
      {kResponsesApi, Endpoint::kResponses,
       R"({"input":"a","tools":[{"type":"function","name":"find","parameters":{"type":"object"}},)"
       R"({"type":"custom","name":"note"}]})"},
      {kMessagesApi, Endpoint::kMessages,
       R"({"max_tokens":99,"messages":[{"role":"user","content":"a"}],)"
       R"("tools":[{"name":"find","input_schema":{"type":"object"}}]})"},
  };
  return *apis;
}

ServedModel& Model() {
  static ServedModel* const model = [] {
    ModelConfig config;
    config.path = SourcePath("models/demo");
    return ServedModel::Load(config).value().release();
  }();
  return *model;
}

int32_t TokenOf(unsigned char byte) {
  static const std::vector<int32_t> tokens = [] {
    std::vector<int32_t> found(256, -1);
    const Tokenizer& tokenizer = *Model().tokenizer;
    for (int32_t id = 0; id < tokenizer.vocab_size(); ++id)
      if (tokenizer.TokenBytes(id).size() == 1 && !tokenizer.IsSpecial(id))
        found[static_cast<unsigned char>(tokenizer.TokenBytes(id)[0])] = id;
    BATON_CHECK(std::find(found.begin(), found.end(), -1) == found.end());
    return found;
  }();
  return tokens[byte];
}

// The request, the tokens and the end that an input stands for.
struct Asked {
  const Api* api;
  ApiRequest request;
  std::vector<PreparedPrompt> prompts;
  std::vector<EmitToken> tokens;
  std::vector<size_t> choices;  // of the tokens
  EndReason reason = EndReason::kLength;
  size_t n_choices = 1;
};

void ReadOptions(FuzzInput& input, ApiRequest* request) {
  const uint8_t flags = input.Byte(), more = input.Byte();
  const bool is_openai =
      request->endpoint == Endpoint::kChat || request->endpoint == Endpoint::kCompletions;
  if (is_openai) {
    request->n = 1 + (flags & 1);
    request->include_usage = (flags & 2) != 0;
    request->continuous_usage = (flags & 6) == 6;
    request->return_token_ids = (flags & 8) != 0;
    request->stream_interval = (flags & 16) != 0 ? 3 : 1;
    request->timings = request->digests = (flags & 32) != 0;
    request->tokens_as_ids = (flags & 64) != 0;
    request->echo = request->endpoint == Endpoint::kCompletions && (flags & 128) != 0;
    request->include_reasoning = (more & 1) == 0;
    request->include_stop = (more & 2) != 0;
    request->skip_special_tokens = (more & 4) == 0;
  }
  if (request->endpoint != Endpoint::kMessages && (more & 8) != 0) request->top_logprobs = 2;
  if ((more & 16) != 0) request->min_tokens = 3;
  if ((more & 32) != 0) request->stop_token_ids = {TokenOf('Z')};
  if ((more & 64) != 0) request->parallel_tool_calls = false;
}

float Logprob(uint8_t byte) {
  using Limits = std::numeric_limits<float>;
  constexpr float kSome[] = {
      -0.5f, 0.0f, -0.0f, -1e-30f, -123.456f, -Limits::infinity(), Limits::quiet_NaN()};
  return kSome[byte % std::size(kSome)];
}

// Bytes are tokens of one byte; 0xFF, two bytes: any token, or none.
void ReadTokens(FuzzInput& input, Asked* asked) {
  std::string_view rest = input.Rest();
  std::vector<int32_t> n_of(asked->n_choices);
  const auto take = [&] {
    const auto byte = static_cast<unsigned char>(rest.empty() ? 0 : rest.front());
    if (!rest.empty()) rest.remove_prefix(1);
    return byte;
  };
  while (!rest.empty() && asked->tokens.size() < kMaxTokens) {
    const unsigned char byte = take();
    EmitToken token;
    token.token = TokenOf(byte);
    if (byte == 0xFF) {
      const int low = take();
      token.token = (low + 256 * take()) % 2100;
    }
    const size_t choice = input.random()() % asked->n_choices;
    token.index = n_of[choice]++;
    token.logprob = Logprob(byte);
    token.digest = input.random()();
    if (asked->request.top_logprobs)
      token.logprobs = {{token.token, token.logprob}, {TokenOf('a'), Logprob(byte / 7)}};
    asked->tokens.push_back(token);
    asked->choices.push_back(choice);
  }
}

std::optional<Asked> ReadAsked(FuzzInput& input, const Api& api) {
  Asked asked{.api = &api};
  ServedModel& model = Model();
  model.answer_format.tools = static_cast<ToolFormat>(input.Below(5));
  model.answer_format.reasoning = static_cast<ReasoningFormat>(input.Below(3));
  std::string body = api.body;
  if (api.endpoint == Endpoint::kChat) body += absl::StrCat(kTools, "}");
  BATON_CHECK(!api.api.parse(body, {}, &asked.request));
  ReadOptions(input, &asked.request);
  asked.reason = input.Bool() ? EndReason::kLength : EndReason::kStopToken;
  model.name = input.Upto('\0');
  for (size_t n = input.Below(3); n > 0; --n) {
    std::string stop = ValidUtf8(input.Upto('\0').substr(0, 300));
    if (!stop.empty()) asked.request.stop.push_back(std::move(stop));
  }
  asked.request.metadata = JsonObject([&](JsonWriter& json) { json.Field("m", input.Upto('\0')); });
  if (PreparePrompts(model, asked.request, 0, {}, &asked.prompts)) return std::nullopt;
  asked.n_choices = asked.prompts.size() * ChoicesPerPrompt(asked.request);
  ReadTokens(input, &asked);
  return asked;
}

struct Written {
  std::string bytes;
  std::vector<std::string> texts;  // by choice: those of all tokens told, as bytes
  std::vector<int64_t> n_tokens;
};

Written Write(Asked asked, bool stream, AnswerStore* store) {
  asked.request.stream = stream;
  const auto answer =
      asked.api->api.answer(Model(), asked.request, asked.prompts,
                            {.id = "r", .created = 1700000000, .unique_id = "u", .store = store});
  BATON_CHECK(answer->n_choices() == asked.n_choices);
  Written written;
  written.texts.resize(asked.n_choices);
  for (size_t i = 0; i < asked.tokens.size(); ++i) {
    const size_t choice = asked.choices[i];
    if (answer->text(choice).ended()) continue;  // the front ends such a choice
    written.bytes += answer->OnToken(choice, asked.tokens[i]);
    if (!answer->text(choice).stop_token())
      written.texts[choice] += answer->text(choice).token_bytes();
  }
  EmitEnd end;
  for (size_t choice = 0; choice < asked.n_choices; ++choice) {
    end.reason = answer->text(choice).stop_token() ? EndReason::kStopToken : asked.reason;
    written.bytes += answer->OnChoiceEnd(choice, end);
    written.n_tokens.push_back(answer->text(choice).n_tokens());
  }
  written.bytes += answer->OnEnd();
  return written;
}

// The texts of choices that nothing splits, stops or echoes are those of the tokens.
void CheckTexts(const Asked& asked, const Written& written, const ToldAnswer& told) {
  const ApiRequest& request = asked.request;
  if (request.endpoint != Endpoint::kCompletions || !request.stop.empty() || request.echo) return;
  BATON_CHECK(told.choices.size() == asked.n_choices);
  for (const auto& [index, choice] : told.choices)
    BATON_CHECK(choice.content == ValidUtf8(written.texts[static_cast<size_t>(index)]));
}

ToldAnswer ReadBody(Endpoint endpoint, const json::value& body) {
  ToldAnswer answer;
  if (endpoint != Endpoint::kMessages) {
    AddChoices(body.as_object(), &answer);
    return answer;
  }
  ToldChoice& choice = answer.choices[0];
  int64_t place = 0;
  for (const json::value& block : body.at("content").as_array()) {
    AddBlock(block.as_object(), place, &choice);
    if (block.as_object().contains("input"))
      choice.calls.at(place).arguments = json::serialize(block.at("input"));
    ++place;
  }
  choice.finish = told::Text(body.as_object(), "stop_reason");
  answer.usage = body.at("usage");
  Renumber(&answer);
  return answer;
}

// Arguments as WriteInput has them in a whole message.
std::string AsInput(const std::string& arguments) {
  const auto parsed = ParseJson(arguments);
  if (parsed.ok() && parsed->is_object()) return json::serialize(*parsed);
  return json::serialize(json::object{{"INVALID_JSON", arguments}});
}

// The events of /v1/responses: deltas join to what the items are in the end.
void CheckResponses(const std::vector<ToldEvent>& events, const json::value& whole) {
  std::map<std::string, std::string> joined, done;
  const json::value* last = nullptr;
  for (const ToldEvent& event : events) {
    const json::object& fields = event.value.get_object();
    const std::string id = told::Text(fields, "item_id");
    if (event.name.ends_with(".delta")) joined[id] += told::Text(fields, "delta");
    for (const char* key : {"text", "arguments", "input"})
      if (fields.contains(key)) done[id] = told::Text(fields, key);
    if (const json::value* response = fields.if_contains("response")) last = response;
  }
  std::erase_if(joined, [](const auto& entry) { return entry.second.empty(); });
  std::erase_if(done, [](const auto& entry) { return entry.second.empty(); });
  BATON_CHECK(joined == done);
  BATON_CHECK(last != nullptr && *last == whole);
}

void TryAnswer(FuzzInput& input, const Api& api) {
  const auto asked = ReadAsked(input, api);
  if (!asked) return;
  AnswerStore store(AnswerStoreOptions{});
  const Written streamed = Write(*asked, true, &store), written = Write(*asked, false, &store);
  BATON_CHECK(streamed.n_tokens == written.n_tokens);
  const json::value body = told::Strict(written.bytes);
  ToldAnswer stream = ReadStream(api.endpoint, streamed.bytes);
  if (api.endpoint == Endpoint::kResponses) return CheckResponses(EventsOf(streamed.bytes), body);
  ToldAnswer whole = ReadBody(api.endpoint, body);
  if (api.endpoint == Endpoint::kMessages) {
    for (auto& [place, call] : stream.choices[0].calls) call.arguments = AsInput(call.arguments);
  } else if (!asked->request.include_usage) {
    stream.usage = whole.usage;
  }
  BATON_CHECK(stream == whole);
  for (const auto& [index, choice] : whole.choices) BATON_CHECK(!choice.finish.empty());
  CheckTexts(*asked, written, whole);
}

// Strings and numbers of any bits, written and read back.
void TryWriter(FuzzInput& input) {
  const std::string key(input.Upto('\0')), text(input.Upto('\0'));
  const std::string_view bits = input.Rest().substr(0, 8);
  uint64_t number = 0;
  for (const char c : bits) number = number << 8 | static_cast<unsigned char>(c);
  const auto value = std::bit_cast<double>(number);
  const std::string written = JsonObject([&](JsonWriter& json) {
    json.Field(key, text);
    json.Array(key + "2", [&] {
      json.Value(text);
      json.Object([&] { json.BytesField("bytes", text); });
      json.Value(static_cast<int64_t>(number));
    });
  });
  BATON_CHECK(written.find_first_of("\n\r") == written.npos);
  const json::value read = told::Strict(written);
  const json::object& fields = read.as_object();
  BATON_CHECK(told::Text(fields, ValidUtf8(key).c_str()) == ValidUtf8(text));
  const json::array& list = fields.begin()[1].value().as_array();
  BATON_CHECK(list[0].as_string() == ValidUtf8(text));
  BATON_CHECK(list[1].at("bytes").as_array().size() == text.size());
  BATON_CHECK(list[2].as_int64() == static_cast<int64_t>(number));
  if (std::isfinite(value)) {  // read back with the same bits
    std::string digits;
    JsonWriter(&digits).Value(value);
    double same = 0;
    std::from_chars(digits.data(), digits.data() + digits.size(), same);
    BATON_CHECK(std::bit_cast<uint64_t>(same) == number);
  }
  // An error, wherever it stands in a stream.
  const ApiError error{.message = text, .param = key, .request_id = key};
  BATON_CHECK(told::Strict(ErrorBody(error)).at("error").at("message").as_string() ==
              ValidUtf8(text));
}

}  // namespace

void TryInput(std::string_view bytes) {
  FuzzInput input(bytes);
  const size_t mode = input.Below(kWriterMode + 1);
  if (mode == kWriterMode) return TryWriter(input);
  TryAnswer(input, Apis()[mode]);
}

FuzzSeeds MakeSeeds() {
  FuzzSeeds seeds;
  const std::string calls[] = {
      "plain text, <b>\"quoted\"</b> \xF0\x9F\x98\x80 caf\xC3\xA9 \xFF\x05\x02 end",
      R"({"name": "find", "parameters": {"q": "a\"b"}}; {"name": "note", "parameters": {}})",
      "<think>hm \n</think>\n\nYes.\n<tool_call>\n"
      "{\"name\": \"find\", \"arguments\": {\"q\": [1, {}]}}\n</tool_call> so",
      R"([THINK]hm[/THINK][TOOL_CALLS] [{"name": "note", "arguments": {"input": "x"}}])",
      R"([TOOL_CALLS]find[ARGS]{"q": "\u00e9"}[TOOL_CALLS]note[ARGS]{"input": "a"})"};
  for (char mode = 0; mode < kWriterMode; ++mode) {
    for (char tools = 0; tools < 5; ++tools) {
      for (char reasoning = 0; reasoning < 3; ++reasoning) {
        const char flags = static_cast<char>(tools * 51 + reasoning * 17);
        std::string input{mode, tools, reasoning, flags, static_cast<char>(flags * 3), '\1'};
        input += std::string("demo\0", 5) + '\1' + std::string("STOP\0meta\0", 10);
        seeds.inputs.push_back(input + calls[static_cast<size_t>(tools)]);
      }
    }
  }
  seeds.inputs.push_back(kWriterMode + std::string("key\0text \x80\n\x01\0", 14) + "\x3f\xf0");
  for (const char* word : {"<think>",
                           "</think>",
                           "[THINK]",
                           "[/THINK]",
                           "<tool_call>",
                           "</tool_call>",
                           "[TOOL_CALLS]",
                           "[ARGS]",
                           "[CALL_ID]",
                           "<|python_tag|>",
                           R"({"name": "find", )",
                           R"("arguments": {)",
                           R"("parameters": {)",
                           R"({"name": "note", )",
                           "STOP",
                           "Z",
                           "\xE2\x80\xA8",
                           "\xED\xA0\x80",
                           "\xFF\x02\x00",
                           "\xFF\xFA\x07",
                           "; "})
    seeds.words.emplace_back(word);
  return seeds;
}

}  // namespace baton
