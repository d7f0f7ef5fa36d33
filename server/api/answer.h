// The answer to one request in the words of one API: tokens of its choices in, bytes for the client
// out, as one body or as server-sent events. Sans-IO: no clock, socket or thread; owned by the
// front thread, which lends it to a text thread for long texts (long_texts.h).
//
// Choices are counted over all prompts: choice prompt * ChoicesPerPrompt + sample.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "router/router_messages.h"
#include "server/api/answer_store.h"
#include "server/api/api_error.h"
#include "server/api/generated_text.h"
#include "server/api/prepared_prompt.h"
#include "server/api/reasoning_names.h"

namespace baton {

// Members that an answer has beside what was generated.
struct AnswerAbout {
  std::string id{};     // the request's, without a prefix
  int64_t created = 0;  // seconds since 1970
  std::string system_fingerprint{};
  absl::Duration text_time{};    // what parsing, template and tokenizing took
  std::string unique_id{};       // differs from that of every other answer
  std::string tenant{};          // whose the stored answer is
  AnswerStore* store = nullptr;  // for answers that are to be stored; null: none is
  ReasoningNames reasoning_names = ReasoningNames::kBoth;  // of a chat's messages
};

class Answer {
 public:
  virtual ~Answer() = default;

  // The next token of a choice. Returns the events to send (empty when not streaming).
  virtual std::string OnToken(size_t choice, const EmitToken& token) = 0;
  // After the last token of a choice that did not fail. Returns the events to send, the choice's
  // finish reason among them.
  virtual std::string OnChoiceEnd(size_t choice, const EmitEnd& end) = 0;
  // After the end of all choices: the rest of the stream, or the whole body. Any thread.
  virtual std::string OnEnd() = 0;
  // The answer has failed. Returns the end of a stream that has begun. Any thread.
  virtual std::string OnError(const ApiError& error) = 0;
  // After OnEnd or OnError, on the front thread: stores what is to be stored.
  virtual void Store() {}

  // Texts of more bytes are long: they may take over 0.5 ms to write.
  static constexpr size_t kLongText = size_t{1} << 16;
  static constexpr size_t kTokenBytes = 4;  // of a generated token's text, roughly
  // Bytes, roughly, that a token's events tell of prompts, and that OnEnd and OnError write.
  virtual size_t PromptBytes(size_t /*choice*/, const EmitToken& /*token*/) const { return 0; }
  virtual size_t EndBytes() const { return 0; }
  virtual size_t ErrorBytes() const { return 0; }
  // Any thread, while nothing but reading functions is called: writes the part of the token's
  // events that PromptBytes counts. TakePrompt, before OnToken of this token, is given it.
  virtual std::vector<std::string> WritePrompt(size_t /*choice*/,
                                               const EmitToken& /*token*/) const {
    return {};
  }
  virtual void TakePrompt(size_t /*choice*/, std::vector<std::string> /*written*/) {}

  // Later tokens are no part of the answer: it ends as it is, or its client has gone.
  virtual void Cancel() { cancelled_ = true; }
  bool cancelled() const { return cancelled_; }
  // The id by which a client may ask for the answer while it runs; empty: by none.
  virtual std::string stored_id() const { return ""; }
  virtual void Discard() {}  // is not stored any more
  // Bytes of the events so far that tell of the prompts: as many at once as the request's bounds
  // allow, not as fast as tokens come.
  size_t prompt_bytes() const { return prompt_bytes_; }

  size_t n_choices() const { return texts_.size(); }
  size_t n_per_prompt() const { return choices_per_prompt_; }
  const GeneratedText& text(size_t choice) const { return texts_[choice]; }
  int64_t n_prompt() const;     // tokens, each prompt's once
  int64_t n_tokens() const;     // generated so far, of all choices
  int64_t n_reasoning() const;  // of these, tokens of reasoning

 protected:
  Answer(const ServedModel& model, const ApiRequest& request,
         const std::vector<PreparedPrompt>& prompts);

  const size_t choices_per_prompt_;
  std::vector<GeneratedText> texts_;  // by choice
  size_t prompt_bytes_ = 0;

 private:
  bool cancelled_ = false;
};

}  // namespace baton
