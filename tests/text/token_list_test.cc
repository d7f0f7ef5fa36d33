// Tokenizers made from token lists, compared with those of tokenizer.json files and of
// SentencePiece.
#include "text/token_list.h"

#include <algorithm>

#include "tests/text/encoding_rows.h"
#include "tests/text/oracle.h"
#include "text/tokenizer.h"

namespace baton {
namespace {

namespace json = boost::json;
using Catch::Matchers::Contains;
using oracle::Ids;
using oracle::String;

// The parts of a tokenizer.json that a GGUF file has: tokens, types, merges.
struct Stored {
  std::vector<std::string> tokens, merges;
  TokenList list;
};
// The list keeps a view of `pre`.
Stored StoredOf(const std::string& name, std::string_view pre) {
  const json::object file =
      oracle::ParseObject(oracle::ReadFile(oracle::Data("tokenizers/" + name + "/tokenizer.json")));
  const json::object& model = file.at("model").as_object();
  Stored stored;
  const auto put = [&](int64_t id, std::string token, int64_t type) {
    if (stored.tokens.size() <= static_cast<size_t>(id)) stored.tokens.resize(id + 1);
    stored.list.types.resize(stored.tokens.size());
    stored.tokens[id] = std::move(token);
    stored.list.types[id] = type;
  };
  for (const auto& entry : model.at("vocab").as_object()) {
    put(entry.value().as_int64(), std::string(entry.key()), TokenList::kNormal);
  }
  for (const json::value& token : file.at("added_tokens").as_array()) {
    put(token.at("id").as_int64(), String(token.at("content")),
        token.at("special").as_bool() ? TokenList::kControl : TokenList::kUserDefined);
  }
  for (const json::value& merge : model.at("merges").as_array()) {
    stored.merges.push_back(String(merge.as_array()[0]) + " " + String(merge.as_array()[1]));
  }
  stored.list.model = "gpt2";
  stored.list.pre = pre;
  return stored;
}
// The views point into `stored`, which must not move.
void Finish(Stored& stored) {
  stored.list.tokens.assign(stored.tokens.begin(), stored.tokens.end());
  stored.list.merges.assign(stored.merges.begin(), stored.merges.end());
}

std::unique_ptr<Tokenizer> Make(const TokenList& list) {
  const absl::StatusOr<std::string> text = TokenizerJson(list);
  INFO(std::string(text.status().message()));
  REQUIRE(text.ok());
  auto tokenizer = Tokenizer::FromJson(*text);
  INFO(std::string(tokenizer.status().message()));
  REQUIRE(tokenizer.ok());
  return *std::move(tokenizer);
}

std::string ErrorOf(const TokenList& list) {
  return std::string(TokenizerJson(list).status().message());
}

}  // namespace

TEST_CASE("a byte-level list gives the ids and texts of its tokenizer.json") {
  for (const auto& [name, pre] : {std::pair<std::string, std::string>{"llama3", "llama-bpe"},
                                  {"llama3-small", "llama-bpe"},
                                  {"qwen2", "qwen2"}}) {
    Stored stored = StoredOf(name, pre);
    Finish(stored);
    if (pre == "llama-bpe") {
      const auto begin = std::find(stored.tokens.begin(), stored.tokens.end(), "<|begin_of_text|>");
      stored.list.begin = begin - stored.tokens.begin();
    }
    const auto tokenizer = Make(stored.list);
    const size_t rows = oracle::CheckEncodings(*tokenizer, name);
    INFO(name);
    CHECK(rows >= 300);
  }
}

TEST_CASE("a list with scores gives the ids of SentencePiece") {
  const json::object file = oracle::ParseObject(
      oracle::ReadGzip(oracle::Data("tokenizers/sentencepiece/vocabulary.json.gz")));
  std::vector<std::string> tokens;
  for (const json::value& token : file.at("tokens").as_array()) tokens.push_back(String(token));
  TokenList list;
  list.model = "llama";
  list.tokens.assign(tokens.begin(), tokens.end());
  for (const json::value& score : file.at("scores").as_array()) {
    list.scores.push_back(score.to_number<double>());
  }
  for (const json::value& type : file.at("types").as_array()) {
    list.types.push_back(type.as_int64());
  }
  list.unknown = 0;
  list.begin = 1;
  list.end = 2;
  const auto tokenizer = Make(list);
  size_t wrong = 0, rows = 0;
  for (const json::object& row :
       oracle::ReadLines(oracle::Data("tokenizers/sentencepiece/encode.jsonl.gz"))) {
    const std::string text = String(row.at("text"));
    std::vector<int32_t> ids = Ids(row.at("ids"));
    bool right = tokenizer->Encode(text, false).value() == ids &&
                 tokenizer->Decode(ids, true).value() == text;
    ids.insert(ids.begin(), 1);
    right &= tokenizer->Encode(text, true).value() == ids;
    if (!right && wrong++ < 3) UNSCOPED_INFO("row " << rows << ": " << text);
    ++rows;
  }
  CHECK(wrong == 0);
  CHECK(rows >= 500);
  list.adds_begin = false;
  list.adds_end = true;
  CHECK(Make(list)->Encode("", true).value() == std::vector<int32_t>{2});
  list.adds_space = false;
  const auto bare = Make(list);
  CHECK(bare->Decode(bare->Encode(" a b", false).value(), true).value() == " a b");
  CHECK(bare->Encode("a", false).value() != tokenizer->Encode("a", false).value());
}

TEST_CASE("a list that makes no tokenizer is refused by what is wrong") {
  Stored good = StoredOf("llama3-small", "llama-bpe");
  Finish(good);
  good.list.begin = 988;
  REQUIRE(ErrorOf(good.list).empty());
  const auto error = [&](const auto& change) {
    TokenList list = good.list;
    change(list);
    return ErrorOf(list);
  };
  using List = TokenList;
  CHECK_THAT(error([](List& l) { l.model = "bert"; }),
             Contains("tokenizer.ggml.model is \"bert\"; supported: gpt2, llama"));
  CHECK_THAT(error([](List& l) { l.pre = "viking"; }),
             Contains("tokenizer.ggml.pre is \"viking\"; supported: llama-bpe, qwen2"));
  CHECK_THAT(error([](List& l) { l.tokens.clear(); }), Contains("there are no tokens"));
  CHECK_THAT(error([](List& l) { l.types.pop_back(); }),
             Contains("1000 tokens, but 999 token types"));
  CHECK_THAT(error([](List& l) { l.tokens[7] = l.tokens[3]; }),
             Contains("tokens 3 and 7 are both"));
  CHECK_THAT(error([](List& l) { l.merges[5] = "no"; }),
             Contains("merge 5, \"no\", is not of two"));
  CHECK_THAT(error([](List& l) { l.merges[5] = ""; }), Contains("merge 5, \"\", is not of two"));
  CHECK_THAT(error([](List& l) { l.merges[5] = "q\x01 z"; }), Contains("merge 5"));
  CHECK_THAT(error([](List& l) { l.begin = 1000; }), Contains("the id 1000, but there are 1000"));
  CHECK_THAT(error([](List& l) { l.end = INT64_MIN; }), Contains("but there are 1000 tokens"));
  CHECK_THAT(error([](List& l) { l.begin.reset(); }), Contains("its id is missing"));
  CHECK_THAT(error([](List& l) { l.model = "llama"; }),
             Contains("1000 tokens, but 0 token scores"));
  TokenList broken = good.list;
  broken.tokens[3] = "\xff\xfe";
  const absl::StatusOr<std::string> text = TokenizerJson(broken);
  CHECK_FALSE((text.ok() && Tokenizer::FromJson(*text).ok()));
}

}  // namespace baton
