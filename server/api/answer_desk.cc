#include "server/api/answer_desk.h"

#include "absl/strings/str_cat.h"
#include "server/api/conversation.h"
#include "server/api/json_document.h"

namespace baton {

void AnswerDesk::OnStarted(RunningRequest* running) {
  const std::string id = running->answer->stored_id();
  if (!id.empty()) running_.emplace(id, running);
}

void AnswerDesk::OnForgotten(const RunningRequest& running) {
  if (running.answer) running_.erase(running.answer->stored_id());
}

std::optional<ApiError> AnswerDesk::FindConversation(const ApiRequest& request,
                                                     std::string* conversation) {
  static constexpr const char* kParam = "previous_response_id";
  const std::string& id = request.response.previous_id;
  const StoredAnswer* before = store_.Find(StoredKind::kResponse, id);
  if (before == nullptr) {
    ApiError error = InvalidField(
        kParam, absl::StrCat("Previous response with id '", ShortenedName(id), "' not found."),
        "previous_response_not_found");
    error.status = 404;
    return error;
  }
  if (before->conversation.empty()) {
    return InvalidField(
        kParam, absl::StrCat("The response '", id, "' is still in progress; wait for its end."));
  }
  *conversation = JoinedMessages(before->conversation, request.response.conversation);
  return std::nullopt;
}

bool AnswerDesk::Cancel(const std::string& id) {
  const auto found = running_.find(id);
  if (found == running_.end()) return false;
  found->second->answer->Cancel();
  choices_->CancelAll(found->second, /*forget=*/false);
  return true;
}

bool AnswerDesk::Erase(StoredKind kind, const std::string& id) {
  const bool is_stored = store_.Erase(kind, id);
  const auto found = running_.find(id);
  if (kind == StoredKind::kResponse && found != running_.end()) {
    found->second->answer->Discard();
    running_.erase(found);
    return true;
  }
  return is_stored;
}

}  // namespace baton
