// The answers of OpenAI's /v1/completions and /v1/chat/completions, which differ in names and in
// where the text stands.
//
// Every token is one event (the stop token, which has no text, comes with the finish event), so
// that clients measure TTFT and ITL per token; with stream_interval n the first token is one, and
// then every n-th has the tokens since the last event. Each choice has one finish event.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/api/answer.h"
#include "server/api/json_writer.h"
#include "server/api/logprob_list.h"
#include "server/api/told_prompt.h"

namespace baton {

// Where the two differ. The functions write members of a choice.
struct CompletionForm {
  const char* id_prefix;
  const char* object;        // "object" of a whole answer
  const char* chunk_object;  // "object" of an event
  // Token ids and log-probabilities of the prompt, when asked for: beside the choices (a chat has
  // one prompt); false: in each choice. In the first event.
  bool prompt_beside_choices;
  void (*whole)(JsonWriter& json, const AnswerPiece& answer);
  void (*piece)(JsonWriter& json, const AnswerPiece& piece);  // of an event
  // Write the event before the first text, and the one with the finish reason. Null: a stream
  // begins with the first text (with echo: the prompt's), and finishes with a piece.
  void (*begin)(JsonWriter& json);
  void (*finish)(JsonWriter& json);
  void (*logprobs)(JsonWriter& json, const LogprobForm& form,
                   const std::vector<ReportedToken>& tokens);
};

class CompletionAnswer : public Answer {
 public:
  // Keeps the parts of the request that shape the answer. form and model must outlive the answer.
  CompletionAnswer(const CompletionForm& form, const ServedModel& model, const ApiRequest& request,
                   const std::vector<PreparedPrompt>& prompts, const AnswerAbout& about);

  std::string OnToken(size_t choice, const EmitToken& token) override;
  std::string OnChoiceEnd(size_t choice, const EmitEnd& end) override;
  std::string OnEnd() override;
  std::string OnError(const ApiError& error) override;
  size_t PromptBytes(size_t choice, const EmitToken& token) const override;
  size_t EndBytes() const override;
  // A text for each choice of the prompt that WritePrompt is for, its first event.
  std::vector<std::string> WritePrompt(size_t choice, const EmitToken& token) const override;
  void TakePrompt(size_t choice, std::vector<std::string> written) override;

 private:
  // Holds what a choice has to tell and has not told yet: everything, if the answer is not
  // streamed.
  struct Choice {
    AnswerPiece piece{};
    std::vector<int32_t> ids{};
    std::vector<uint64_t> digests{};
    LogprobList logprobs{};
    std::vector<PromptLogprob> of_prompt{};  // in each prompt's first choice, for all of them
    std::optional<EmitToken> stop_token{};   // told with the finish event
    int64_t n_waiting = 0;                   // tokens since the last event
    bool has_token = false, has_begun = false, told_prompt = false;
    double logprob_sum = 0;           // of all tokens
    std::string written_beginning{};  // by WritePrompt
    std::optional<EmitEnd> end{};
  };

  size_t FirstOf(size_t i) const { return i - i % choices_per_prompt_; }
  // Log-probabilities of the prompt come with the first token of its first choice; the others wait
  // for it, or for the end of that choice, if it has no token.
  bool AwaitsPrompt(size_t i) const {
    const Choice& first = choices_[FirstOf(i)];
    return scores_prompt_ && !first.has_token && !first.end;
  }
  std::string EventsOfWaiting(size_t first);
  const ToldPrompt& PromptOf(size_t i) const { return prompts_[i / choices_per_prompt_]; }
  void Keep(Choice* choice, const EmitToken& token) const;
  // Takes a token. False: nothing is to be told now.
  bool TakeToken(size_t i, const EmitToken& token);
  void Take(size_t i, AnswerPiece piece);
  // Events with all that the choice has to tell, its first one before, if that is due. last: up to
  // the finish reason.
  std::string Events(size_t i, bool last);
  std::string BeginOnce(size_t i);
  // The event before a choice's first token. Where lists of the prompt are told, there is one, so
  // that they can be written apart from the token.
  std::string Beginning(size_t i, bool tells_prompt,
                        const std::vector<PromptLogprob>& of_prompt) const;
  // True once: the first event of the choice tells of the prompt.
  bool TakePromptTurn(size_t i);
  // An event with all that the choice has to tell. last: with the finish reason.
  std::string Event(size_t i, bool last);
  std::string Body();
  // The choices of a whole answer, in its order.
  std::vector<size_t> Chosen() const;
  // An object that begins with the fields of every answer and event; `fill` writes the rest.
  template <typename Fill>
  std::string Envelope(const Fill& fill) const;
  // Members of a choice after its text.
  void WriteRest(JsonWriter& json, size_t i, bool last);
  void WriteFinish(JsonWriter& json, size_t i, bool last) const;
  void WriteUsage(JsonWriter& json, std::optional<int64_t> reused_tokens) const;
  void WriteEventUsage(JsonWriter& json) const;
  int64_t ReusedTokens() const;
  void WriteTimings(JsonWriter& json, const EmitEnd& end, int64_t n_prompt, int64_t n_tokens) const;

  const CompletionForm& form_;
  const ServedModel& model_;
  const AnswerAbout about_;
  const size_t n_;  // choices of the answer for each prompt: the best of choices_per_prompt_
  const bool stream_, include_usage_, continuous_usage_, token_ids_, timings_, digests_, logprobs_;
  const bool include_reasoning_;
  const bool prompt_only_, scores_prompt_;
  const int64_t tokens_per_event_;
  const std::optional<int64_t> top_logprobs_;  // as in the request
  // Choices, from a prompt's first on, whose lists of the prompt the first's token brings.
  const size_t n_beginning_;
  const LogprobForm logprob_form_;
  std::vector<ToldPrompt> prompts_;
  std::vector<Choice> choices_;
  bool told_prompt_ = false;  // beside choices
  size_t last_ended_ = 0;
};

// GenerationApi::answer of an endpoint with answers of that form.
template <const CompletionForm& kForm>
std::unique_ptr<Answer> AnswerOfForm(const ServedModel& model, const ApiRequest& request,
                                     const std::vector<PreparedPrompt>& prompts,
                                     const AnswerAbout& about) {
  return std::make_unique<CompletionAnswer>(kForm, model, request, prompts, about);
}

}  // namespace baton
