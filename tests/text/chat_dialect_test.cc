// Small templates and their text from Jinja2 with transformers' settings: the special cases of the
// dialect that text/ffi/src/dialect.rs, python.rs and methods.rs correct, beyond the reference of
// chat_template_test.
#include "tests/text/oracle.h"
#include "text/chat_template.h"

namespace baton {
namespace {

std::string Render(const std::string& source) {
  const auto chat = ChatTemplate::FromSource(source, "");
  if (!chat.ok()) return chat.status().ToString();
  ChatTemplateInput input;
  input.messages = R"([{"role": "user", "content": "hi"}])";
  input.variables = R"({"x": 5, "d": {"a": 1, "b": [1, 2]}, "n": null})";
  const auto text = (*chat)->Render(input);
  return text.ok() ? text->text : text.status().ToString();
}

struct Example {
  const char* source;
  const char* text;
};

void CheckAll(const std::vector<Example>& examples) {
  for (const Example& example : examples) {
    INFO(example.source);
    CHECK(Render(example.source) == example.text);
  }
}

}  // namespace

TEST_CASE("the % operator of strings") {
  CheckAll({
      {"{{ '%s' % x }}", "5"},
      {"{{ '%d-%s' % (d.b[1] + 2, 'x') ~ x }}", "4-x5"},
      {"{{ '%s' % 'a'|upper ~ 1 }}", "A1"},
      {"{{ 'a' ~ '%s' % ('%s' % 1) }}", "a1"},
      {"{{ \"it's %s\" % x }}|{{ '%05.1f' % -1.25 }}", "it's 5|-01.2"},
      {"{{ 7 % 3 }}{{ 'a' }}%", "1a%"},
      {"{{ '%s' % d.b[0] + 'z' }}{{ '%s' % (x) }}{{ '%s,%s' % (1, 2) }}", "1z51,2"},
      {"{% set s = '%d%%' % x %}{{ s }}{% if x == 'a'%}y{% endif %}", "5%"},
      {"{# '%s' % x #}{{ '}}' ~ {'a': '%}'}['a'] }}", "}}%}"},
      {"{% raw %}{{ '%s' % x }}{% endraw %}", "{{ '%s' % x }}"},
  });
}

TEST_CASE("what a for loop runs over") {
  CheckAll({
      {"{% for k, v in d.items() if v != 1 %}{{ k }}{{ v }}{{ loop.length }}{% endfor %}",
       "b[1, 2]1"},
      {"{%- for y in [1, 2] + [3] -%} {{ y }} {%- endfor -%}", "123"},
      {"{% for y in d.b[-1:] -%} {{ y }} {% endfor %}", "2 "},
      {"{% for y in 'ab' %}{{ y }},{% else %}none{% endfor %}", "a,b,"},
      {"{% for y in missing %}{{ y }}{% else %}none{% endfor %}", "none"},
      {"{% for y in (n or [7]) %}{{ y }}{% endfor %}", "7"},
      {"{% for y in [[1], [2]] recursive %}{{ loop(y) if y is not number else y }}{% endfor %}",
       "12"},
      {"{% for y in range(5) if y == 1 or y > 3 -%} {{ y }}{% endfor %}", "14"},
      {"{% for y in range(3) if (true if y else false) %}{{ y }}{{ loop.length }}{% endfor %}",
       "1222"},
      {"{% for y in range(3) if y is odd %}{{ y }}{% endfor %}{% for in_x in [x] %}{{ in_x }}{% "
       "endfor %}",
       "15"},
  });
  CHECK(Render("{% for y in n %}{% endfor %}").starts_with("INVALID_ARGUMENT"));
}

TEST_CASE("slices with a step") {
  CheckAll({
      {"{{ [][::-1] }} {{ ''[::-1] }}| {{ 'abc'[::-1] }} {{ (1, 2)[::-1] }}", "[] | cba (2, 1)"},
      {"{{ 'abcdef'[4:1:-1] }} {{ 'abcdef'[:0:-1] }} {{ 'abcdef'[-2::-2] }} {{ 'abcdef'[0:9:-1] "
       "}}|",
       "edc fedcb eca |"},
      {"{{ 'abcdef'[1:5:2] }} {{ 'abcdef'[-99:99:3] }} {{ 'abcdef'[99:-99:-3] }}", "bd ad fc"},
      {"{{ d.b[::-1][0] }} {{ d['b'][::-1] | first }} {{ d.items()|list }} {{ "
       "messages[::-1][0].role }}",
       "2 2 [('a', 1), ('b', [1, 2])] user"},
      {"{% for m in messages[::-1] %}{{ m['content'][::-1] }}{{ loop.revindex }}{% endfor %}",
       "ih1"},
      {"{{ [3, 1, 2][::-1][::2] }} {{ ([1, 2] + [3])[::-1] }} {{ '%s' % 'ab'[::-1] }}",
       "[2, 3] [3, 2, 1] ba"},
      {"{{ {'a': [1, 2]}['a'][::-1] }} {{ 'b' in ['a', 'b'][::-1] }} {{ not [][::-1] }}",
       "[2, 1] True True"},
  });
  CHECK(Render("{{ 'a'[::0] }}").starts_with("INVALID_ARGUMENT"));
  CHECK(Render("{{ n[::-1] }}").starts_with("INVALID_ARGUMENT"));
}

TEST_CASE("white space and line ends") {
  CheckAll({
      {"a\r\nb\rc", "a\nb\nc"},
      {"  {% if true %}\n  a\n  {% endif %}\nb\n", "  a\nb"},
      {"{% raw %}\n{{ x }}\n{% endraw %}\nz", "\n{{ x }}\nz"},
      {"{% raw -%}\n  {{ x }}{% endraw %}", "{{ x }}"},
      {"{{ '\\x1c a \\x1f' | trim }}|{{ '\\u2003b '.strip() }}", "a|b"},
  });
}

TEST_CASE("numbers print as Python prints them") {
  CheckAll({
      {"{{ 1e20 }} {{ 1e16 }} {{ 1e15 }} {{ 1.5e-7 }} {{ 0.0001 }} {{ -0.0 }}",
       "1e+20 1e+16 1000000000000000.0 1.5e-07 0.0001 -0.0"},
      {"{{ [1e20, 0.1 + 0.2] }} {{ [1e20] | join(',') }} {{ 1e20 | string }}",
       "[1e+20, 0.30000000000000004] 1e+20 1e+20"},
      {"{{ 7 // 2 }} {{ -7 // 2 }} {{ 7 / 2 }} {{ 2 ** 10 }}", "3 -4 3.5 1024"},
  });
}

TEST_CASE("methods of strings") {
  CheckAll({
      {"{{ \"don't stop\".title() }} {{ 'ǆ'.upper() }} {{ 'ßa'.capitalize() }}",
       "Don'T Stop Ǆ Ssa"},
      {"{{ ' a b  c '.split() }} {{ ' a b  c '.split(none, 1) }} {{ ' a b  c '.rsplit(maxsplit=1) "
       "}}",
       "['a', 'b', 'c'] ['a', 'b  c '] [' a b', 'c']"},
      {"{{ 'a,b,,c'.split(',', 2) }} {{ 'a,b,,c'.rsplit(',', 2) }} {{ ''.split() }} {{ "
       "''.split(',') }}",
       "['a', 'b', ',c'] ['a,b', '', 'c'] [] ['']"},
      {"{{ 'a\\r\\nb\\n\\nc\\u2028d\\n'.splitlines() }} {{ 'a\\nb'.splitlines(true) }}",
       "['a', 'b', '', 'c', 'd'] ['a\\n', 'b']"},
      {"{{ 'abc'.center(6) }}|{{ 'ab'.center(5) }}|{{ 'abc'.center(8, '-') }}",
       " abc  |  ab |--abc---"},
      {"{{ '-7'.zfill(4) }} {{ 'a=b=c'.rpartition('=') }} {{ 'ab'.partition('x') }}",
       "-007 ('a=b', '=', 'c') ('ab', '', '')"},
      {"{{ 'abc'.index('c') }} {{ 'äbä'.rfind('ä') }} {{ 'ab'.find('') }} {{ 'x\\ty'.expandtabs(4) "
       "}}",
       "2 2 0 x   y"},
      {"{{ 'aXbX'.replace('X', '', 1) }} {{ 'a'.endswith(('b', 'a')) }} {{ '--a-'.lstrip('-') }}",
       "abX True a-"},
  });
  CHECK(Render("{{ 'a'.split('') }}").starts_with("INVALID_ARGUMENT"));
  CHECK(Render("{{ ','.join(['a', 1]) }}").starts_with("INVALID_ARGUMENT"));
  CHECK(Render("{{ 'a'.index('b') }}").starts_with("INVALID_ARGUMENT"));
}

TEST_CASE("filters with names for their arguments") {
  CheckAll({
      {"{{ 'a\\nb\\n\\nc' | indent(2, first=true) }}", "  a\n  b\n\n  c"},
      {"{{ 'a\\n\\nc' | indent(width=1, blank=true) }}", "a\n \n c"},
      {"{{ n | default('d', boolean=true) }} {{ n | default('d') }} {{ missing | d }}|",
       "d None |"},
      {"{{ '  a b  ' | trim }}|{{ 'xxaxx' | trim('x') }}|{{ 'xa' | trim(chars='x') }}", "a b|a|a"},
      {"{{ 'hello brave new world' | truncate(12) }} {{ 'hello brave new world' | truncate(12, "
       "true, '~', leeway=0) }}",
       "hello... hello brave~"},
      {"{{ [d, d] | join(', ', attribute='a') }} {{ d | tojson(indent=1) }}",
       "1, 1 {\n \"a\": 1,\n \"b\": [\n  1,\n  2\n ]\n}"},
      {"{{ d | tojson(sort_keys=true, separators=(',', ':')) }} {{ 'é<' | "
       "tojson(ensure_ascii=true) }}",
       "{\"a\":1,\"b\":[1,2]} \"\\u00e9<\""},
  });
  CHECK(Render("{{ 'a' | indent(wide=3) }}").starts_with("INVALID_ARGUMENT"));
  CHECK(Render("{{ missing | tojson }}").starts_with("INVALID_ARGUMENT"));
}

}  // namespace baton
