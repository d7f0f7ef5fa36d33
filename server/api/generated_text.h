// The text of one generation: tokens in, whole UTF-8 out, up to a stop token or a stop string, in a
// chat split into content, reasoning and calls of tools. Text that may begin a stop string or a
// call is held back. The text of the first min_tokens tokens is not searched for stop strings, so
// that these tokens are generated. A plain object of the front thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "router/router_messages.h"
#include "server/api/answer_piece.h"
#include "server/api/api_request.h"
#include "server/api/prepared_prompt.h"
#include "server/api/served_model.h"
#include "text/detokenizer.h"
#include "text/stop_matcher.h"
#include "text/tools/answer_splitter.h"

namespace baton {

// Counts the characters of valid UTF-8.
int64_t Characters(std::string_view text);

class GeneratedText {
 public:
  // `model` must outlive the text. `request` has passed ParseApiRequest.
  GeneratedText(const ServedModel& model, const ApiRequest& request, const PreparedPrompt& prompt);

  // Adds the next token and returns what is certain now; a stop token has no text. Not called after
  // the end.
  AnswerPiece Push(int32_t token);
  // Called after the last token. Returns what was held back.
  AnswerPiece Finish();

  // True once a stop token or a stop string was found: later tokens are no part of the answer.
  bool ended() const { return stopped() || stop_token_; }
  bool stopped() const { return stop_index_ >= 0; }  // by a stop string
  // The cause once ended(): the stop string (null: none), the stop token (empty: none).
  const std::string* stop_string() const;
  std::optional<int32_t> stop_token() const { return stop_token_; }
  // "stop", "length", "abort", "error", or "tool_calls" if the model chose to call.
  std::string_view FinishReason(EndReason reason) const;

  int64_t n_prompt() const { return n_prompt_; }  // tokens
  int64_t n_tokens() const { return n_tokens_; }  // generated, a stop token included

  // The bytes that the last token added to the text, and the characters before them.
  std::string_view token_bytes() const;
  int64_t token_offset() const { return token_offset_; }
  // Counts the first tokens that have left with all their text. Tokens that a stop string cut,
  // wholly or in part, and the stop token never do.
  size_t n_told() const { return n_told_; }
  int64_t n_reasoning() const { return n_reasoning_; }  // of these, tokens that end in reasoning

 private:
  // End of a token that has not left.
  struct Mark {
    size_t bytes_end;                // in the bytes of all tokens
    std::optional<size_t> text_end;  // in the text; empty: inside an unfinished character
  };

  std::string Take(std::string_view piece);
  AnswerPiece Split(std::string text);
  void CountTold();

  const std::vector<std::string> stops_;
  const std::vector<int32_t> stop_tokens_;
  const bool include_stop_;  // the stop string is part of the text
  const int64_t n_prompt_, min_tokens_;
  std::optional<Detokenizer> detokenizer_;  // nothing: the model has no tokenizer, so no text
  StopMatcher matcher_;
  std::optional<AnswerSplitter> splitter_;  // nothing: all is content
  const bool call_is_chosen_;               // not by name: calls are told as the finish reason
  int64_t n_tokens_ = 0;
  int64_t token_offset_ = 0;
  // Bytes of all tokens; bytes and characters of the text made of them; bytes that have passed the
  // stop strings.
  size_t n_bytes_ = 0, n_text_ = 0, n_passed_ = 0;
  int64_t n_characters_ = 0;
  std::deque<Mark> marks_;
  size_t n_told_ = 0;
  int64_t n_reasoning_ = 0;
  int stop_index_ = -1;
  std::optional<int32_t> stop_token_;
};

}  // namespace baton
