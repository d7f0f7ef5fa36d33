// Any conversation on the chat templates of the tests and of the demo model: a prompt, the same one
// each time, or a refusal within the time limit.
#include <boost/json.hpp>
#include <memory>

#include "common/check.h"
#include "tests/fuzz/file_text.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/prompt_check.h"
#include "tests/fuzz/thread_time.h"

namespace baton {
namespace {

namespace json = boost::json;

constexpr char kFolder[] = "tests/data/chat_templates";
constexpr absl::Duration kLimit = absl::Milliseconds(100);
// Reading JSON comes before the limit is looked at; instrumented code is slower, too.
constexpr absl::Duration kMaxTime = absl::Seconds(1);

struct NamedTemplate {
  std::string path;  // of its conversations, without .json; empty: a model's
  std::unique_ptr<ChatTemplate> chat;
};

const std::vector<NamedTemplate>& Templates() {
  static const auto* const templates = [] {
    auto* made = new std::vector<NamedTemplate>;
    for (const std::string& path : FilesOf(kFolder, ".jinja")) {
      auto chat = ChatTemplate::FromSource(FileText(path), kTemplateNames, kSpecialTokens);
      if (chat.ok())  // some are there to be refused
        made->push_back({path.substr(0, path.rfind('.')), *std::move(chat)});
    }
    for (const char* folder : {"models/demo", "tests/data/tokenizers/qwen2",
                               "tests/data/tokenizers/llama3", "tests/data/tokenizers/mistral"})
      made->push_back({"", ChatTemplate::FromFolder(SourcePath(folder), kSpecialTokens).value()});
    BATON_CHECK(made->size() > 35 && made->size() < 256);
    return made;
  }();
  return *templates;
}

}  // namespace

void TryInput(std::string_view bytes) {
  FuzzInput in(bytes);
  const ChatTemplate& chat = *Templates()[in.Below(Templates().size())].chat;
  const uint8_t flags = in.Byte();
  ChatTemplateInput input;
  input.messages = in.Upto('\0');
  input.tools = in.Upto('\0');
  input.documents = in.Upto('\0');
  input.variables = in.Upto('\0');
  input.add_generation_prompt = (flags & 1) != 0;
  input.continue_final_message = (flags & 3) == 2;
  input.now = absl::CivilSecond(2025, 3, 14, 9, 26, 53);
  input.limit = kLimit;
  const absl::Duration begin = ThreadTime();
  const auto prompt = chat.Render(input);
  BATON_CHECK(ThreadTime() - begin < kMaxTime);
  if (!prompt.ok()) {
    BATON_CHECK(IsRefusal(prompt.status()));
    const std::string message(prompt.status().message());
    BATON_CHECK(ValidUtf8(message) == message);
    return;
  }
  CheckPrompt(*prompt);
  const auto again = chat.Render(input);
  if (absl::IsDeadlineExceeded(again.status())) return;
  BATON_CHECK(again->text == prompt->text && again->controls == prompt->controls);
}

FuzzSeeds MakeSeeds() {
  FuzzSeeds seeds;
  for (size_t i = 0; i < Templates().size(); ++i) {
    const std::string& path = Templates()[i].path;
    const json::value file =
        json::parse(FileText((path.empty() ? std::string(kFolder) + "/chatml" : path) + ".json"));
    size_t n = 0;
    for (const json::value& one : file.at("cases").as_array()) {
      if (++n > 6) break;  // templates have 2 to 20 of them, most alike
      const json::object& fields = one.as_object();
      const auto text = [&](const char* name) {
        const json::value* value = fields.if_contains(name);
        return value == nullptr || value->is_null() ? std::string() : json::serialize(*value);
      };
      const json::value* begins = fields.if_contains("add_generation_prompt");
      const bool adds = begins != nullptr && begins->is_bool() && begins->get_bool();
      std::string input{static_cast<char>(i), static_cast<char>(adds ? 1 : 2)};
      for (const char* name : {"messages", "tools", "documents", "variables"})
        input += text(name) + '\0';
      seeds.inputs.push_back(input);
    }
  }
  seeds.words.assign(std::begin(kSpecials), std::end(kSpecials));
  for (const char* word : {"\"role\":\"",
                           "\"user\"",
                           "\"assistant\"",
                           "\"system\"",
                           "\"tool\"",
                           "\"content\":",
                           "\"tool_calls\":[",
                           "\"function\":{",
                           "\"name\":",
                           "\"arguments\":{",
                           "\"type\":\"text\"",
                           "\"reasoning_content\":",
                           "<think>",
                           "</think>",
                           "\\u0000",
                           "\\ud800",
                           "\xEF\xB7\x90",
                           "null",
                           "[]",
                           "{}",
                           "1e400",
                           "-0",
                           "\"tool_call_id\":\"abcdefghi\""})
    seeds.words.emplace_back(word);
  return seeds;
}

}  // namespace baton
