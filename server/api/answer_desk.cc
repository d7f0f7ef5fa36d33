#include "server/api/answer_desk.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "server/api/conversation.h"
#include "server/api/json_document.h"

namespace baton {

void AnswerDesk::OnStarted(RunningRequest* running) {
  const std::string id = running->answer->stored_id();
  if (!id.empty()) running_.emplace(id, running);
}

void AnswerDesk::OnForgotten(const RunningRequest& running) {
  if (!running.answer) return;
  const std::string id = running.answer->stored_id();
  running_.erase(id);
  TellEnd(id);
}

void AnswerDesk::TellEnd(const std::string& id) {
  const auto node = cancels_.extract(id);
  if (node.empty()) return;
  for (const auto& ended : node.mapped()) ended();
}

std::optional<ApiError> AnswerDesk::FindConversation(const ApiRequest& request,
                                                     std::string* conversation) {
  static constexpr const char* kParam = "previous_response_id";
  const std::string& id = request.response.previous_id;
  const StoredAnswer* before = store_.Find(StoredKind::kResponse, request.tenant, id);
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

RunningRequest* AnswerDesk::FindRunning(const std::string& tenant, const std::string& id) const {
  const auto found = running_.find(id);
  const bool is_it = found != running_.end() && found->second->call.tenant() == tenant;
  return is_it ? found->second : nullptr;
}

bool AnswerDesk::Cancel(const std::string& tenant, const std::string& id,
                        std::function<void()> ended) {
  RunningRequest* running = FindRunning(tenant, id);
  if (running == nullptr) return false;
  const bool has_ended = running->writing == RunningRequest::Writing::kEnd;
  if (has_ended && !running->answer->cancelled()) return false;
  cancels_[id].push_back(std::move(ended));
  if (has_ended) return true;
  running->answer->Cancel();
  choices_->CancelAll(running, /*forget=*/false);
  return true;
}

bool AnswerDesk::Erase(StoredKind kind, const std::string& tenant, const std::string& id) {
  const bool is_stored = store_.Erase(kind, tenant, id);
  RunningRequest* running = FindRunning(tenant, id);
  if (kind == StoredKind::kResponse && running != nullptr) {
    running->answer->Discard();
    running_.erase(id);
    TellEnd(id);
    return true;
  }
  return is_stored;
}

}  // namespace baton
