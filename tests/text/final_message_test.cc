// Prompts that end inside the last message, by the rule of transformers'
// apply_chat_template(continue_final_message=True).
#include <catch2/catch.hpp>

#include "text/chat_template.h"

namespace baton {
namespace {

constexpr const char* kPlain =
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}</s>{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}";
constexpr const char* kTrimming =
    "{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}</s>{% endfor %}";
constexpr const char* kParts =
    "{% for m in messages %}<{{ m.role }}>{% for part in m.content %}{{ part.text }}{% endfor %}"
    "</s>{% endfor %}";

absl::StatusOr<std::string> Continue(const char* source, const std::string& messages) {
  const auto chat = ChatTemplate::FromSource(source, "");
  REQUIRE(chat.ok());
  ChatTemplateInput input;
  input.messages = messages;
  input.add_generation_prompt = false;
  input.continue_final_message = true;
  const auto prompt = (*chat)->Render(input);
  if (!prompt.ok()) return prompt.status();
  return prompt->text;
}

std::string Chat(const std::string& last) {
  return R"([{"role":"user","content":"Count."},{"role":"assistant","content":")" + last + R"("}])";
}

TEST_CASE("the prompt ends with the last message's text") {
  CHECK(*Continue(kPlain, Chat("One, ")) == "<user>Count.</s><assistant>One, ");
  CHECK(*Continue(kPlain, Chat("")) == "<user>Count.</s><assistant>");
  CHECK(*Continue(kPlain, Chat("é \\\"東\\\"\\n")) == "<user>Count.</s><assistant>é \"東\"\n");
  // The first message has the same text.
  CHECK(*Continue(kPlain, Chat("Count.")) == "<user>Count.</s><assistant>Count.");
}

TEST_CASE("a template that trims messages trims the last one too") {
  CHECK(*Continue(kTrimming, Chat("  One, ")) == "<user>Count.</s><assistant>One,");
  CHECK(*Continue(kTrimming, Chat("One\\u3000\\n")) == "<user>Count.</s><assistant>One");
}

TEST_CASE("of a list of parts the last text is gone on with") {
  CHECK(*Continue(kParts, R"([{"role":"assistant","content":[{"type":"text","text":"a"},)"
                          R"({"type":"text","text":"b "}]}])") == "<assistant>ab ");
}

TEST_CASE("text that spells the mark is text") {
  CHECK(*Continue(kPlain, Chat("CONTINUE_FINAL_MESSAGE_TAG x")) ==
        "<user>Count.</s><assistant>CONTINUE_FINAL_MESSAGE_TAG x");
}

TEST_CASE("no text to go on with is an error that says so") {
  const auto error = [](const char* source, const std::string& messages) {
    const auto text = Continue(source, messages);
    REQUIRE_FALSE(text.ok());
    CHECK(absl::IsInvalidArgument(text.status()));
    return std::string(text.status().message());
  };
  const std::string none = "continue_final_message: the last message has no text to go on with";
  CHECK(error(kPlain, R"([{"role":"assistant","content":null}])") == none);
  CHECK(error(kPlain, R"([{"role":"assistant"}])") == none);
  CHECK(error(kParts, R"([{"role":"assistant","content":[]}])") == none);
  CHECK(error(kPlain, "[]").find("messages") == 0);
  CHECK(error("{{ messages[0].content }}", Chat("One")).find("does not write the text") !=
        std::string::npos);
}

}  // namespace
}  // namespace baton
