// The answer of Generate: frames (frames.h) of serialized GenerateResponses. A plain object of the
// front thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "server/api/answer.h"
#include "server/api/logprob_list.h"

namespace baton::v1 {
class ChoiceDelta;
class GenerateResponse;
class TokenLogprob;
}  // namespace baton::v1

namespace baton {

class RpcAnswer : public Answer {
 public:
  // Keeps the parts of the request that shape the answer. The model must outlive the answer.
  RpcAnswer(const ServedModel& model, const ApiRequest& request,
            const std::vector<PreparedPrompt>& prompts, const AnswerAbout& about);

  std::string OnToken(size_t choice, const EmitToken& token) override;
  std::string OnChoiceEnd(size_t choice, const EmitEnd& end) override;
  std::string OnEnd() override;
  std::string OnError(const ApiError&) override { return ""; }  // the call's status tells it
  size_t PromptBytes(size_t choice, const EmitToken& token) const override;
  std::vector<std::string> WritePrompt(size_t choice, const EmitToken& token) const override;
  void TakePrompt(size_t choice, std::vector<std::string> written) override;

 private:
  struct Choice {
    LogprobList logprobs{};
    std::optional<EmitToken> stop_token{};  // told with the finish reason
    int32_t reused_tokens = 0;              // of the prompt
  };

  // Adds the message to the frames, the first one with what is told once.
  void Tell(v1::GenerateResponse* response, std::string* frames);
  void Add(bool is_first, v1::GenerateResponse* response, std::string* frames) const;
  std::string PromptFrames(const std::vector<PromptLogprob>& told) const;
  void Keep(const EmitToken& token, v1::ChoiceDelta* delta) const;
  // Adds the piece, and log-probabilities of tokens whose text has left.
  void TellPiece(size_t choice, AnswerPiece piece, v1::ChoiceDelta* delta);
  void TellEnd(size_t choice, EndReason reason, v1::ChoiceDelta* delta) const;
  void TellToken(const TokenLogprob& token, std::string_view bytes, v1::TokenLogprob* told) const;

  const ServedModel& model_;
  const AnswerAbout about_;
  const bool token_ids_, digests_, logprobs_, include_reasoning_, prompt_only_;
  const size_t prompt_top_;  // most probable tokens beside each of the prompt
  const LogprobForm form_;
  std::vector<int32_t> prompt_ids_{};            // where the answer tells of them
  std::optional<std::string> written_prompt_{};  // its frames, before their token
  std::vector<Choice> choices_;
  bool has_begun_ = false;
};

}  // namespace baton
