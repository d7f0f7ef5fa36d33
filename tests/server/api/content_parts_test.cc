// Content that is a list of text parts: templates that iterate over it get the list, others a text.
#include "server/api/content_parts.h"

#include <catch2/catch.hpp>

#include "server/api/prepared_prompt.h"

namespace baton {
namespace {

constexpr const char* kPlain = "{% for m in messages %}[{{ m.role }}]{{ m.content }}\n{% endfor %}";
constexpr const char* kIterates =
    "{% for m in messages %}[{{ m.role }}]{% if m.content is string %}{{ m.content }}{% else %}"
    "{% for part in m.content %}<{{ part.text }}>{% endfor %}{% endif %}\n{% endfor %}";

std::unique_ptr<ChatTemplate> Template(const char* source) {
  auto made = ChatTemplate::FromSource(source, "");
  REQUIRE(made.ok());
  return *std::move(made);
}

TEST_CASE("a template that iterates over parts is told from one that takes a string") {
  CHECK(TakesParts(*Template(kIterates)));
  CHECK_FALSE(TakesParts(*Template(kPlain)));
  CHECK_FALSE(TakesParts(*Template("{% for m in messages %}{{ m.content | tojson }}{% endfor %}")));
  CHECK_FALSE(TakesParts(*Template("{{ raise_exception('no') }}")));
  CHECK_FALSE(TakesParts(*Template("always the same")));
}

TEST_CASE("parts reach templates as they take them: as a list, or joined by line ends") {
  ApiRequest request;
  REQUIRE_FALSE(ParseApiRequest(Endpoint::kChat,
                                R"({"messages":[{"role":"system","content":"s"},
      {"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}]})",
                                &request));
  ServedModel model;
  auto tokenizer = Tokenizer::FromFolder(BATON_SOURCE_DIR "/models/demo");
  REQUIRE(tokenizer.ok());
  model.tokenizer = *std::move(tokenizer);
  const auto rendered = [&](const char* source) {
    model.chat_template = Template(source);
    model.template_takes_parts = TakesParts(*model.chat_template);
    PromptText prompt;
    REQUIRE_FALSE(RenderMessages(model, request, {}, &prompt));
    return prompt.text;
  };
  CHECK(rendered(kPlain) == "[system]s\n[user]a\nb\n");
  CHECK(rendered(kIterates) == "[system]s[user]<a><b>");
}

}  // namespace
}  // namespace baton
