// Chat completions that were to be stored: GET, POST and DELETE /v1/chat/completions/ID, and lists.
#include <algorithm>
#include <boost/json.hpp>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/api/endpoints/endpoints.h"
#include "server/api/endpoints/listed_page.h"
#include "server/api/endpoints/stored_input.h"
#include "server/api/json_document.h"

namespace baton {
namespace {

namespace json = boost::json;

// Bytes of a body that is read here: 16 names and texts, each character as two escapes.
constexpr size_t kMaxChange = 128 << 10;

ApiError UnknownChat(const std::string& id) {
  ApiError error = HttpError(404, absl::StrCat("There is no stored chat completion with the id '",
                                               ShortenedName(id), "'."));
  error.param = "completion_id";
  return error;
}

const StoredAnswer* FindChat(ApiFront& front, const ApiCall& call) {
  const StoredAnswer* found =
      front.answers().store().Find(StoredKind::kChatCompletion, call.tenant(), call.argument);
  if (found == nullptr) front.Reply(call, ErrorReply(UnknownChat(call.argument)));
  return found;
}

std::string WithMetadata(const StoredAnswer& chat) {
  return absl::StrCat(chat.body.substr(0, chat.body.size() - 1),
                      ",\"metadata\":", chat.metadata.empty() ? "{}" : chat.metadata, "}");
}

using Pairs = std::vector<std::pair<std::string, std::string>>;

// The names and texts that the query asks for by metadata[NAME]=TEXT.
Pairs WantedMetadata(std::string_view query) {
  constexpr std::string_view kName = "metadata[";
  Pairs wanted;
  for (const auto& [key, text] : QueryPairs(query)) {
    if (key.starts_with(kName) && key.ends_with(']'))
      wanted.emplace_back(key.substr(kName.size(), key.size() - kName.size() - 1), text);
  }
  return wanted;
}

bool HasMetadata(const StoredAnswer& chat, const Pairs& wanted) {
  if (wanted.empty()) return true;
  const auto metadata = ParseJson(chat.metadata.empty() ? "{}" : chat.metadata);
  if (!metadata.ok()) return false;  // never: it was serialized
  return std::all_of(wanted.begin(), wanted.end(), [&](const auto& pair) {
    const json::value* entry = metadata->get_object().if_contains(pair.first);
    return entry != nullptr && *entry == json::string(pair.second);
  });
}

// Arguments of calls are an object to templates and a text to clients.
void TellArguments(json::object* message) {
  json::value* calls = message->if_contains("tool_calls");
  if (calls == nullptr || !calls->is_array()) return;
  for (json::value& call : calls->get_array()) {
    json::value& arguments = call.at("function").as_object()["arguments"];
    if (!arguments.is_string()) arguments = json::string(json::serialize(arguments));
  }
}

ApiFront::TextAnswer ListMessages(const ServedModel&, int64_t, std::string_view body) {
  auto stored = ReadStoredInput(body);
  if (!stored) return FromClusterStatus(absl::InternalError("stored messages"));
  json::array& messages = stored->input.get_array();
  std::vector<std::string> ids;
  for (json::value& message : messages) {
    ids.push_back(absl::StrCat(std::string(stored->id), "-", ids.size()));
    message.get_object()["id"] = ids.back();
    TellArguments(&message.get_object());
  }
  return ListedPage(stored->query, "asc", ids,
                    [&](size_t n) { return json::serialize(messages[n]); });
}

}  // namespace

void AnswerStoredChats(ApiFront& front, ApiCall call) {
  const std::string& query = call.request.query;
  const auto model = QueryValue(query, "model");
  const Pairs wanted = WantedMetadata(query);
  std::vector<const StoredAnswer*> chats;
  std::vector<std::string> ids;
  for (const StoredAnswer* chat :
       front.answers().store().All(StoredKind::kChatCompletion, call.tenant())) {
    if ((model && *model != chat->model) || !HasMetadata(*chat, wanted)) continue;
    chats.push_back(chat);
    ids.push_back(chat->id);
  }
  auto page = ListedPage(query, "asc", ids, [&](size_t n) { return WithMetadata(*chats[n]); });
  if (const auto* error = std::get_if<ApiError>(&page)) {
    front.Reply(call, ErrorReply(*error));
  } else {
    ReplyJson(front, call, std::get<std::string>(std::move(page)));
  }
}

void AnswerStoredChat(ApiFront& front, ApiCall call) {
  if (const StoredAnswer* found = FindChat(front, call))
    ReplyJson(front, call, WithMetadata(*found));
}

void AnswerChangeStoredChat(ApiFront& front, ApiCall call) {
  if (call.request.body.size() > kMaxChange) {
    front.Reply(call, ErrorReply(HttpError(413, "A change of metadata may have at most 128 KiB.",
                                           "request_too_large")));
    return;
  }
  ApiRequest request;
  if (auto problem = ParseApiRequest(Endpoint::kStoredChat, call.request.body, &request)) {
    front.Reply(call, ErrorReply(*problem));
    return;
  }
  const StoredAnswer* found = FindChat(front, call);
  if (found == nullptr) return;
  StoredAnswer changed = *found;
  changed.metadata = request.metadata;
  ReplyJson(front, call, WithMetadata(changed));
  front.answers().store().Put(std::move(changed));
}

void AnswerDeleteStoredChat(ApiFront& front, ApiCall call) {
  if (!front.answers().Erase(StoredKind::kChatCompletion, call.tenant(), call.argument)) {
    front.Reply(call, ErrorReply(UnknownChat(call.argument)));
    return;
  }
  ReplyDeleted(front, call, "chat.completion.deleted");
}

void AnswerStoredMessages(ApiFront& front, ApiCall call) {
  if (const StoredAnswer* found = FindChat(front, call))
    AnswerStoredInput(front, std::move(call), *found, ListMessages);
}

}  // namespace baton
