// Forms of calls and of reasoning, found in templates of several families.
#include "text/tools/answer_format.h"

#include "tests/text/oracle.h"
#include "text/tokenizer.h"

namespace baton {
namespace {

AnswerFormat FormatOf(const std::string& source) {
  const auto chat =
      ChatTemplate::FromSource(source, R"({"bos_token": "<s>", "eos_token": "</s>"})");
  INFO(source << "\n" << chat.status());
  REQUIRE(chat.ok());
  return FindAnswerFormat(**chat);
}

AnswerFormat FormatOfFile(const std::string& name) {
  return FormatOf(oracle::ReadFile(oracle::Data("chat_templates/" + name + ".jinja")));
}

// A template whose assistant messages are `call` for each call, else `reply`; after the prompt
// comes `begin`.
std::string Source(const std::string& call, const std::string& reply = "{{ m.content }}",
                   const std::string& begin = "") {
  return "{% for m in messages %}<|{{ m.role }}|>{% if m.tool_calls %}{% for c in m.tool_calls %}" +
         call + "{% endfor %}{% elif m.role == 'assistant' %}" + reply +
         "{% else %}{{ m.content }}{% endif %}{% endfor %}"
         "{% if add_generation_prompt %}<|assistant|>" +
         begin + "{% endif %}";
}

}  // namespace

TEST_CASE("the form of calls is found by what a template makes of one") {
  using enum ToolFormat;
  CHECK(FormatOfFile("llama31_tools").tools == kLlama3);
  CHECK(FormatOfFile("qwen25_tools").tools == kHermes);
  CHECK(FormatOfFile("qwen3_think").tools == kHermes);
  CHECK(FormatOfFile("mistral_tools").tools == kMistralList);
  for (const char* name : {"chatml", "llama2", "llama3", "falcon", "gemma", "phi3", "deepseek",
                           "xml_tools", "typescript_tools", "command_r_macros", "errors"})
    CHECK(FormatOfFile(name).tools == kNone);
  const auto demo = ChatTemplate::FromFolder(std::string(BATON_SOURCE_DIR) + "/models/demo");
  CHECK(FindAnswerFormat(**demo) == AnswerFormat{kHermes, ReasoningFormat::kNone});

  const std::string name = "{{ c.function.name }}", json = "{{ c.function.arguments | tojson }}";
  CHECK(FormatOf(Source("[TOOL_CALLS]" + name + "[CALL_ID]{{ c.id }}[ARGS]" + json)).tools ==
        kMistralNamed);
  CHECK(FormatOf(Source("[TOOL_CALLS]" + name + "[ARGS]" + json)).tools == kMistralNamed);
  CHECK(FormatOf(Source("[TOOL_CALLS][{{ c.function | tojson }}]")).tools == kMistralList);
  CHECK(FormatOf(Source("<tool_call>{{ c.function | tojson }}</tool_call>")).tools == kHermes);
  // Other forms with the same words.
  CHECK(FormatOf(Source("<tool_call>\n<function=" + name + ">" + json + "</tool_call>")).tools ==
        kNone);
  CHECK(FormatOf(Source("<tool_call>" + name + "\n<arg_key>k</arg_key>" + json)).tools == kNone);
  CHECK(
      FormatOf(Source("<|tool_call|>[{\"name\": \"" + name + "\", \"arguments\": " + json)).tools ==
      kNone);
  CHECK(FormatOf(Source("{\"tool_name\": \"" + name + "\", \"parameters\": " + json)).tools ==
        kNone);
}

TEST_CASE("the form of reasoning is found by what a template drops or opens") {
  using enum ReasoningFormat;
  CHECK(FormatOfFile("qwen3_think").reasoning == kThinkTags);
  CHECK(FormatOfFile("deepseek").reasoning == kThinkTags);
  for (const char* name : {"chatml", "llama31_tools", "qwen25_tools", "mistral_tools", "gemma"})
    CHECK(FormatOfFile(name).reasoning == kNone);
  const std::string plain = "{{ m.content }}";
  CHECK(FormatOf(Source("", plain, "<think>\n")).reasoning == kThinkTags);
  CHECK(FormatOf("Think first: [THINK]...[/THINK]" + Source("")).reasoning == kThinkBrackets);
  CHECK(FormatOf(Source("", "{{ m.content.split('[/THINK]')[-1] }}")).reasoning == kThinkBrackets);
  CHECK(FormatOf(Source("")).reasoning == kNone);
}

TEST_CASE("a prompt may end inside reasoning") {
  using enum ReasoningFormat;
  CHECK(EndsInsideReasoning("<|assistant|><think>\n", kThinkTags));
  CHECK(EndsInsideReasoning("<think>", kThinkTags));
  CHECK(EndsInsideReasoning("[THINK] ", kThinkBrackets));
  CHECK(!EndsInsideReasoning("<think>\n\n</think>\n\n", kThinkTags));
  CHECK(!EndsInsideReasoning("<think> Hm", kThinkTags));
  CHECK(!EndsInsideReasoning("<think>", kThinkBrackets));
  CHECK(!EndsInsideReasoning("\n", kNone));
  const std::string before = "<think> of the user <|assistant|>";
  const auto goes_on = [&](const std::string& opened, const std::string& text) {
    return EndsInsideReasoning(before + opened + text, kThinkTags, text.size());
  };
  CHECK(goes_on("", "<think>"));
  CHECK(goes_on("", " <think> Hm"));
  CHECK(goes_on("<think>\n", "Hm"));
  CHECK(!goes_on("", "Hm"));
  CHECK(!goes_on("", "Hm <think> Hm"));
  CHECK(!goes_on("", "<think> Hm</think> So"));
  CHECK(!goes_on("<think>\n", "Hm</think> So"));
}

TEST_CASE("a marker's first byte stands nowhere else in it") {
  using enum ToolFormat;
  for (const ToolFormat tools : {kNone, kLlama3, kHermes, kMistralList, kMistralNamed}) {
    for (const auto reasoning : {ReasoningFormat::kThinkTags, ReasoningFormat::kThinkBrackets}) {
      const auto markers = AllMarkers({tools, reasoning});
      CHECK(markers.size() == (tools == kNone     ? 2u
                               : tools == kLlama3 ? 3u
                               : tools == kHermes ? 4u
                                                  : 5u));
      for (const std::string_view marker : markers) {
        INFO(marker);
        CHECK((marker.size() > 1 && marker.find(marker[0], 1) == marker.npos));
      }
    }
  }
}

}  // namespace baton
