#include "bench/synthetic_tokenizer.h"

#include <array>
#include <random>
#include <set>
#include <string_view>
#include <vector>

namespace baton {
namespace {

void AppendUtf8(uint32_t code, std::string* out) {
  if (code < 0x80) {
    *out += static_cast<char>(code);
  } else {
    *out += static_cast<char>(0xC0 | code >> 6);
    *out += static_cast<char>(0x80 | (code & 0x3F));
  }
}

// The character that stands for each byte in byte-level vocabularies (GPT-2's table).
std::array<std::string, 256> ByteLetters() {
  std::array<std::string, 256> letters;
  uint32_t next = 256;
  for (uint32_t byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD);
    AppendUtf8(printable ? byte : next++, &letters[byte]);
  }
  return letters;
}

class WordMaker {
 public:
  explicit WordMaker(uint64_t seed) : random_(seed) {}

  std::string Next() {
    static constexpr std::array<std::string_view, 24> kPieces = {
        "{\"",   "\":",   "\": ", "\",",  "\", \"", "},",  "}, {\"", "[",
        "]",     "],",    "}\n",  "  ",   "\n",     "\\n", "\\\"",   "\": \"",
        "\": {", "\": [", "null", "true", "false",  "://", "=\"",    "--"};
    const uint64_t kind = random_() % 100;
    if (kind < 3) return Repeated(kPieces[random_() % kPieces.size()]);
    if (kind < 5) return std::string(1 + random_() % 64, " \t\n="[random_() % 4]);
    if (kind < 7) return std::to_string(random_() % 1000);
    if (kind < 9) return Foreign();
    std::string word = random_() % 100 < 55 ? " " : "";
    const uint64_t n_syllables = 1 + random_() % 4;
    for (uint64_t i = 0; i < n_syllables; ++i) word += Syllable();
    if (random_() % 6 == 0) {
      char& first = word[word[0] == ' ' ? 1 : 0];
      first = static_cast<char>(first - 'a' + 'A');
    }
    return word;
  }

 private:
  std::string Syllable() {
    static constexpr std::string_view kConsonants = "bcdfghjklmnpqrstvwxyz", kVowels = "aeiou";
    std::string syllable(1, kConsonants[random_() % kConsonants.size()]);
    syllable += kVowels[random_() % kVowels.size()];
    if (random_() % 3 == 0) syllable += kConsonants[random_() % kConsonants.size()];
    return syllable;
  }
  std::string Foreign() {
    std::string word;
    const uint64_t length = 1 + random_() % 4;
    const uint32_t start = 0xC0 + static_cast<uint32_t>(random_() % 0x400);
    for (uint64_t i = 0; i < length; ++i)
      AppendUtf8(start + static_cast<uint32_t>(random_() % 24), &word);
    return word;
  }
  std::string Repeated(std::string_view piece) {
    std::string word(piece);
    for (uint64_t n = random_() % 3; n > 0; --n) word += piece;
    return word;
  }

  std::mt19937_64 random_;
};

}  // namespace

std::string SyntheticTokenizerJson(int vocab, uint64_t seed) {
  const std::array<std::string, 256> letters = ByteLetters();
  std::set<std::string> known;
  std::vector<std::string> tokens;
  const auto add = [&](const std::string& word) {
    if (known.insert(word).second) tokens.push_back(word);
  };
  for (int byte = 0; byte < 256; ++byte) add(std::string(1, static_cast<char>(byte)));
  WordMaker words(seed);
  while (tokens.size() + 1 < static_cast<size_t>(vocab)) add(words.Next());

  std::string json = R"({"version":"1.0","truncation":null,"padding":null,"normalizer":null,)"
                     R"("pre_tokenizer":null,"post_processor":null,"decoder":{"type":"ByteLevel",)"
                     R"("add_prefix_space":false,"trim_offsets":false,"use_regex":false},)"
                     R"("added_tokens":[{"id":)" +
                     std::to_string(tokens.size()) +
                     R"(,"content":"<|end|>","single_word":false,"lstrip":false,"rstrip":false,)"
                     R"("normalized":false,"special":true}],"model":{"type":"BPE","merges":[],)"
                     R"("vocab":{)";
  for (size_t id = 0; id < tokens.size(); ++id) {
    json += id == 0 ? "\"" : ",\"";
    for (const char byte : tokens[id]) {
      if (byte == '"' || byte == '\\') json += '\\';
      json += letters[static_cast<uint8_t>(byte)];
    }
    json += "\":" + std::to_string(id);
  }
  return json + "}}}";
}

}  // namespace baton
