// A cache of segments changes no token, keeps to its bytes, and makes a history cheap.
#include "text/segment_cache.h"

#include <algorithm>
#include <chrono>
#include <random>
#include <thread>

#include "absl/strings/str_cat.h"
#include "tests/text/oracle.h"
#include "text/tokenizer.h"

namespace baton {
namespace {

using Ids = std::vector<int32_t>;

std::unique_ptr<Tokenizer> Load(const std::string& name) {
  return Tokenizer::FromFolder(oracle::Data("tokenizers/" + name)).value();
}

// Without the part of a character at its end.
std::string ValidPrefix(std::string text, size_t size) {
  while (size > 0 && (text[size] & 0xc0) == 0x80) --size;
  return text.substr(0, size);
}

// Texts of the reference with added tokens, pieces of these and white space between them.
std::string RandomText(std::mt19937& random, const std::vector<std::string>& words,
                       const std::vector<std::string>& tokens) {
  constexpr const char* kSpaces[] = {"",     " ",   "  ",     "\n",    "\n\n",
                                     "\t\t", " \n", "\u00a0", "\u3000"};
  std::string text;
  for (size_t n = random() % 12; n > 0; --n) {
    const std::string& token = tokens[random() % tokens.size()];
    switch (random() % 4) {
      case 0:
        text += words[random() % words.size()];
        break;
      case 1:
        text += ValidPrefix(token, random() % token.size());
        break;
      default:
        text += token;
    }
    text += kSpaces[random() % std::size(kSpaces)];
  }
  return text;
}

std::vector<std::string> AddedTokens(const std::string& name) {
  std::vector<std::string> tokens;
  const auto file =
      oracle::ParseObject(oracle::ReadFile(oracle::Data("tokenizers/" + name + "/tokenizer.json")));
  for (const auto& token : file.at("added_tokens").as_array())
    tokens.push_back(oracle::String(token.at("content")));
  return tokens;
}

double Seconds(const std::function<void()>& work) {
  double best = 1e9;
  for (int i = 0; i < 5; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    work();
    best = std::min(
        best, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  return best;
}

}  // namespace

TEST_CASE("segments have the ids of the whole text, with and without a cache") {
  for (const char* name : {"llama3", "llama3-small", "qwen2", "llama2", "mistral", "gemma"}) {
    const auto tokenizer = Load(name);
    const std::vector<std::string> tokens = AddedTokens(name);
    std::vector<std::string> words;
    for (const auto& row :
         oracle::ReadLines(oracle::Data(absl::StrCat("tokenizers/", name, "/encode.jsonl.gz"))))
      words.push_back(oracle::String(row.at("text")));
    SegmentCache cache(1 << 16);  // small: entries come and go
    std::mt19937 random(11);
    size_t wrong = 0;
    for (int i = 0; i < 2000; ++i) {
      const PromptText prompt{.text = RandomText(random, words, tokens)};
      const bool special = i % 2 == 0;
      const Ids whole = tokenizer->EncodeByCrate(prompt.text, special).value();
      const bool right = tokenizer->Encode(prompt, special).value() == whole &&
                         tokenizer->Encode(prompt, special, &cache).value() == whole;
      if (!right && wrong++ < 3) UNSCOPED_INFO(name << " " << i << ": " << prompt.text);
    }
    CHECK(wrong == 0);
    CHECK(cache.counts().hits > 100);
    CHECK(cache.counts().bytes <= 1 << 16);
  }
}

// share: of the time for the whole history, what its end may take where its beginning is cached.
void CheckGrowingHistory(double share) {
  const auto tokenizer = Load("llama3");
  const auto rows = oracle::ReadLines(oracle::Data("tokenizers/llama3/encode.jsonl.gz"));
  std::mt19937 random(12);
  PromptText history;
  size_t n_tokens = 0;
  const auto grow = [&](size_t n) {
    for (const size_t end = n_tokens + n; n_tokens < end;) {
      std::string message = "<|start_header_id|>user<|end_header_id|>\n\n";
      for (int i = 0; i < 20; ++i)
        message += oracle::String(rows[random() % rows.size()].at("text"));
      n_tokens += tokenizer->Encode(message + "<|eot_id|>", false)->size();
      history.text += message + "<|eot_id|>";
    }
  };
  grow(100'000);
  SegmentCache cache(64 << 20);
  REQUIRE(tokenizer->Encode(history, false, &cache)->size() >= 100'000);
  // Each of these has 500 other tokens after the same beginning.
  const PromptText before = history;
  const size_t n_before = n_tokens;
  std::vector<PromptText> histories;
  std::vector<Ids> expected;
  for (int i = 0; i < 7; ++i) {
    history = before;
    n_tokens = n_before;
    grow(500);
    histories.push_back(history);
    expected.push_back(tokenizer->EncodeByCrate(history.text, false).value());
  }
  const Ids& whole = expected.back();
  double cached = 1e9;
  for (size_t i = 0; i < histories.size(); ++i) {
    const SegmentCache::Counts counts = cache.counts();
    const auto begin = std::chrono::steady_clock::now();
    const Ids ids = tokenizer->Encode(histories[i], false, &cache).value();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    cached = std::min(cached, took.count());
    CHECK(ids == expected[i]);
    CHECK(cache.counts().misses - counts.misses < 20);
  }
  const double fresh =
      Seconds([&] { CHECK(tokenizer->Encode(history, false)->size() == whole.size()); });
  WARN(whole.size() << " tokens: " << fresh * 1e3 << " ms, with the cache " << cached * 1e3
                    << " ms, 1/" << fresh / cached);
  CHECK(cached <= share * fresh);
}

// Far from the 1/20 of the command: other work may run beside.
TEST_CASE("a history that grows costs its new messages") { CheckGrowingHistory(1.0 / 5); }

TEST_CASE("500 new tokens behind 100,000 take at most 1/20 of the whole's time", "[.][history]") {
  CheckGrowingHistory(1.0 / 20);
}

TEST_CASE("a text that is not UTF-8 is refused, whatever of it is in the cache") {
  for (const char* family : {"llama3", "llama2"}) {  // llama2 has tokens that look around them
    const auto tokenizer = Load(family);
    const std::string mark = std::string(family) == "llama3" ? "<|eot_id|>" : "<|end|>";
    SegmentCache cache(1 << 20);
    const PromptText good{.text = "good" + mark + "words"};
    REQUIRE(tokenizer->Encode(good, false, &cache).ok());
    for (const std::string& bad :
         {std::string("\xFF"), std::string("x\xC3"), std::string("\xC3")}) {
      for (const std::string& text : {good.text + mark + bad, "good" + bad + mark + "words"}) {
        const auto ids = tokenizer->Encode(PromptText{.text = text}, false, &cache);
        CHECK(ids.status().code() == absl::StatusCode::kInvalidArgument);
        const size_t at = text.find_first_of("\xFF\xC3");
        CHECK_THAT(std::string(ids.status().message()),
                   Catch::Contains(absl::StrCat("at byte ", at)));
      }
    }
    CHECK(tokenizer->Encode(good, false, &cache).ok());
  }
}

TEST_CASE("one cache, many threads") {
  const auto tokenizer = Load("qwen2");
  const auto rows = oracle::ReadLines(oracle::Data("tokenizers/qwen2/encode.jsonl.gz"));
  SegmentCache cache(1 << 14);
  std::vector<size_t> wrong(4, 0);
  std::vector<std::thread> threads;
  for (size_t t = 0; t < wrong.size(); ++t)
    threads.emplace_back([&, t] {
      for (size_t i = 0; i < 300; ++i) {
        const auto& row = rows[(i * (t + 1)) % 400];
        const PromptText prompt{.text = oracle::String(row.at("text"))};
        wrong[t] += tokenizer->Encode(prompt, true, &cache).value() != oracle::Ids(row.at("ids"));
      }
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == std::vector<size_t>(4, 0));
}

TEST_CASE("what is larger than the cache is not kept") {
  const auto tokenizer = Load("llama3-small");
  SegmentCache cache(1000);
  const PromptText prompt{.text = std::string(2000, 'a')};
  const Ids ids = tokenizer->Encode(prompt, false, &cache).value();
  CHECK(tokenizer->Encode(prompt, false, &cache).value() == ids);
  const SegmentCache::Counts counts = cache.counts();
  CHECK((counts.bytes == 0 && counts.hits == 0 && counts.misses == 2));
}

TEST_CASE("what one salt has had tokenized is not there for another one") {
  const auto tokenizer = Load("llama3-small");
  PromptText prompt;
  for (int i = 0; i < 100; ++i) prompt.text += " the duck and the cellar";
  SegmentCache cache(1 << 20);
  const Ids ids = tokenizer->Encode(prompt, false, {&cache, 1}).value();
  CHECK(cache.counts().misses == 1);
  CHECK(tokenizer->Encode(prompt, false, {&cache, 2}).value() == ids);
  CHECK(tokenizer->Encode(prompt, false, &cache).value() == ids);
  CHECK(cache.counts().misses == 3);
  CHECK(cache.counts().hits == 0);
  CHECK(tokenizer->Encode(prompt, false, {&cache, 2}).value() == ids);
  CHECK(cache.counts().hits == 1);
}

}  // namespace baton
