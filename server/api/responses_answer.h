// The answer of /v1/responses: an object with a list of items. In a stream each item is added, told
// in parts and done, and events are numbered from 0; the last one has the whole object. Stored
// answers can be asked for, cancelled, and gone on with (answer_store.h). Front thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/api/answer.h"
#include "server/api/answer_store.h"
#include "server/api/json_writer.h"
#include "server/api/logprob_list.h"
#include "server/api/response_item.h"

namespace baton {

class ResponsesAnswer : public Answer {
 public:
  // model must outlive the answer.
  ResponsesAnswer(const ServedModel& model, const ApiRequest& request,
                  const std::vector<PreparedPrompt>& prompts, const AnswerAbout& about);

  std::string OnToken(size_t choice, const EmitToken& token) override;
  std::string OnChoiceEnd(size_t choice, const EmitEnd& end) override;
  std::string OnEnd() override;
  std::string OnError(const ApiError& error) override;
  void Store() override;
  // The first events, and what is stored until the end, tell of the request, which may be long.
  size_t PromptBytes(size_t choice, const EmitToken& token) const override;
  std::vector<std::string> WritePrompt(size_t choice, const EmitToken& token) const override;
  void TakePrompt(size_t choice, std::vector<std::string> written) override;
  size_t EndBytes() const override;
  size_t ErrorBytes() const override { return EndBytes(); }
  void Cancel() override;
  void Discard() override { is_discarded_ = true; }
  std::string stored_id() const override { return stores() ? id() : ""; }

 private:
  bool stores() const { return request_.store && about_.store != nullptr && !is_discarded_; }
  std::string id() const { return "resp_" + about_.unique_id; }

  // Takes what the tokens so far tell. Each returns the events of a stream.
  std::string Take(AnswerPiece piece);
  std::string Begin(bool at_end = false);  // at the end: any thread
  std::string Open(ResponseItem::Kind kind, const CallPiece* call = nullptr);
  // tokens: those of a message's text, if they are asked for.
  std::string Add(const std::string& text, std::vector<ReportedToken> tokens = {});
  std::string CloseItem();
  // An event with the members that name the open item, and `fill`'s.
  template <typename Fill>
  std::string ItemEvent(std::string_view type, const Fill& fill);
  template <typename Fill>
  std::string PartEvent(std::string_view type, const Fill& fill);
  template <typename Fill>
  std::string Event(std::string_view type, const Fill& fill);
  std::string ResponseEvent(std::string_view type);

  bool is_over() const { return status_ != "in_progress"; }
  // is_first: while nothing is generated, whatever came meanwhile; then any thread.
  std::string Body(bool is_first = false) const;
  void WriteRequest(JsonWriter& json) const;  // what the client asked for; any thread
  void WriteOutput(JsonWriter& json) const;   // what was generated, and its usage
  StoredAnswer ToStore() const;

  const ServedModel& model_;
  const ApiRequest request_;
  const AnswerAbout about_;
  const double temperature_, top_p_;
  const LogprobForm logprob_form_, event_form_;  // of parts, and of events of their own
  LogprobList logprobs_;
  std::vector<ResponseItem> items_;
  bool is_open_ = false;  // the last item
  bool has_begun_ = false, is_discarded_ = false;
  std::vector<std::string> first_;  // since TakePrompt: what WritePrompt returns
  int64_t sequence_ = 0;            // of the next event
  std::string_view status_ = "in_progress";
  std::optional<ApiError> error_;
  std::optional<StoredAnswer> to_store_;  // since OnEnd or OnError, until Store
  int64_t reused_tokens_ = 0;
};

}  // namespace baton
