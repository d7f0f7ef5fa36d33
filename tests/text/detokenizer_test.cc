// Streams of tokens: every piece has whole characters, and the joined pieces are the bytes of the
// tokens.
#include "text/detokenizer.h"

#include <random>

#include "tests/text/oracle.h"

namespace baton {
namespace {

using oracle::Ids;
using oracle::String;
namespace json = boost::json;

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

// An independent replacement of invalid UTF-8: decodes the code point, then judges it. A lead byte
// is kept with the continuation bytes that can still lead to a legal code point.
std::string Lossy(std::string_view bytes) {
  std::string out;
  for (size_t i = 0; i < bytes.size();) {
    const auto at = [&](size_t k) { return static_cast<uint32_t>(static_cast<uint8_t>(bytes[k])); };
    const uint32_t lead = at(i);
    const size_t length = lead < 0x80         ? 1
                          : (lead >> 5) == 6  ? 2
                          : (lead >> 4) == 14 ? 3
                          : (lead >> 3) == 30 ? 4
                                              : 0;
    uint32_t code = length == 1   ? lead
                    : length == 2 ? lead & 31
                    : length == 3 ? lead & 15
                                  : lead & 7;
    const uint32_t min_code[] = {0, 0, 0x80, 0x800, 0x10000};
    size_t taken = 1;
    bool dead = length == 0;
    while (!dead && taken < length) {
      if (i + taken == bytes.size() || (at(i + taken) & 0xC0) != 0x80) break;
      const uint32_t next = code << 6 | (at(i + taken) & 63);
      // The range of possible code points: next followed by zeros up to next followed by ones.
      const size_t shift = 6 * (length - taken - 1);
      const uint32_t low = next << shift, high = low | ((1u << shift) - 1);
      if (high < min_code[length] || low > 0x10FFFF || (low >= 0xD800 && high <= 0xDFFF)) break;
      code = next;
      ++taken;
    }
    const bool whole = !dead && taken == length && code >= min_code[length] && code <= 0x10FFFF;
    out.append(whole ? bytes.substr(i, taken) : kReplacement);
    i += taken;
  }
  return out;
}

bool IsValid(std::string_view text) { return Lossy(text) == text; }

std::unique_ptr<Tokenizer> Load(const std::string& name) {
  return std::move(Tokenizer::FromFolder(oracle::Data("tokenizers/" + name))).value();
}

// Pushes all ids. Every piece must be valid UTF-8 by itself, so no character is ever cut.
std::string Stream(const Tokenizer& tokenizer, const std::vector<int32_t>& ids,
                   DetokenizerOptions options) {
  Detokenizer detokenizer(&tokenizer, options);
  std::string text;
  bool valid = true;
  for (const int32_t id : ids) {
    const std::string piece = detokenizer.Push(id);
    valid &= IsValid(piece);
    text += piece;
  }
  const std::string last = detokenizer.Finish();
  CHECK(valid);
  CHECK((last.empty() || last == kReplacement));
  CHECK(detokenizer.Finish().empty());
  return text + last;
}

const std::vector<std::string> kNames = {"llama3", "llama3-small", "qwen2",
                                         "llama2", "mistral",      "gemma"};

}  // namespace

TEST_CASE("streams of the reference's ids") {
  for (const std::string& name : kNames) {
    const auto tokenizer = Load(name);
    const bool byte_level = name == "llama3" || name == "llama3-small" || name == "qwen2";
    size_t compared = 0;
    for (const json::object& row :
         oracle::ReadLines(oracle::Data("tokenizers/" + name + "/decode.jsonl.gz"))) {
      const std::vector<int32_t> ids = Ids(row.at("ids"));
      const std::string bytes = oracle::FromHex(row.at("bytes").as_string());
      CHECK(Stream(*tokenizer, ids, {.skip_special_tokens = false}) == Lossy(bytes));
      // Decode of all ids must agree where no byte is invalid; for byte-level decoders always.
      if (!byte_level && !IsValid(bytes)) continue;
      ++compared;
      const bool skip_agrees =
          byte_level;  // a hidden special token may join two halves of a character
      CHECK(Stream(*tokenizer, ids, {.skip_special_tokens = false, .starts_text = true}) ==
            String(row.at("decoded_all")));
      if (skip_agrees)
        CHECK(Stream(*tokenizer, ids, {.skip_special_tokens = true, .starts_text = true}) ==
              String(row.at("decoded")));
    }
    INFO(name);
    CHECK(compared > 100);
  }
}

TEST_CASE("texts of the reference come back from their streams") {
  for (const std::string& name : kNames) {
    const auto tokenizer = Load(name);
    for (const json::object& row :
         oracle::ReadLines(oracle::Data("tokenizers/" + name + "/encode.jsonl.gz"))) {
      const std::vector<int32_t> ids = Ids(row.at("ids"));
      CHECK(Stream(*tokenizer, ids, {.skip_special_tokens = true, .starts_text = true}) ==
            String(row.at("decoded")));
      CHECK(Stream(*tokenizer, ids, {.skip_special_tokens = false, .starts_text = true}) ==
            String(row.at("decoded_all")));
    }
  }
}

TEST_CASE("any sequence of tokens streams as its bytes") {
  std::mt19937 random(7);
  for (const std::string& name : kNames) {
    const auto tokenizer = Load(name);
    std::vector<int32_t> single_bytes;
    for (int32_t id = 0; id < tokenizer->vocab_size(); ++id)
      if (tokenizer->TokenBytes(id).size() == 1) single_bytes.push_back(id);
    REQUIRE(single_bytes.size() > 100);
    for (int round = 0; round < 3000; ++round) {
      std::vector<int32_t> ids;
      std::string bytes;
      for (size_t n = random() % 30; n > 0; --n) {
        // Mostly single bytes, so that many characters are cut and invalid; some ids have no token.
        const bool single = random() % 4 != 0;
        const int32_t any =
            static_cast<int32_t>(random() % static_cast<uint32_t>(tokenizer->vocab_size() + 5));
        ids.push_back(single ? single_bytes[random() % single_bytes.size()] : any);
        bytes.append(tokenizer->TokenBytes(ids.back()));
      }
      CHECK(Stream(*tokenizer, ids, {.skip_special_tokens = false}) == Lossy(bytes));
    }
  }
}

TEST_CASE("any bytes in any pieces become the same text") {
  std::mt19937 random(11);
  const std::vector<std::string> seeds = {
      "a",        "\xC3\xA9",         "\xE2\x82\xAC", "\xF0\x9F\x98\x80", "\xED\xA0\x80",
      "\xC0\xAF", "\xF4\x90\x80\x80", "\xFF",         "\xE0\x80",         "\xF0\x9F"};
  for (int round = 0; round < 20000; ++round) {
    std::string bytes;
    for (size_t n = random() % 6; n > 0; --n)
      bytes += random() % 3 == 0 ? std::string(1, static_cast<char>(random()))
                                 : seeds[random() % seeds.size()];
    std::string held, text;
    for (size_t i = 0; i < bytes.size();) {
      const size_t size = std::min<size_t>(1 + random() % 4, bytes.size() - i);
      held += bytes.substr(i, size);
      MoveWholeCharacters(&held, &text);
      CHECK(held.size() <= 3);
      CHECK(IsValid(text));
      i += size;
    }
    if (!held.empty()) text += kReplacement;
    CHECK(text == Lossy(bytes));
    CHECK(ValidUtf8(bytes) == text);
  }
}

TEST_CASE("the leading space belongs to a continuation and not to a text of its own") {
  const auto tokenizer = Load("llama2");
  const std::vector<int32_t> ids = tokenizer->Encode("Where does it go", true).value();
  CHECK(Stream(*tokenizer, ids, {.skip_special_tokens = true, .starts_text = true}) ==
        "Where does it go");
  CHECK(Stream(*tokenizer, ids, {.skip_special_tokens = true}) == " Where does it go");
}

TEST_CASE("each token's share of the text: bytes that join to it, the last ones held back") {
  const auto tokenizer = Load("llama2");
  const std::string text = "Where does 🦆 go";
  const std::vector<int32_t> ids = tokenizer->Encode(text, true).value();
  for (const bool starts_text : {false, true}) {
    Detokenizer stream(tokenizer.get(), {.skip_special_tokens = true, .starts_text = starts_text});
    std::string bytes, sent;
    size_t max_held = 0;
    for (const int32_t id : ids) {
      sent += stream.Push(id);
      bytes += stream.last_bytes();
      CHECK(bytes.size() == sent.size() + stream.n_held());
      max_held = std::max(max_held, stream.n_held());
    }
    CHECK(bytes == (starts_text ? text : " " + text));
    CHECK(max_held == 3);  // the tokens of the duck are bytes
    CHECK(stream.Finish().empty());
  }
}

TEST_CASE("special tokens are skipped but for those that are shown") {
  const auto tokenizer = Load("mistral");
  const int32_t calls = tokenizer->IdOf("[TOOL_CALLS]").value();
  const int32_t begin = tokenizer->IdOf("<s>").value(), end = tokenizer->IdOf("</s>").value();
  const std::vector<int32_t> ids = {begin, calls, end};
  CHECK(Stream(*tokenizer, ids, {}) == "");
  CHECK(Stream(*tokenizer, ids, {.shown_tokens = {calls}}) == "[TOOL_CALLS]");
  CHECK(Stream(*tokenizer, ids, {.shown_tokens = {end, calls}}) == "[TOOL_CALLS]</s>");
  CHECK(Stream(*tokenizer, ids, {.skip_special_tokens = false, .shown_tokens = {calls}}) ==
        "<s>[TOOL_CALLS]</s>");
}

}  // namespace baton
