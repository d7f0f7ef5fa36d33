// /v1/responses: OpenAI's newer API for conversations, and those that are stored.
#include <boost/json.hpp>

#include "absl/strings/str_cat.h"
#include "server/api/endpoints/endpoints.h"
#include "server/api/endpoints/listed_page.h"
#include "server/api/endpoints/stored_input.h"
#include "server/api/json_document.h"
#include "server/api/responses_answer.h"

namespace baton {
namespace {

namespace json = boost::json;

ApiError UnknownResponse(const std::string& id) {
  ApiError error =
      HttpError(404, absl::StrCat("Response with id '", ShortenedName(id), "' not found."));
  error.param = "response_id";
  return error;
}

// Replies with 404 and returns null if the response of the call is unknown.
const StoredAnswer* FindResponse(ApiFront& front, const ApiCall& call) {
  const StoredAnswer* found =
      front.answers().store().Find(StoredKind::kResponse, call.tenant(), call.argument);
  if (found == nullptr) front.Reply(call, ErrorReply(UnknownResponse(call.argument)));
  return found;
}

std::string_view PrefixOf(const json::value& type) {
  if (type == "message") return "msg_";
  if (type == "reasoning") return "rs_";
  if (type == "function_call") return "fc_";
  if (type == "custom_tool_call") return "ctc_";
  return type == "custom_tool_call_output" ? "ctco_" : "fco_";
}

// Completes an item as it was sent by what clients may leave out.
void Complete(const std::string& unique, json::object* item) {
  json::object& members = *item;
  if (!members.contains("type")) members["type"] = "message";
  const json::value* id = members.if_contains("id");
  if (id == nullptr || !id->is_string())
    members["id"] = absl::StrCat(std::string(PrefixOf(members["type"])), unique);
  if (!members.contains("status") && members["type"] != "reasoning")
    members["status"] = "completed";
  if (members["type"] != "message" || !members["content"].is_string()) return;
  json::object part{{"type", "input_text"}, {"text", members["content"]}};
  if (members["role"] == "assistant") {
    part["type"] = "output_text";
    part["annotations"] = json::array();
  }
  members["content"] = json::array{std::move(part)};
}

ApiFront::TextAnswer ListInput(const ServedModel&, int64_t, std::string_view body) {
  auto stored = ReadStoredInput(body);
  if (!stored) return FromClusterStatus(absl::InternalError("stored input"));
  json::value& input = stored->input;
  if (input.is_string())
    input = json::array{json::object{{"role", "user"}, {"content", std::move(input)}}};
  json::array& items = input.get_array();
  const std::string unique(stored->id.substr(stored->id.find('_') + 1));
  std::vector<std::string> ids;
  for (json::value& item : items) {
    Complete(absl::StrCat(unique, "_in", ids.size()), &item.get_object());
    ids.emplace_back(item.at("id").as_string());
  }
  return ListedPage(stored->query, "desc", ids,
                    [&](size_t n) { return json::serialize(items[n]); });
}

}  // namespace

const GenerationApi kResponsesApi = {
    .name = "responses",
    .parse =
        [](std::string_view body, const RequestSettings& settings, ApiRequest* request) {
          return ParseApiRequest(Endpoint::kResponses, body, request, settings);
        },
    .answer = [](const ServedModel& model, const ApiRequest& request,
                 const std::vector<PreparedPrompt>& prompts,
                 const AnswerAbout& about) -> std::unique_ptr<Answer> {
      return std::make_unique<ResponsesAnswer>(model, request, prompts, about);
    },
};

void AnswerResponses(ApiFront& front, ApiCall call) {
  front.Generate(kResponsesApi, std::move(call));
}

void AnswerResponse(ApiFront& front, ApiCall call) {
  const auto stream = QueryValue(call.request.query, "stream");
  if (stream && *stream != "false") {
    front.Reply(call, ErrorReply(Unsupported("stream",
                                             "A stored response is not streamed again; "
                                             "leave stream out.")));
    return;
  }
  if (const StoredAnswer* found = FindResponse(front, call)) ReplyJson(front, call, found->body);
}

void AnswerDeleteResponse(ApiFront& front, ApiCall call) {
  if (!front.answers().Erase(StoredKind::kResponse, call.tenant(), call.argument)) {
    front.Reply(call, ErrorReply(UnknownResponse(call.argument)));
    return;
  }
  ReplyDeleted(front, call, "response");
}

void AnswerCancelResponse(ApiFront& front, ApiCall call) {
  const auto shared = std::make_shared<const ApiCall>(std::move(call));
  const auto tell = [&front, shared] {
    const StoredAnswer* found = FindResponse(front, *shared);
    if (found == nullptr) return;
    if (found->is_cancelled) {
      ReplyJson(front, *shared, found->body);
      return;
    }
    ApiError error = InvalidField("response_id",
                                  "This response has ended; only a response that still "
                                  "runs can be cancelled.");
    front.Reply(*shared, ErrorReply(error));
  };
  if (!front.answers().Cancel(shared->tenant(), shared->argument, tell)) tell();
}

void AnswerInputItems(ApiFront& front, ApiCall call) {
  if (const StoredAnswer* found = FindResponse(front, call))
    AnswerStoredInput(front, std::move(call), *found, ListInput);
}

}  // namespace baton
