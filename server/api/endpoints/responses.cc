// /v1/responses: OpenAI's newer API for conversations, and those that are stored.
#include "server/api/endpoints/listed_page.h"

#include <boost/json.hpp>

#include "absl/strings/str_cat.h"
#include "server/api/endpoints/endpoints.h"
#include "server/api/json_document.h"
#include "server/api/json_writer.h"
#include "server/api/responses_answer.h"

namespace baton {
namespace {

namespace json = boost::json;

ApiError UnknownResponse(const std::string& id) {
  ApiError error = HttpError(404, absl::StrCat("Response with id '", id, "' not found."));
  error.param = "response_id";
  return error;
}

// Replies with 404 and returns null if the response of the call is unknown.
const StoredAnswer* FindResponse(ApiFront& front, const ApiCall& call) {
  const StoredAnswer* found = front.answers().store().Find(StoredKind::kResponse, call.argument);
  if (found == nullptr) front.Reply(call, ErrorReply(UnknownResponse(call.argument)));
  return found;
}

void ReplyWith(ApiFront& front, const ApiCall& call, const std::string& body) {
  HttpReply reply;
  reply.body = body;
  front.Reply(call, std::move(reply));
}

std::string_view PrefixOf(const json::value& type) {
  if (type == "message") return "msg_";
  if (type == "reasoning") return "rs_";
  if (type == "function_call") return "fc_";
  if (type == "custom_tool_call") return "ctc_";
  return type == "custom_tool_call_output" ? "ctco_" : "fco_";
}

// An item as it was sent, with what clients may leave out.
ListedEntry WholeItem(json::object item, const std::string& unique) {
  if (!item.contains("type")) item["type"] = "message";
  const json::value* id = item.if_contains("id");
  if (id == nullptr || !id->is_string())
    item["id"] = absl::StrCat(std::string(PrefixOf(item["type"])), unique);
  if (!item.contains("status") && item["type"] != "reasoning") item["status"] = "completed";
  if (item["type"] == "message" && item["content"].is_string()) {
    json::object part{{"type", "input_text"}, {"text", item["content"]}};
    if (item["role"] == "assistant") {
      part["type"] = "output_text";
      part["annotations"] = json::array();
    }
    item["content"] = json::array{std::move(part)};
  }
  return {std::string(item["id"].as_string()), json::serialize(item)};
}

std::vector<ListedEntry> InputItems(const StoredAnswer& response) {
  auto input = ParseJson(response.input.empty() ? "[]" : response.input);
  if (!input.ok()) return {};  // never: it was serialized
  if (input->is_string())
    input = json::array{json::object{{"role", "user"}, {"content", *std::move(input)}}};
  std::vector<ListedEntry> items;
  for (json::value& item : input->get_array()) {
    const std::string unique =
        absl::StrCat(response.id.substr(response.id.find('_') + 1), "_in", items.size());
    items.push_back(WholeItem(std::move(item.get_object()), unique));
  }
  return items;
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
    .refusal = ErrorReply,
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
  if (const StoredAnswer* found = FindResponse(front, call)) ReplyWith(front, call, found->body);
}

void AnswerDeleteResponse(ApiFront& front, ApiCall call) {
  if (!front.answers().Erase(StoredKind::kResponse, call.argument)) {
    front.Reply(call, ErrorReply(UnknownResponse(call.argument)));
    return;
  }
  ReplyWith(front, call, JsonObject([&](JsonWriter& json) {
              json.Field("id", call.argument);
              json.Field("object", "response");
              json.Field("deleted", true);
            }));
}

void AnswerCancelResponse(ApiFront& front, ApiCall call) {
  const bool was_running = front.answers().Cancel(call.argument);
  const StoredAnswer* found = FindResponse(front, call);
  if (found == nullptr) return;
  if (was_running || found->is_cancelled) {
    ReplyWith(front, call, found->body);
    return;
  }
  ApiError error = InvalidField("response_id",
                                "This response has ended; only a response that still "
                                "runs can be cancelled.");
  front.Reply(call, ErrorReply(error));
}

void AnswerInputItems(ApiFront& front, ApiCall call) {
  const StoredAnswer* found = FindResponse(front, call);
  if (found == nullptr) return;
  front.Reply(call, ListedPage(call.request.query, "desc", InputItems(*found)));
}

}  // namespace baton
