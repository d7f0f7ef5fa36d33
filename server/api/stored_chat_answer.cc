#include "server/api/stored_chat_answer.h"

namespace baton {

StoredChatAnswer::StoredChatAnswer(const CompletionForm& form, const ServedModel& model,
                                   const ApiRequest& request,
                                   const std::vector<PreparedPrompt>& prompts,
                                   const AnswerAbout& about)
    : CompletionAnswer(form, model, request, prompts, about),
      store_(about.store),
      stored_({.kind = StoredKind::kChatCompletion,
               .id = form.id_prefix + about.id,
               .tenant = about.tenant,
               .input =
                   request.messages_in_parts.empty() ? request.messages : request.messages_in_parts,
               .model = model.name,
               .metadata = request.metadata,
               .created = about.created}) {
  if (!request.stream) return;
  ApiRequest whole = request;
  whole.stream = false;
  whole_ = std::make_unique<CompletionAnswer>(form, model, whole, prompts, about);
}

std::string StoredChatAnswer::OnToken(size_t choice, const EmitToken& token) {
  if (whole_) whole_->OnToken(choice, token);
  return CompletionAnswer::OnToken(choice, token);
}

std::string StoredChatAnswer::OnChoiceEnd(size_t choice, const EmitEnd& end) {
  if (whole_) whole_->OnChoiceEnd(choice, end);
  return CompletionAnswer::OnChoiceEnd(choice, end);
}

std::string StoredChatAnswer::OnEnd() {
  std::string rest = CompletionAnswer::OnEnd();
  stored_.body = whole_ ? whole_->OnEnd() : rest;
  return rest;
}

size_t StoredChatAnswer::EndBytes() const {
  return whole_ ? whole_->EndBytes() : CompletionAnswer::EndBytes();
}

}  // namespace baton
