// The source of a chat template, the contents of its environment, and its clock.
#include <ctime>
#include <filesystem>
#include <fstream>
#include <random>

#include "absl/strings/str_cat.h"
#include "tests/text/oracle.h"
#include "text/chat_template.h"

namespace baton {
namespace {

// A folder that is removed at the end of the test.
class Folder {
 public:
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "baton-chat-XXXXXX").string();
    REQUIRE(mkdtemp(name.data()) != nullptr);
    path_ = name;
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  const std::string& path() const { return path_; }
  void Write(const std::string& name, const std::string& content) const {
    std::ofstream(path_ + "/" + name, std::ios::binary) << content;
  }

 private:
  std::string path_;
};

std::string RenderIn(const Folder& folder, std::string_view tools = "") {
  const auto chat = ChatTemplate::FromFolder(folder.path());
  if (!chat.ok()) return chat.status().ToString();
  ChatTemplateInput input;
  input.messages = R"([{"role": "user", "content": "hi"}])";
  input.tools = tools;
  const auto text = (*chat)->Render(input);
  return text.ok() ? text->text : text.status().ToString();
}

std::string RenderSource(const std::string& source, ChatTemplateInput input) {
  return ChatTemplate::FromSource(source, "").value()->Render(input).value().text;
}

}  // namespace

TEST_CASE("where the template is found") {
  const Folder folder;
  CHECK_THAT(RenderIn(folder), Catch::Contains("NOT_FOUND") && Catch::Contains(folder.path()));
  folder.Write("tokenizer_config.json", R"({"chat_template": "config {{ messages[0].content }}"})");
  CHECK(RenderIn(folder) == "config hi");
  folder.Write("chat_template.json", R"({"chat_template": "json {{ messages[0].content }}"})");
  CHECK(RenderIn(folder) == "json hi");
  folder.Write("chat_template.jinja", "jinja {{ messages[0].content }}");
  CHECK(RenderIn(folder) == "jinja hi");
  folder.Write("chat_template.jinja", "{% if %}");
  CHECK_THAT(RenderIn(folder),
             Catch::Contains("INVALID_ARGUMENT") && Catch::Contains(folder.path()));
}

TEST_CASE("a list of templates") {
  const Folder folder;
  folder.Write("tokenizer_config.json",
               R"({"chat_template": [{"name": "default", "template": "plain"},
      {"name": "tool_use", "template": "tools {{ tools | length }}"}, {"name": "rag", "template": "{% broken"}]})");
  CHECK(RenderIn(folder) == "plain");
  CHECK(RenderIn(folder, R"([{"a": 1}, {"b": 2}])") == "tools 2");
  folder.Write("tokenizer_config.json", R"({"chat_template": [{"name": "rag", "template": "x"}]})");
  CHECK_THAT(RenderIn(folder), Catch::Contains("INVALID_ARGUMENT") && Catch::Contains("default"));
  folder.Write("tokenizer_config.json", R"({"chat_template": 5})");
  CHECK_THAT(RenderIn(folder), Catch::Contains("INVALID_ARGUMENT"));
  folder.Write("tokenizer_config.json", R"({"chat_template": )");
  CHECK_THAT(RenderIn(folder), Catch::Contains("tokenizer_config.json"));
}

TEST_CASE("special tokens are variables") {
  const Folder folder;
  folder.Write("tokenizer_config.json",
               R"({"bos_token": {"content": "<b>", "special": true}, "eos_token": "</e>",
      "pad_token": null, "add_bos_token": true, "chat_template": "{{ bos_token }}{{ eos_token }}{{ pad_token is defined }}{{ add_bos_token is defined }}"})");
  CHECK(RenderIn(folder) == "<b></e>FalseFalse");
}

TEST_CASE("variables of the request") {
  ChatTemplateInput input;
  input.messages = "[]";
  input.variables = R"({"enable_thinking": false, "n": 3})";
  CHECK(RenderSource("{{ enable_thinking }} {{ n }} {{ add_generation_prompt }} {{ tools is none "
                     "}} {{ documents is none }}",
                     input) == "False 3 True True True");
  // The conversation cannot be replaced by a variable.
  input.variables = R"({"messages": 1, "add_generation_prompt": 7})";
  CHECK(RenderSource("{{ messages }} {{ add_generation_prompt }}", input) == "[] True");
}

TEST_CASE("the generation block of training templates is transparent") {
  ChatTemplateInput input;
  input.messages = R"([{"role": "assistant", "content": "yes"}])";
  CHECK(RenderSource("{% for m in messages %}\n{% generation %}\n{{ m.content }}\n{% endgeneration "
                     "%}\n{% endfor %}",
                     input) == "yes\n");
  CHECK(RenderSource("a {%- generation -%} b {%- endgeneration -%} c", input) == "abc");
}

TEST_CASE("names of dict methods as keys of JSON") {
  ChatTemplateInput input;
  input.messages = R"([{"items": {"type": "string"}, "keys": 1, "get": 2}])";
  CHECK(RenderSource("{% set m = messages[0] %}{{ m['items'].type }} {{ m.items is callable }} {{ "
                     "m.items() | length }} "
                     "{{ m.get('keys') }} {{ m.get('none', 'd') }} {{ m.keys() | list }} {% for k, "
                     "v in m.items() %}{{ k }};{% endfor %}",
                     input) == "string True 3 1 d ['items', 'keys', 'get'] items;keys;get;");
}

TEST_CASE("the template's clock agrees with the C library", "[slow]") {
  const std::string directives = "aAbBcdDeFhHIjklmMnpRStTuUwWxXyY%";
  std::mt19937 random(1);
  for (int round = 0; round < 300; ++round) {
    std::tm time = {};
    time.tm_year = 70 + static_cast<int>(random() % 130);
    time.tm_mon = static_cast<int>(random() % 12);
    time.tm_mday = 1 + static_cast<int>(random() % 31);
    time.tm_hour = static_cast<int>(random() % 24);
    time.tm_min = static_cast<int>(random() % 60);
    time.tm_sec = static_cast<int>(random() % 60);
    timegm(&time);  // corrects 31 February, fills in the weekday and the day of the year
    ChatTemplateInput input;
    input.messages = "[]";
    input.now = absl::CivilSecond(time.tm_year + 1900, time.tm_mon + 1, time.tm_mday, time.tm_hour,
                                  time.tm_min, time.tm_sec);
    for (const char directive : directives) {
      const std::string format = absl::StrCat("[%", std::string(1, directive), "]");
      char expected[64];
      const size_t length = std::strftime(expected, sizeof expected, format.c_str(), &time);
      INFO(format << " of " << absl::FormatCivilTime(input.now));
      CHECK(RenderSource("{{ strftime_now('" + format + "') }}", input) ==
            std::string(expected, length));
    }
    CHECK(RenderSource("{{ strftime_now('%-d %-m %-H %Q') }}", input) ==
          absl::StrCat(time.tm_mday, " ", time.tm_mon + 1, " ", time.tm_hour, " %Q"));
  }
}

}  // namespace baton
