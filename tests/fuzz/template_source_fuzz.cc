// Chat templates that nobody vouches for: they compile or are refused, and a render ends by the
// time limit with a prompt or an error.
#include "tests/fuzz/file_text.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/prompt_check.h"
#include "tests/fuzz/thread_time.h"

namespace baton {
namespace {

constexpr absl::Duration kLimit = absl::Milliseconds(50);
// One expression may run beyond the limit; instrumented code is slower, too.
constexpr absl::Duration kMaxTime = absl::Seconds(2);

constexpr char kMessages[] =
    R"([{"role":"system","content":"Be brief."},{"role":"user","content":"<|im_end|> h\u00e9"},)"
    R"({"role":"assistant","content":null,"tool_calls":[{"id":"abcdefghi","type":"function",)"
    R"("function":{"name":"f","arguments":{"a":[1,2.5,"x",null,true]}}}]},)"
    R"({"role":"tool","tool_call_id":"abcdefghi","content":"<think>4</think>"},)"
    R"({"role":"user","content":[{"type":"text","text":"so"}]}])";
constexpr char kTools[] =
    R"([{"type":"function","function":{"name":"f","description":"d","parameters":)"
    R"({"type":"object","properties":{"a":{"type":"array"}},"required":["a"]}}}])";

}  // namespace

void TryInput(std::string_view source) {
  const absl::Duration begin = ThreadTime();
  const auto chat = ChatTemplate::FromSource(source, kTemplateNames, kSpecialTokens);
  if (!chat.ok()) {
    BATON_CHECK(absl::IsInvalidArgument(chat.status()) || absl::IsInternal(chat.status()));
    BATON_CHECK(ThreadTime() - begin < kMaxTime);
    return;
  }
  ChatTemplateInput input;
  input.messages = kMessages;
  input.tools = kTools;
  input.variables = R"({"enable_thinking":true})";
  input.now = absl::CivilSecond(2025, 3, 14, 9, 26, 53);
  input.limit = kLimit;
  const auto prompt = (*chat)->Render(input);
  BATON_CHECK(ThreadTime() - begin < kMaxTime);
  if (prompt.ok()) {
    CheckPrompt(*prompt);
  } else {
    // A panic of the library is caught.
    BATON_CHECK(IsRefusal(prompt.status()) || absl::IsInternal(prompt.status()));
  }
}

FuzzSeeds MakeSeeds() {
  FuzzSeeds seeds;
  for (const std::string& path : FilesOf("tests/data/chat_templates", ".jinja"))
    seeds.inputs.push_back(FileText(path));
  for (const char* source :
       {"{%- for m in messages -%}{{ loop.index0 }}{{ m['content'] | trim }}{% endfor %}",
        "{% macro f(x, y=2) %}{{ x ~ y }}{% endmacro %}{{ f(1, y=[3][-1]) }}",
        "{% set ns = namespace(n=0) %}{% for t in tools %}{% set ns.n = ns.n + 1 %}{% endfor %}"
        "{{ ns.n }}",
        "{{ '%s %05.2f' % ('a', 1.5) }}{{ 'a b'.split()[::-1] | join(', ') | upper }}",
        "{{ strftime_now('%d %b %Y') }}{{ messages | tojson(indent=2) }}",
        "{{ messages | selectattr('role', 'equalto', 'user') | list | length }}",
        "{% if tools is defined and not (messages[0].role != 'user') %}{{ bos_token }}{% endif %}",
        "{{ raise_exception('no') if messages[0]['role'] == 'x' else dict(a=1).items() | list }}",
        "{% generation %}x{% endgeneration %}{# c #}{% raw %}{{ }}{% endraw %}",
        "{{ '<|' + messages[1]['role'] + '|>' }}<|im_start|>{{ 'x' * 3 }}{{ 7 // 2 ** 2 % 5 }}"})
    seeds.inputs.emplace_back(source);
  for (const char* word : {"{%",
                           "%}",
                           "{{",
                           "}}",
                           "{#",
                           "#}",
                           "-%}",
                           "{%-",
                           "for ",
                           " in ",
                           "endfor",
                           "if ",
                           "elif ",
                           "else",
                           "endif",
                           "set ",
                           "macro ",
                           "endmacro",
                           "call ",
                           "filter ",
                           "raw",
                           "endraw",
                           "recursive",
                           "loop.",
                           "loop.cycle(",
                           "namespace(",
                           "range(",
                           "| tojson",
                           "| length",
                           "| replace(",
                           ".split(",
                           ".format(",
                           ".strip(",
                           " is ",
                           " not ",
                           " ~ ",
                           " ** ",
                           "[::",
                           "messages",
                           "raise_exception(",
                           "strftime_now(",
                           "continue",
                           "break",
                           "| batch(",
                           "| indent(",
                           "| groupby(",
                           "| sort(",
                           "center(",
                           "'%s' % ",
                           "caller()",
                           "99999999"})
    seeds.words.emplace_back(word);
  return seeds;
}

}  // namespace baton
