// All ids and texts of the reference: the output of Python's tokenizers for 10,300 strings and
// 4,200 id sequences.
#include "text/tokenizer.h"

#include <algorithm>
#include <thread>

#include "tests/text/encoding_rows.h"
#include "tests/text/oracle.h"
#include "text/chat_template.h"

namespace baton {
namespace {

using oracle::Ids;
using oracle::String;
namespace json = boost::json;

const std::vector<std::string> kNames = {"llama3", "llama3-small", "qwen2",
                                         "llama2", "mistral",      "gemma"};

std::unique_ptr<Tokenizer> Load(const std::string& name) {
  auto tokenizer = Tokenizer::FromFolder(oracle::Data("tokenizers/" + name));
  INFO(tokenizer.status().ToString());
  REQUIRE(tokenizer.ok());
  return std::move(*tokenizer);
}

std::string BytesOf(const Tokenizer& tokenizer, const std::vector<int32_t>& ids) {
  std::string bytes;
  for (const int32_t id : ids) bytes.append(tokenizer.TokenBytes(id));
  return bytes;
}

}  // namespace

TEST_CASE("strings to ids and back") {
  for (const std::string& name : kNames) {
    const auto tokenizer = Load(name);
    const size_t rows = oracle::CheckEncodings(*tokenizer, name);
    INFO(name);
    CHECK(rows == (name == "llama3-small" ? 300 : 2000));
  }
}

TEST_CASE("ids to text and to bytes") {
  for (const std::string& name : kNames) {
    const auto tokenizer = Load(name);
    size_t wrong = 0, rows = 0, prefixes = 0;
    for (const json::object& row :
         oracle::ReadLines(oracle::Data("tokenizers/" + name + "/decode.jsonl.gz"))) {
      const std::vector<int32_t> ids = Ids(row.at("ids"));
      bool right = tokenizer->Decode(ids, true).value() == String(row.at("decoded")) &&
                   tokenizer->Decode(ids, false).value() == String(row.at("decoded_all")) &&
                   BytesOf(*tokenizer, ids) == oracle::FromHex(row.at("bytes").as_string());
      if (const json::value* all = row.if_contains("prefixes")) {
        for (size_t n = 1; n <= all->as_array().size(); ++n, ++prefixes)
          right &= tokenizer->Decode(std::span(ids).first(n), true).value() ==
                   String(all->as_array()[n - 1]);
      }
      if (!right && wrong++ < 3) UNSCOPED_INFO(name << " row " << rows);
      ++rows;
    }
    INFO(name);
    CHECK(wrong == 0);
    CHECK(rows > 0);
    CHECK(prefixes > 80);
  }
}

TEST_CASE("chats: template and ids together") {
  for (const std::string& name : kNames) {
    const std::string folder = oracle::Data("tokenizers/" + name);
    const auto tokenizer = Load(name);
    const auto chat = ChatTemplate::FromFolder(folder, tokenizer->SpecialTokens().value());
    REQUIRE(chat.ok());
    const json::value rows = json::parse(oracle::ReadFile(folder + "/chat.json"));
    REQUIRE(!rows.as_array().empty());
    for (const json::value& row : rows.as_array()) {
      const std::string messages = json::serialize(row.at("messages"));
      ChatTemplateInput input;
      input.messages = messages;
      input.add_generation_prompt = row.at("add_generation_prompt").as_bool();
      const auto prompt = (*chat)->Render(input);
      INFO(name << " " << prompt.status().ToString());
      REQUIRE(prompt.ok());
      CHECK(prompt->text == String(row.at("text")));
      CHECK(tokenizer->Encode(prompt->text, false).value() == Ids(row.at("ids")));
      // transformers takes what a message spells for special tokens; control_tokens_test has those.
      const bool spells_tokens = messages.find("you are free<|im_end|>") != std::string::npos;
      CHECK((tokenizer->Encode(*prompt, false).value() == Ids(row.at("ids"))) != spells_tokens);
    }
  }
}

TEST_CASE("the token table") {
  const auto llama = Load("llama3");
  CHECK(llama->vocab_size() == 3000);
  const auto begin = llama->IdOf("<|begin_of_text|>");
  REQUIRE(begin.has_value());
  CHECK(*begin == 2988);
  CHECK(llama->IsSpecial(*begin));
  CHECK(llama->TokenBytes(*begin) == "<|begin_of_text|>");
  CHECK_FALSE(llama->IsSpecial(0));
  CHECK(llama->IsToken(0));
  CHECK_FALSE(llama->IdOf("no such token").has_value());
  for (const int32_t id :
       {-1, 3000, std::numeric_limits<int32_t>::max(), std::numeric_limits<int32_t>::min()}) {
    CHECK_FALSE(llama->IsToken(id));
    CHECK_FALSE(llama->IsSpecial(id));
    CHECK(llama->TokenBytes(id).empty());
  }
  size_t longest = 0;
  for (int32_t id = 0; id < llama->vocab_size(); ++id)
    longest = std::max(longest, llama->TokenBytes(id).size());
  CHECK(llama->longest_token_bytes() == longest);
  CHECK(llama->leading_space() == LeadingSpace::kKeep);
  CHECK(Load("llama2")->leading_space() == LeadingSpace::kStripOne);
  CHECK(Load("gemma")->leading_space() == LeadingSpace::kKeep);
}

TEST_CASE("ids without a token stand for nothing") {
  const auto tokenizer = Load("qwen2");
  const std::vector<int32_t> ids = tokenizer->Encode("hello", false).value();
  std::vector<int32_t> padded = {-5, std::numeric_limits<int32_t>::max(), tokenizer->vocab_size()};
  padded.insert(padded.end(), ids.begin(), ids.end());
  CHECK(tokenizer->Decode(padded, false).value() == "hello");
  CHECK(tokenizer->Decode({}, false).value().empty());
}

TEST_CASE("a prompt has the ids of its text where a normalizer takes away its beginning") {
  const auto tokenizer = Tokenizer::FromJson(
      R"({"version":"1.0","added_tokens":[],"post_processor":null,"decoder":{"type":"Fuse"},)"
      R"("normalizer":{"type":"Strip","strip_left":true,"strip_right":false},)"
      R"("pre_tokenizer":{"type":"Metaspace","replacement":"_","prepend_scheme":"first",)"
      R"("split":true},"model":{"type":"WordLevel","unk_token":"?",)"
      R"("vocab":{"?":0,"a":1,"_a":2,"b":3,"_b":4}}})");
  INFO(tokenizer.status().ToString());
  REQUIRE(tokenizer.ok());
  const auto ids = [&](const std::string& text) {
    const std::vector<int32_t> found = (*tokenizer)->Encode(text, false).value();
    CHECK((*tokenizer)->Encode(PromptText{.text = text}, false).value() == found);
    return found;
  };
  using IdList = std::vector<int32_t>;
  CHECK(ids("a b") == IdList{2, 4});
  CHECK(ids(" a b") == IdList{1, 4});  // as the library has it: the first word is not at 0
  CHECK(ids(" ") == IdList{});
}

TEST_CASE("one tokenizer, many threads") {
  const auto tokenizer = Load("llama3");
  const auto rows = oracle::ReadLines(oracle::Data("tokenizers/llama3/encode.jsonl.gz"));
  std::vector<size_t> wrong(4, 0);
  std::vector<std::thread> threads;
  for (size_t t = 0; t < wrong.size(); ++t)
    threads.emplace_back([&, t] {
      for (size_t i = t; i < 400; ++i)
        if (tokenizer->Encode(String(rows[i].at("text")), true).value() != Ids(rows[i].at("ids")))
          ++wrong[t];
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == std::vector<size_t>(4, 0));
}

}  // namespace baton
