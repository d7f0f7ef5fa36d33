#include "server/api/content_parts.h"

#include "absl/strings/match.h"

namespace baton {

bool TakesParts(const ChatTemplate& chat_template) {
  ChatTemplateInput input;
  input.messages = R"([{"role":"user","content":[{"type":"text","text":"probe 7351"}]}])";
  const auto rendered = chat_template.Render(input);
  // A template that takes content for a string writes the list as it is.
  return rendered.ok() && absl::StrContains(rendered->text, "probe 7351") &&
         !absl::StrContains(rendered->text, "'type'") &&
         !absl::StrContains(rendered->text, "\"type\"");
}

}  // namespace baton
