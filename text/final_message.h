// The last message of a conversation that the model is to go on with: a mark is appended to its
// text before a template renders the conversation, and the prompt is cut there, as in transformers'
// apply_chat_template(continue_final_message=True). Owned by one thread.
//
//   ASSIGN_OR_RETURN(const FinalMessage last, FinalMessage::MarkIn(messages));
//   ... text = template of last.messages() ...
//   return last.CutAfter(text);
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace baton {

class FinalMessage {
 public:
  // messages: a JSON array of objects. The text is the last one's content, or of a list of parts
  // the last one with text. InvalidArgument: there is no such text.
  static absl::StatusOr<FinalMessage> MarkIn(std::string_view messages);

  // The messages with the mark, as JSON.
  const std::string& messages() const { return messages_; }
  // Returns the prompt up to the end of the message's text; without the white space there if the
  // template trims messages. InvalidArgument: the template did not write the text.
  absl::StatusOr<std::string> CutAfter(std::string_view prompt) const;
  // Bytes of the message's text at the end of what CutAfter returned.
  size_t LengthIn(std::string_view cut) const;

 private:
  std::string messages_;
  std::string text_;  // of the message, without the mark
};

}  // namespace baton
