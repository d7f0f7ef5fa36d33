// The answers of OpenAI's /v1/completions and /v1/chat/completions, which differ in names and in
// where the text stands.
//
// Every token is one event (the stop token, which has no text, comes with the finish event), so
// that clients measure TTFT and ITL per token.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/api/answer.h"
#include "server/api/json_writer.h"

namespace baton {

// Where the two differ. The functions write members of the one choice.
struct CompletionForm {
  const char* id_prefix;
  const char* object;        // "object" of a whole answer
  const char* chunk_object;  // "object" of an event
  void (*whole)(JsonWriter& json, std::string_view text);
  void (*piece)(JsonWriter& json, std::string_view text);  // writes the text of an event
  // Write the event before the first text, and the one with the finish reason. Null: a stream
  // begins with the first text, and finishes with a piece.
  void (*begin)(JsonWriter& json);
  void (*finish)(JsonWriter& json);
};

class CompletionAnswer : public Answer {
 public:
  // Keeps the parts of the request that shape the answer. form and model must outlive the answer.
  // id: without its prefix.
  CompletionAnswer(const CompletionForm& form, const ServedModel& model, const ApiRequest& request,
                   const GenerateRequest& generate, std::string_view id, int64_t created);

  std::string OnToken(const EmitToken& token) override;
  std::string OnEnd(const EmitEnd& end, absl::Duration text_time) override;
  std::string OnError(const ApiError& error) const override;

 private:
  struct Ending {
    const EmitEnd& end;
    absl::Duration text_time;
  };

  std::string BeginOnce();
  // An event with text and the fields of a token (null: none). ending: set for the last event, else
  // null.
  std::string Event(const std::string& text, const EmitToken* token, const Ending* ending) const;
  std::string FinishEvents(const std::string& rest, const Ending& ending);
  std::string Body(const Ending& ending) const;
  // An object that begins with the fields of every answer and event; `fill` writes the rest.
  template <typename Fill>
  std::string Envelope(const Fill& fill) const;
  void WriteFinish(JsonWriter& json, const Ending* ending) const;
  // reused_tokens: prompt tokens whose KV was cached; empty: unknown yet.
  void WriteUsage(JsonWriter& json, std::optional<int32_t> reused_tokens) const;
  void WriteTimings(JsonWriter& json, const Ending* ending) const;

  const CompletionForm& form_;
  const ServedModel& model_;
  const bool stream_, include_usage_, continuous_usage_, token_ids_, timings_, digests_;
  const std::string id_;  // with its prefix
  const int64_t created_;
  std::vector<int32_t> prompt_ids_;  // when asked for
  bool has_begun_ = false;
  std::optional<EmitToken> stop_token_;  // told with the finish event
  // The whole answer so far, if it is not streamed.
  std::string whole_text_;
  std::vector<int32_t> all_ids_;
  std::vector<uint64_t> all_digests_;
};

// GenerationApi::answer of an endpoint with answers of that form.
template <const CompletionForm& kForm>
std::unique_ptr<Answer> AnswerOfForm(const ServedModel& model, const ApiRequest& request,
                                     const GenerateRequest& generate, std::string_view id,
                                     int64_t created) {
  return std::make_unique<CompletionAnswer>(kForm, model, request, generate, id, created);
}

}  // namespace baton
