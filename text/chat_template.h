// A model's chat template: messages in, the prompt text out, byte for byte what transformers'
// apply_chat_template renders with Jinja2 (settings: trim_blocks, lstrip_blocks, loop controls, its
// tojson, raise_exception, strftime_now, reasoning copied to `thinking` and `reasoning_content`).
// Templates are the operator's files, never a client's. A template reads nothing outside its input,
// and limits on instructions and on output end a template that runs away; memory is not limited, so
// a malicious template is not contained. Immutable after load; Render is const and needs a thread
// with 1 MiB of stack or more (any thread).
//
// A special token is one only where the template itself wrote it. Its own special tokens are marked
// in its source before it is compiled (ffi/src/controls.rs), and strings of a request are left as
// they are: what is not between marks after rendering is text, through any filter, concatenation
// or border of two inputs, and filters and comparisons see the very strings of the request. What a
// template puts together from parts is text, too, but for a role between two parts (<|user|>).
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/civil_time.h"
#include "absl/time/time.h"
#include "text/prompt_text.h"

namespace baton {

struct NativeTemplate;  // the Rust object behind it

// The input, as JSON text; an empty view is an absent argument.
struct ChatTemplateInput {
  std::string_view messages;   // array of objects
  std::string_view tools;      // array, or empty: `tools` is none in the template
  std::string_view documents;  // array, or empty
  std::string_view variables;  // object of further names (chat_template_kwargs), or empty
  bool add_generation_prompt = true;
  // The prompt ends with the text of the last message, which the model goes on with; not together
  // with add_generation_prompt.
  bool continue_final_message = false;
  absl::CivilSecond now;  // local time for strftime_now, as datetime.now() in Python
  absl::Duration limit = absl::InfiniteDuration();  // the time that Render may take
};

class ChatTemplate {
 public:
  // Reads chat_template.jinja, else chat_template.json, else "chat_template" of
  // tokenizer_config.json (a string, or a list of {name, template}); bos_token, eos_token and the
  // other named tokens of tokenizer_config.json are variables of the template. NotFound: the folder
  // has no template. InvalidArgument: the template does not compile. control_tokens: the
  // Tokenizer's SpecialTokens; empty: prompts have none, only their text is of use.
  static absl::StatusOr<std::unique_ptr<ChatTemplate>> FromFolder(
      const std::string& folder, std::string_view control_tokens = {});
  // special_tokens: JSON object of names and texts, or empty. Errors as above.
  static absl::StatusOr<std::unique_ptr<ChatTemplate>> FromSource(
      std::string_view source, std::string_view special_tokens,
      std::string_view control_tokens = {});
  ~ChatTemplate();
  ChatTemplate(const ChatTemplate&) = delete;
  ChatTemplate& operator=(const ChatTemplate&) = delete;

  // Returns the prompt, whose `controls` are set. InvalidArgument: bad JSON, the template failed on
  // the conversation or refused it (the text of raise_exception is the message), or there is no
  // last message's text to go on with. ResourceExhausted: a limit was hit. DeadlineExceeded: the
  // input's time limit; loops, macro calls and writes look at it, so what may come later is one
  // expression.
  absl::StatusOr<PromptText> Render(const ChatTemplateInput& input) const;

 private:
  ChatTemplate() = default;
  NativeTemplate* default_ = nullptr;
  NativeTemplate* tool_use_ = nullptr;  // template "tool_use" of a list, used with tools
};

}  // namespace baton
