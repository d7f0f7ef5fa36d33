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

TEST_CASE("documents that a template has no place for are refused, not dropped") {
  ApiRequest request;
  REQUIRE_FALSE(ParseApiRequest(Endpoint::kChat,
                                R"({"messages":[{"role":"user","content":"a"}],
      "documents":[{"title":"t","text":"x"}]})",
                                &request));
  ServedModel model;
  model.name = "demo";
  auto tokenizer = Tokenizer::FromFolder(BATON_SOURCE_DIR "/models/demo");
  REQUIRE(tokenizer.ok());
  model.tokenizer = *std::move(tokenizer);
  model.chat_template = Template(kPlain);
  PromptText prompt;
  const auto error = RenderMessages(model, request, {}, &prompt);
  REQUIRE(error);
  CHECK(error->param == "documents");
  CHECK(error->code == "unsupported_parameter");
  CHECK_THAT(error->message, Catch::Contains("has no place for documents"));
  model.chat_template = Template("{% for d in documents %}<{{ d.text }}>{% endfor %}");
  REQUIRE_FALSE(RenderMessages(model, request, {}, &prompt));
  CHECK(prompt.text == "<x>");
}

}  // namespace
}  // namespace baton
