// Broken or hostile files and inputs give a Status in the text room, never a crash or a hang.
#include <pthread.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <random>

#include "absl/strings/str_cat.h"
#include "tests/text/oracle.h"
#include "text/chat_template.h"
#include "text/detokenizer.h"
#include "text/tokenizer.h"

namespace baton {
namespace {

using absl::StatusCode;

// Beyond every limit of time that is set here, on a loaded machine and under a sanitizer too.
constexpr std::chrono::seconds kSoon(5);

std::string TokenizerJson() {
  return oracle::ReadFile(oracle::Data("tokenizers/llama3-small/tokenizer.json"));
}

StatusCode CodeOf(const std::string& json) { return Tokenizer::FromJson(json).status().code(); }

// Returns the result of rendering `source` on one user message.
absl::StatusOr<std::string> Render(const std::string& source, ChatTemplateInput input = {}) {
  const auto chat = ChatTemplate::FromSource(source, R"({"bos_token": "<s>"})");
  if (!chat.ok()) return chat.status();
  if (input.messages.empty()) input.messages = R"([{"role": "user", "content": "hi"}])";
  input.now = absl::CivilSecond(2025, 3, 14);
  const auto prompt = (*chat)->Render(input);
  if (!prompt.ok()) return prompt.status();
  return prompt->text;
}

// Runs `work` on a thread of `stack` bytes; a stack overflow ends the test program.
template <typename Work>
void OnSmallStack(size_t stack, Work work) {
  pthread_attr_t attributes;
  REQUIRE(pthread_attr_init(&attributes) == 0);
  REQUIRE(pthread_attr_setstacksize(&attributes, stack) == 0);
  pthread_t thread;
  const auto run = [](void* argument) -> void* {
    (*static_cast<Work*>(argument))();
    return nullptr;
  };
  REQUIRE(pthread_create(&thread, &attributes, run, &work) == 0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
}

}  // namespace

TEST_CASE("a truncated tokenizer.json is an error at every length") {
  const std::string json = TokenizerJson();
  for (size_t size = 0; size < json.size() - 1; size += 1 + size / 50)
    CHECK(CodeOf(json.substr(0, size)) == StatusCode::kInvalidArgument);
  CHECK(CodeOf(json) == StatusCode::kOk);
}

TEST_CASE("a tokenizer.json with flipped bytes loads or fails, and what loads works") {
  const std::string json = TokenizerJson();
  std::mt19937 random(5);
  size_t loaded = 0, failed = 0;
  for (int round = 0; round < 600; ++round) {
    std::string broken = json;
    for (size_t n = 1 + random() % 2; n > 0; --n)
      broken[random() % broken.size()] = static_cast<char>('0' + random() % 75);
    const auto tokenizer = Tokenizer::FromJson(broken);
    tokenizer.ok() ? ++loaded : ++failed;
    if (!tokenizer.ok()) continue;
    const auto ids = (*tokenizer)->Encode("Hello <|eot_id|> 123 \n wörld", true);
    if (ids.ok()) CHECK((*tokenizer)->Decode(*ids, false).ok());
  }
  CHECK(loaded > 3);
  CHECK(failed > 10);
}

TEST_CASE("other broken tokenizer files say what is wrong") {
  const auto message = [](const std::string& json) {
    return std::string(Tokenizer::FromJson(json).status().message());
  };
  CHECK(CodeOf("") == StatusCode::kInvalidArgument);
  CHECK(CodeOf("{}") == StatusCode::kInvalidArgument);
  CHECK(CodeOf("[1, 2") == StatusCode::kInvalidArgument);
  CHECK(CodeOf(std::string(100000, '[')) == StatusCode::kInvalidArgument);
  CHECK(message("{\"a\": \"\xFF\"}") == "not valid UTF-8 at byte 7");

  std::string json = TokenizerJson();
  const size_t decoder = json.rfind("\"decoder\"");
  const std::string byte_level = "\"ByteLevel\"";
  std::string word_piece = json;
  word_piece.replace(word_piece.find(byte_level, decoder), byte_level.size(),
                     R"("WordPiece", "prefix": "##", "cleanup": true)");
  CHECK_THAT(message(word_piece),
             Catch::Contains("decoder WordPiece") && Catch::Contains("streams"));

  // An id that would need a table of billions of tokens.
  std::string huge_id = json;
  const size_t vocabulary = huge_id.find("\"vocab\"");
  const size_t colon = huge_id.find(':', vocabulary + 8);
  huge_id.replace(colon + 1, huge_id.find_first_of(",}", colon) - colon - 1, " 4294967295");
  CHECK(CodeOf(huge_id) == StatusCode::kInvalidArgument);

  // An id for every text that no token has.
  std::string no_token = json;
  const std::string begin_id = "\"ids\":[988]";
  REQUIRE(no_token.find(begin_id) != std::string::npos);
  no_token.replace(no_token.find(begin_id), begin_id.size(), "\"ids\":[9988]");
  CHECK(message(no_token) == "the post-processor adds the id 9988, which has no token");

  CHECK(Tokenizer::FromFolder("/nonexistent").status().code() == StatusCode::kNotFound);
  CHECK_THAT(std::string(Tokenizer::FromFolder("/nonexistent").status().message()),
             Catch::Contains("/nonexistent/tokenizer.json"));
  CHECK(Tokenizer::FromFile("/proc").status().code() == StatusCode::kInvalidArgument);
}

TEST_CASE("truncation and padding of a tokenizer.json are ignored") {
  std::string json = TokenizerJson();
  const auto replace = [&json](const std::string& from, const std::string& to) {
    REQUIRE(json.find(from) != std::string::npos);
    json.replace(json.find(from), from.size(), to);
  };
  replace(
      "\"truncation\":null",
      R"("truncation": {"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0})");
  replace(
      "\"padding\":null",
      R"("padding": {"strategy": {"Fixed": 64}, "direction": "Right", "pad_to_multiple_of": null,
          "pad_id": 0, "pad_type_id": 0, "pad_token": "!"})");
  const auto cut = Tokenizer::FromJson(json);
  const auto whole = Tokenizer::FromJson(TokenizerJson());
  REQUIRE(cut.ok());
  const std::string text = "a text of more tokens than four";
  CHECK((*cut)->Encode(text, true).value() == (*whole)->Encode(text, true).value());
}

TEST_CASE("texts that are hard to tokenize") {
  const auto tokenizer = Tokenizer::FromFolder(oracle::Data("tokenizers/llama3")).value();
  for (const std::string& bad : {std::string("\xFF"), std::string("ab\xC3"),
                                 std::string("\xED\xA0\x80"), std::string("\xF4\x90\x80\x80")}) {
    const auto ids = tokenizer->Encode(bad, true);
    CHECK(ids.status().code() == StatusCode::kInvalidArgument);
    CHECK_THAT(std::string(ids.status().message()), Catch::Contains("UTF-8"));
  }
  const std::string nul("a\0b", 3);
  CHECK(tokenizer->Decode(tokenizer->Encode(nul, false).value(), false).value() == nul);

  // Runs of one kind: no step may be quadratic, and the split must be the same after a long run as
  // after a short one (a regex engine with a limit would put the rest into one piece).
  const std::string tail = "\nthe end of 12345 words isn't here!";
  for (const std::string& unit :
       {std::string(" "), std::string("a"), std::string("\n"), std::string("7"), std::string("!"),
        std::string("\t "), std::string("\xCC\x81"), std::string("\xF0\x9F\x98\x80"),
        std::string("<|"), std::string("\xE2\x80\xA8")}) {
    std::string run, shorter;
    while (run.size() < 300'000) run += unit;
    while (shorter.size() < 3000) shorter += unit;
    const auto begin = std::chrono::steady_clock::now();
    const std::vector<int32_t> ids = tokenizer->Encode(run + "x" + tail, false).value();
    const auto took = std::chrono::steady_clock::now() - begin;
    INFO("unit " << absl::StrCat(absl::Hex(static_cast<uint8_t>(unit[0]))) << " took "
                 << std::chrono::duration<double>(took).count() << " s");
    CHECK(took < std::chrono::seconds(30));
    CHECK(tokenizer->Decode(ids, false).value() == run + "x" + tail);
    const std::vector<int32_t> few = tokenizer->Encode(shorter + "x" + tail, false).value();
    const std::vector<int32_t> expected = tokenizer->Encode(tail, false).value();
    REQUIRE(ids.size() > expected.size());
    CHECK(std::equal(expected.rbegin(), expected.rend(), ids.rbegin()));
    CHECK(std::equal(expected.rbegin(), expected.rend(), few.rbegin()));
  }
}

TEST_CASE("templates that run away end at a limit") {
  const auto code = [](const std::string& source) { return Render(source).status().code(); };
  const std::string loops =
      "{% for a in range(100000) %}{% for b in range(100000) %}{% set c = b %}{% endfor %}{% "
      "endfor %}";
  CHECK(code(loops) == StatusCode::kResourceExhausted);
  CHECK(code("{% for i in range(90000) %}{{ 'x' * 9000 }}{% endfor %}") ==
        StatusCode::kResourceExhausted);
  CHECK(code("{{ 'x' * 99000000 }}") == StatusCode::kResourceExhausted);
  CHECK(code("{{ 'x' * 2000000000 }}") == StatusCode::kInvalidArgument);
  CHECK(code("{% for i in range(2000000) %}{% endfor %}") == StatusCode::kInvalidArgument);
  CHECK(code("{{ 'x'.center(999999999999) | length }}") == StatusCode::kOk);
}

TEST_CASE("templates end at the time limit") {
  ChatTemplateInput input;
  input.limit = absl::Milliseconds(30);
  for (const char* source :
       {"{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
        "{% for a in range(99999) -%}\n {% for b in range(99999) +%} \n{% endfor %}{% endfor %}",
        "{% macro m(n) %}{% if n %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(60) "
        "}}",
        "{% for a in range(99999) %}{{ ('x' * 900000) | length }}{% endfor %}",
        "{% for a in range(99999) if ('x' * 900000) | length < a or false %}{% endfor %}",
        "{% for a in range(99999) if ('x' * 900000) | length == -1 recursive -%} {% endfor %}"}) {
    const auto begin = std::chrono::steady_clock::now();
    const auto result = Render(source, input);
    INFO(source << ": " << result.status().ToString());
    CHECK(result.status().code() == StatusCode::kDeadlineExceeded);
    CHECK(std::chrono::steady_clock::now() - begin < kSoon);
  }
  input.limit = absl::Seconds(600);
  CHECK(Render("{% macro m(n) -%}\n {{ n }}\n{% endmacro %}a{% for x in [1, 2] %}\n {{ x }}\n"
               "{% else %}b{% endfor -%} \n{% for x in [3] -%}\n {{ m(x) }}{% endfor +%} c",
               input)
            .value() == "a 1\n 2\n3\n c");
}

TEST_CASE("tokenizing ends at the time limit, and gives the same tokens before") {
  const auto tokenizer = Tokenizer::FromFolder(oracle::Data("tokenizers/llama3")).value();
  PromptText prompt;
  for (int i = 0; i < 20'000; ++i) absl::StrAppend(&prompt.text, "<|eot_id|>It is ", i, " ducks.");
  const auto limited = [&](absl::Duration limit) {
    return tokenizer->Encode(prompt, true, nullptr, limit);
  };
  const auto whole = limited(absl::InfiniteDuration());
  REQUIRE(whole.ok());
  CHECK(limited(absl::Hours(1)).value() == *whole);
  for (const absl::Duration limit :
       {-absl::Seconds(1), absl::ZeroDuration(), absl::Nanoseconds(1), absl::Milliseconds(2)}) {
    const auto begin = std::chrono::steady_clock::now();
    CHECK(limited(limit).status().code() == StatusCode::kDeadlineExceeded);
    CHECK(std::chrono::steady_clock::now() - begin < kSoon);
  }
}

TEST_CASE("sources made to be slow to read") {
  const auto begin = std::chrono::steady_clock::now();
  for (const char* unit : {"[", "(", "{{", "{%", "'%s' % ", "x[::1]",
                           "[:: ", "{{ 'a' % [1][::-1] }}", "{% raw %}", "{#"}) {
    std::string many;
    while (many.size() < 200'000) many += unit;
    for (const std::string& source : {many, "{{ " + many + " }}", "{% for x in " + many + "%}"})
      static_cast<void>(ChatTemplate::FromSource(source, ""));  // any result; only the time counts
    INFO(unit);
    CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(100));
  }
}

TEST_CASE("recursion ends before the stack does") {
  const std::vector<std::string> sources = {
      "{% macro m(n) %}{{ m(n + 1) }}{% endmacro %}{{ m(0) }}",
      "{% macro m(n) %}{% for x in [1] %}{% if n %}{{ m(n + 1) | trim }}{% endif %}{% endfor %}{% "
      "endmacro %}{{ m(1) }}",
      "{% for x in [[1]] recursive %}{{ loop([x]) }}{% endfor %}",
      "{{ " + std::string(5000, '(') + "1" + std::string(5000, ')') + " }}",
      "{{ " + std::string(20000, '[') + " }}",
      "{{ '%s' % ('%s' % " + std::string(3000, '(') + "1" + std::string(3000, ')') + ") }}",
  };
  std::string nested = "1";
  for (int i = 0; i < 400; ++i) nested = "'%s' % (" + nested + ")";
  std::atomic<int> errors = 0;
  OnSmallStack(1 << 20, [&] {
    for (const std::string& source : sources) errors += !Render(source).ok();
    errors += !Render("{{ " + nested + " }}").ok();
    std::string ifs;
    for (int i = 0; i < 2000; ++i) ifs += "{% if true %}";
    errors += !Render(ifs).ok();
  });
  CHECK(errors == static_cast<int>(sources.size()) + 2);
}

TEST_CASE("the panics of a template engine are errors, too") {
  // loop.cycle without arguments divides by zero in minijinja 3.0.5.
  const auto result = Render("{% for m in messages %}{{ loop.cycle() }}{% endfor %}");
  CHECK(result.status().code() == StatusCode::kInternal);
  CHECK_THAT(std::string(result.status().message()), Catch::Contains("loop_object.rs"));
  CHECK(Render("{{ messages[0].content }}").value() == "hi");
}

TEST_CASE("conversations that are not what a template needs") {
  const auto with_messages = [](std::string_view messages) {
    ChatTemplateInput input;
    input.messages = messages;
    return Render(
        "{% for m in messages %}{{ m.role }}{{ m.content + '' }}{% endfor %}{{ tools | length if "
        "tools }}",
        input);
  };
  for (const char* messages :
       {"", "{", "{}", "\"x\"", "null", "[1, 2", "[{\"role\": \"user\", \"content\": \"\\ud800\"}]",
        "[{\"role\": \"user\"}]", "[{\"content\": 5}]", "[{\"content\": null}]",
        "[{\"content\": \"\xFF\"}]"}) {
    INFO(messages);
    if (*messages == '\0') continue;
    CHECK(with_messages(messages).status().code() == StatusCode::kInvalidArgument);
  }
  const std::string deep = std::string(100000, '[');
  CHECK(with_messages(deep).status().code() == StatusCode::kInvalidArgument);
  CHECK(with_messages("[]").value().empty());

  ChatTemplateInput input;
  input.messages = "[]";
  input.tools = "not JSON";
  CHECK_THAT(std::string(Render("x", input).status().message()), Catch::Contains("tools"));
  input.tools = "";
  input.variables = "[]";
  CHECK_THAT(std::string(Render("x", input).status().message()), Catch::Contains("object"));
}

TEST_CASE("templates that do not compile name the line") {
  for (const char* source :
       {"{% if %}", "\n\n{{ }", "{% for x in %}", "{{ 'unfinished }}", "{% endfor %}",
        "{{ x | no_such }}{% if", "{% raw %}", "{#", "{% macro %}", "{%", "{{ '%s' % }}"}) {
    INFO(source);
    CHECK(ChatTemplate::FromSource(source, "").status().code() == StatusCode::kInvalidArgument);
  }
  CHECK_THAT(std::string(ChatTemplate::FromSource("\n\n{% if %}", "").status().message()),
             Catch::Contains("line 3"));
  CHECK_FALSE(ChatTemplate::FromSource(std::string(2 << 20, 'x'), "").ok());
  CHECK_FALSE(ChatTemplate::FromSource("\xFF", "").ok());
  CHECK_FALSE(ChatTemplate::FromSource("x", "[]").ok());
}

}  // namespace baton
