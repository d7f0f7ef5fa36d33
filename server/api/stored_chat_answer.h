// The answer to a chat that is to be stored: as any other one to the client, and whole in the store
// once it is there. Front thread.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "server/api/completion_answer.h"

namespace baton {

class StoredChatAnswer : public CompletionAnswer {
 public:
  // about.store is there. form and model must outlive the answer.
  StoredChatAnswer(const CompletionForm& form, const ServedModel& model, const ApiRequest& request,
                   const std::vector<PreparedPrompt>& prompts, const AnswerAbout& about);

  std::string OnToken(size_t choice, const EmitToken& token) override;
  std::string OnChoiceEnd(size_t choice, const EmitEnd& end) override;
  std::string OnEnd() override;
  // One that failed, or whose client has gone, has no body and is not kept.
  void Store() override {
    if (!stored_.body.empty()) store_->Put(std::move(stored_));
  }
  size_t EndBytes() const override;

 private:
  AnswerStore* store_;
  StoredAnswer stored_;                      // its body comes with OnEnd
  std::unique_ptr<CompletionAnswer> whole_;  // beside a stream, the body that is stored
};

}  // namespace baton
