// The way of a request from bytes to tokens: HTTP in any pieces, bodies of every endpoint by the
// table of fields, templates and tokenizer of the demo model. What is refused names what is wrong,
// and what is taken keeps the limits that router and workers check again.
#include <set>

#include "absl/strings/str_cat.h"
#include "server/api/endpoints/endpoints.h"
#include "server/api/messages_answer.h"
#include "server/api/prepared_request.h"
#include "server/http/http_parser.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/request_check.h"
#include "tests/fuzz/thread_time.h"
#include "tests/fuzz/told_answer.h"
#include "tests/server/api/field_samples.h"

namespace baton {
namespace {

using field_samples::kPlaces;
using field_samples::Place;

constexpr size_t kHttp = std::size(kPlaces);  // the first byte's; below: a place
constexpr absl::Duration kMaxTime = absl::Seconds(1);
constexpr HttpLimits kSmall = {
    .max_header = 600, .max_fields = 6, .max_line = 200, .max_target = 60, .max_body = 300};

const GenerationApi* ApiOf(Endpoint endpoint) {
  switch (endpoint) {
    case Endpoint::kCompletions:
      return &kCompletionsApi;
    case Endpoint::kChat:
      return &kChatCompletionsApi;
    case Endpoint::kResponses:
      return &kResponsesApi;
    case Endpoint::kMessages:
      return &kMessagesApi;
    default:
      return nullptr;
  }
}

// A refusal is the client's fault and names a field that some endpoint knows, or none: one of
// another endpoint is refused by name.
void CheckRefusal(Endpoint endpoint, const ApiError& error) {
  BATON_CHECK(error.status == 400 || error.status == 404);
  BATON_CHECK(!error.message.empty() && error.message.size() < 4000);
  const std::string name = error.param.substr(0, error.param.find_first_of(".["));
  bool is_known = name.empty();
  for (const Field& field : AllFields()) is_known |= field.name == name;
  BATON_CHECK(is_known);
  const bool is_anthropic = ApiOf(endpoint) == &kMessagesApi;
  const HttpReply reply = is_anthropic ? AnthropicErrorReply(error) : ErrorReply(error);
  BATON_CHECK(told::Strict(reply.body).at("error").is_object());
}

// A short answer, which says again what the request asked for.
void CheckAnswer(const GenerationApi& api, const PreparedRequest& prepared) {
  AnswerStore store(AnswerStoreOptions{});
  const auto answer = api.answer(Demo(), prepared.request, prepared.prompts,
                                 {.id = "r", .unique_id = "u", .store = &store});
  std::string written;
  for (size_t choice = 0; choice < answer->n_choices(); ++choice) {
    EmitToken token;
    token.token = 40;
    token.logprob = -1;
    if (prepared.request.top_logprobs) token.logprobs = {{40, -1.0f}};
    written += answer->OnToken(choice, token);
    written += answer->OnChoiceEnd(choice, {});
  }
  written += answer->OnEnd();
  if (prepared.request.stream) {
    BATON_CHECK(!EventsOf(written).empty());
  } else {
    BATON_CHECK(told::Strict(written).is_object());
  }
}

void TryGeneration(const GenerationApi& api, Endpoint endpoint, const std::string& body) {
  PreparedRequest prepared;
  prepared.Read(api, Demo(), {}, 0, body);
  if (prepared.needs_conversation())
    prepared.GoOn(Demo(), 0,
                  R"([{"role":"user","content":"a"},{"role":"assistant","content":"b"}])");
  if (prepared.error) return CheckRefusal(endpoint, *prepared.error);
  BATON_CHECK(!prepared.prompts.empty());
  for (const PreparedPrompt& prompt : prepared.prompts) CheckGenerate(prompt.generate);
  CheckAnswer(api, prepared);
}

// Endpoints of text work alone, and of a stored chat.
void TryText(Endpoint endpoint, const std::string& body) {
  ApiRequest request;
  if (const auto error = ParseApiRequest(endpoint, body, &request))
    return CheckRefusal(endpoint, *error);
  if (endpoint == Endpoint::kStoredChat) {
    BATON_CHECK(told::Strict(request.metadata).is_object());
    return;
  }
  if (request.messages.empty()) return;
  PromptText prompt;
  if (const auto error = RenderMessages(Demo(), request, {}, &prompt))
    return CheckRefusal(endpoint, *error);
  BATON_CHECK(Demo().tokenizer->Encode(prompt, false).ok());
}

void TryBody(Endpoint endpoint, const std::string& body) {
  const absl::Duration begin = ThreadTime();
  const GenerationApi* api = ApiOf(endpoint);
  if (api != nullptr) {
    TryGeneration(*api, endpoint, body);
  } else {
    TryText(endpoint, body);
  }
  BATON_CHECK(ThreadTime() - begin < kMaxTime);
}

// ---- HTTP ----

struct Parsed {
  bool is_whole = false;
  HttpRequest request;
  HttpParseError error;
  std::string rest;  // of the bytes; only behind a whole request
};

template <typename NextSize>
Parsed Parse(const HttpLimits& limits, std::string_view bytes, const NextSize& next_size) {
  HttpParser parser(limits);
  Parsed parsed;
  std::string input;
  bool had_head = false;
  while (true) {
    const size_t size = std::min(next_size(), bytes.size());
    input += bytes.substr(0, size);
    bytes.remove_prefix(size);
    HttpParser::Progress progress = parser.Take(&input);
    if (progress == HttpParser::Progress::kHead) {
      BATON_CHECK(!std::exchange(had_head, true));
      progress = parser.Take(&input);
    }
    if (progress == HttpParser::Progress::kError) {
      parsed.error = parser.error();
      return parsed;
    }
    if (progress == HttpParser::Progress::kComplete) break;
    BATON_CHECK(progress == HttpParser::Progress::kNeedMore);
    if (bytes.empty()) return parsed;
  }
  BATON_CHECK(had_head);
  parsed.is_whole = true;
  parsed.request = std::move(parser.request());
  parsed.rest = input + std::string(bytes);
  return parsed;
}

void CheckEqual(const HttpRequest& a, const HttpRequest& b) {
  BATON_CHECK(a.method == b.method && a.path == b.path && a.query == b.query);
  BATON_CHECK(a.is_http_1_0 == b.is_http_1_0 && a.keep_alive == b.keep_alive);
  BATON_CHECK(a.expects_continue == b.expects_continue && a.has_body == b.has_body);
  BATON_CHECK(a.content_type == b.content_type && a.content_encoding == b.content_encoding);
  BATON_CHECK(a.origin == b.origin && a.request_id == b.request_id);
  BATON_CHECK(a.user_agent == b.user_agent && a.asked_headers == b.asked_headers);
  BATON_CHECK(a.client == b.client && a.body == b.body);
}

// A head of an answer that says again what the client sent: its lines are ours.
void CheckReplyHead(const HttpRequest& request) {
  HttpReply reply;
  reply.headers = {{"Access-Control-Allow-Origin", request.origin},
                   {"Access-Control-Allow-Headers", request.asked_headers},
                   {"X-Request-Id", request.request_id}};
  const std::string with_length = ReplyHead(reply, request), chunked = StreamHead(reply, request);
  for (const std::string* head : {&with_length, &chunked}) {
    BATON_CHECK(head->find("\r\n\r\n") == head->size() - 4);
    for (size_t i = 0; i < head->size(); ++i) {
      BATON_CHECK((*head)[i] != '\n' || (i > 0 && (*head)[i - 1] == '\r'));
      BATON_CHECK((*head)[i] != '\r' || (*head)[i + 1] == '\n');
    }
  }
}

void TryHttp(FuzzInput& input) {
  const HttpLimits limits = input.Bool() ? kSmall : HttpLimits{};
  std::string bytes(input.Rest());
  for (int n = 0; n < 4 && !bytes.empty(); ++n) {  // requests behind each other
    const Parsed whole = Parse(limits, bytes, [&] { return bytes.size(); });
    const Parsed parts = Parse(limits, bytes, [&] { return 1 + input.random()() % 40; });
    BATON_CHECK(whole.is_whole == parts.is_whole);
    if (!whole.is_whole) {
      const std::set<int> kStatuses = {400, 413, 414, 417, 431, 505};
      for (const Parsed* parsed : {&whole, &parts})
        if (!parsed->error.message.empty()) BATON_CHECK(kStatuses.contains(parsed->error.status));
      BATON_CHECK(whole.error.message.empty() == parts.error.message.empty());
      return;
    }
    const HttpRequest& request = whole.request;
    CheckEqual(request, parts.request);
    BATON_CHECK(whole.rest == parts.rest);
    BATON_CHECK(whole.rest.size() < bytes.size());
    BATON_CHECK(request.body.size() <= limits.max_body);
    BATON_CHECK(request.path == "*" || request.path.starts_with('/'));
    BATON_CHECK(request.path.find('\0') == std::string::npos);
    CheckReplyHead(request);
    const FoundRoute found = FindRoute(RouteTable(), request.method, request.path);
    BATON_CHECK(found.route == nullptr || !found.methods.empty());
    BATON_CHECK(!RouteLabel(RouteTable(), request.path).empty());
    bytes = whole.rest;
  }
}

// ---- seeds ----

void AddBodies(FuzzSeeds* seeds) {
  std::mt19937_64 random(1);
  for (size_t place = 0; place < std::size(kPlaces); ++place) {
    const char head = static_cast<char>(place);
    std::string many;  // good values of many fields together
    for (const Field& field : AllFields()) {
      if ((field.endpoints & SetOf(kPlaces[place].endpoint)) == 0) continue;
      field_samples::Samples samples;
      std::visit(samples, field.rule);
      for (const auto* values : {&samples.good, &samples.bad})
        for (const std::string& value : *values)
          seeds->inputs.push_back(head + field_samples::Body(kPlaces[place], field.name, value));
      seeds->words.push_back(absl::StrCat("\"", field.name, "\":"));
      if (samples.good.empty() || random() % 3 != 0) continue;
      const std::string& value = samples.good[random() % samples.good.size()];
      absl::StrAppend(&many, ",\"", field.name, "\":", value);
      if (many.size() < 300) continue;
      seeds->inputs.push_back(
          absl::StrCat(std::string(1, head), "{", kPlaces[place].rest, many, "}"));
      many.clear();
    }
  }
}

}  // namespace

void TryInput(std::string_view bytes) {
  FuzzInput input(bytes);
  const size_t place = input.Below(kHttp + 1);
  if (place == kHttp) return TryHttp(input);
  TryBody(kPlaces[place].endpoint, std::string(input.Rest()));
}

FuzzSeeds MakeSeeds() {
  FuzzSeeds seeds;
  AddBodies(&seeds);
  for (const char* request :
       {"GET /v1/models/demo?a=%20 HTTP/1.1\r\nHost: a:80\r\n\r\n",
        "POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
        "Content-Length: 3\r\nX-Request-Id: r-1\r\n\r\n{}\nGET /livez HTTP/1.0\r\n\r\n",
        "POST /v1/completions HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nExpect: "
        "100-continue\r\n\r\n3;x=y\r\n{\"a\r\n4\r\n\":1}\r\n0\r\nT: 1\r\n\r\n",
        "OPTIONS * HTTP/1.1\r\nHost: b\r\nOrigin: http://c\r\nAccess-Control-Request-Headers: "
        "authorization, x-y\r\nConnection: close\r\n\r\n",
        "HEAD http://a/%68ealth HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer k\r\nUser-Agent: "
        "u\r\nConnection: keep-alive, upgrade\r\nUpgrade: h2c\r\n\r\n"})
    for (const char limits : {'\0', '\1'})
      seeds.inputs.push_back(static_cast<char>(kHttp) + (limits + std::string(request)));
  for (const char* word : {"\r\n",
                           "\r\n\r\n",
                           "Content-Length: ",
                           "Transfer-Encoding: chunked\r\n",
                           "Host: ",
                           "Expect: ",
                           "Connection: close\r\n",
                           " HTTP/1.1\r\n",
                           " HTTP/1.0\r\n",
                           "0\r\n\r\n",
                           "ffffffffffffffff",
                           "\"demo\"",
                           "{\"role\":\"user\",\"content\":\"",
                           "{\"type\":\"text\",\"text\":\"",
                           "\"tool_calls\":[",
                           "{\"type\":\"function\",\"function\":{\"name\":\"f\"",
                           "\"arguments\":\"",
                           "{\"type\":\"function_call\",",
                           "{\"type\":\"reasoning\",",
                           "\"tool_use\"",
                           "\"tool_result\"",
                           "\"thinking\"",
                           "\"stream\":true",
                           "null",
                           "true",
                           "[]",
                           "{}",
                           "-1",
                           "1e308",
                           "9223372036854775807",
                           "\\ud83d\\ude00",
                           "\\u0000"})
    seeds.words.emplace_back(word);
  return seeds;
}

}  // namespace baton
