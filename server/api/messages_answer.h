// The answer of Anthropic's /v1/messages: a list of blocks, of reasoning, text and calls. In a
// stream each block is begun, told in parts and ended; a block begins when another kind of text or
// another call does. Front thread.
#pragma once

#include <cstdint>
#include <string>

#include "server/api/answer.h"
#include "server/api/json_writer.h"

namespace baton {

class MessagesAnswer : public Answer {
 public:
  // model must outlive the answer.
  MessagesAnswer(const ServedModel& model, const ApiRequest& request,
                 const std::vector<PreparedPrompt>& prompts, const AnswerAbout& about);

  std::string OnToken(size_t choice, const EmitToken& token) override;
  std::string OnChoiceEnd(size_t choice, const EmitEnd& end) override;
  std::string OnEnd() override;
  std::string OnError(const ApiError& error) override;
  size_t EndBytes() const override {
    return stream_ ? 0 : static_cast<size_t>(n_tokens()) * kTokenBytes;
  }

 private:
  enum class Block { kNone, kThinking, kText, kCall };

  // The events that tell the piece.
  std::string Tell(const AnswerPiece& piece);
  std::string Begin();
  std::string OpenBlock(Block block, const CallPiece* call = nullptr);
  std::string CloseBlock();
  std::string Delta(const char* type, const char* member, const std::string& text) const;
  std::string_view StopReason() const;
  void WriteStop(JsonWriter& json) const;
  void WriteUsage(JsonWriter& json) const;

  const ServedModel& model_;
  const AnswerAbout about_;
  const bool stream_;
  AnswerPiece told_;  // the whole answer so far, if it is not streamed
  bool has_begun_ = false, has_calls_ = false;
  Block block_ = Block::kNone;  // open in the stream
  int block_index_ = -1, call_ = -1;
  EndReason end_reason_ = EndReason::kLength;
  int64_t reused_tokens_ = 0;
};

// The shape of errors: {"type":"error","error":{"type","message"},"request_id"}.
HttpReply AnthropicErrorReply(const ApiError& error);

}  // namespace baton
