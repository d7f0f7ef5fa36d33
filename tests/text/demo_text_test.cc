// The demo model's tokenizer and chat template: every prompt of its evaluation, message by message.
#include "tests/text/oracle.h"
#include "text/chat_template.h"
#include "text/detokenizer.h"
#include "text/tokenizer.h"

namespace baton {

TEST_CASE("the demo model's prompts and answers") {
  const std::string folder = std::string(BATON_SOURCE_DIR) + "/models/demo";
  const auto tokenizer = Tokenizer::FromFolder(folder);
  REQUIRE(tokenizer.ok());
  const auto chat = ChatTemplate::FromFolder(folder, (*tokenizer)->SpecialTokens().value());
  REQUIRE(chat.ok());
  const auto rows = oracle::ReadLines(folder + "/eval.jsonl.gz");
  CHECK(rows.size() == 990);
  size_t wrong = 0, with_tools = 0;
  for (const boost::json::object& row : rows) {
    const std::string messages = boost::json::serialize(row.at("messages"));
    const boost::json::value* tools = row.if_contains("tools");
    const std::string tools_text =
        tools == nullptr || tools->is_null() ? "" : boost::json::serialize(*tools);
    with_tools += !tools_text.empty();
    ChatTemplateInput input;
    input.messages = messages;
    input.tools = tools_text;
    const auto prompt = (*chat)->Render(input);
    REQUIRE(prompt.ok());
    bool right = (*tokenizer)->Encode(*prompt, false).value() == oracle::Ids(row.at("prompt_ids"));
    // The answer, as a stream: its ids give its text, the end token gives nothing.
    if (const boost::json::value* ids = row.if_contains("expected_ids");
        ids != nullptr && !ids->is_null()) {
      Detokenizer detokenizer(tokenizer->get());
      std::string answer;
      for (const int32_t id : oracle::Ids(*ids)) answer += detokenizer.Push(id);
      answer += detokenizer.Finish();
      right &= answer == oracle::String(row.at("expected"));
    }
    wrong += !right;
  }
  CHECK(wrong == 0);
  CHECK(with_tools > 50);
}

}  // namespace baton
