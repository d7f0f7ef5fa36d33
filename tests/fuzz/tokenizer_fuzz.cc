// Tokenizer, SegmentCache, Detokenizer and StopMatcher on any bytes, with the tokenizers of the
// tests: what is encoded is decoded, and streams in pieces are the whole.
#include <boost/json.hpp>
#include <map>
#include <memory>

#include "absl/strings/str_replace.h"
#include "common/check.h"
#include "tests/fuzz/file_text.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/fuzz_target.h"
#include "text/detokenizer.h"
#include "text/stop_matcher.h"
#include "text/tokenizer.h"

namespace baton {
namespace {

using Ids = std::vector<int32_t>;

// The way from a text to what its tokens decode to.
enum class RoundTrip {
  kExact,
  kSpaces,  // U+2581 becomes a space
  kStable,  // decoded texts stay (NFC)
  kOther    // spaces at the beginning come and go
};

struct Family {
  Family(const std::string& folder, RoundTrip round_trip)
      : tokenizer(Tokenizer::FromFolder(SourcePath(folder)).value()), trip(round_trip) {
    const boost::json::value names = boost::json::parse(tokenizer->SpecialTokens().value());
    for (const boost::json::value& name : names.as_array())
      specials.emplace_back(name.as_string().data(), name.as_string().size());
  }

  std::unique_ptr<Tokenizer> tokenizer;
  RoundTrip trip;
  std::vector<std::string> specials;
  // Small, so that entries go.
  std::unique_ptr<SegmentCache> cache = std::make_unique<SegmentCache>(16 << 10);
};

const std::vector<Family>& Families() {
  static const std::vector<Family>* const families = [] {
    auto* made = new std::vector<Family>;
    made->emplace_back("models/demo", RoundTrip::kExact);
    made->emplace_back("tests/data/tokenizers/llama3", RoundTrip::kExact);
    made->emplace_back("tests/data/tokenizers/llama3-small", RoundTrip::kExact);
    made->emplace_back("tests/data/tokenizers/qwen2", RoundTrip::kStable);
    made->emplace_back("tests/data/tokenizers/gemma", RoundTrip::kSpaces);
    made->emplace_back("tests/data/tokenizers/llama2", RoundTrip::kOther);
    made->emplace_back("tests/data/tokenizers/mistral", RoundTrip::kOther);
    return made;
  }();
  return *families;
}

size_t Specials(const Tokenizer& tokenizer, const Ids& ids) {
  size_t n = 0;
  for (const int32_t id : ids) n += tokenizer.IsSpecial(id);
  return n;
}

std::string Decoded(const Tokenizer& tokenizer, const Ids& ids) {
  return tokenizer.Decode(ids, false).value();
}

void CheckRoundTrip(const Family& family, const std::string& text, const Ids& ids) {
  const std::string decoded = Decoded(*family.tokenizer, ids);
  switch (family.trip) {
    case RoundTrip::kExact:
      BATON_CHECK(decoded == text);
      break;
    case RoundTrip::kSpaces:
      BATON_CHECK(decoded == absl::StrReplaceAll(text, {{"\u2581", " "}}));
      break;
    case RoundTrip::kStable:
      BATON_CHECK(Decoded(*family.tokenizer, family.tokenizer->Encode(decoded, false).value()) ==
                  decoded);
      break;
    case RoundTrip::kOther:
      break;
  }
}

// The places where a text spells a special token, the longest one at each place.
std::vector<PromptText::Place> PlacesOf(const Family& family, const std::string& text) {
  std::vector<PromptText::Place> places;
  for (size_t at = 0; at < text.size();) {
    size_t length = 0;
    for (const std::string& special : family.specials)
      if (text.compare(at, special.size(), special) == 0) length = std::max(length, special.size());
    if (length > 0)
      places.push_back({static_cast<uint32_t>(at), static_cast<uint32_t>(at + length)});
    at += std::max<size_t>(length, 1);
  }
  return places;
}

// Streams of tokens: joined pieces are the bytes, with each invalid part replaced.
void CheckStream(const Tokenizer& tokenizer, const Ids& ids, const DetokenizerOptions& options) {
  Detokenizer detokenizer(&tokenizer, options);
  std::string text, bytes;
  for (const int32_t id : ids) {
    const std::string piece = detokenizer.Push(id);
    BATON_CHECK(ValidUtf8(piece) == piece);
    BATON_CHECK(detokenizer.n_held() <= 3);
    text += piece;
    bytes += detokenizer.last_bytes();
  }
  text += detokenizer.Finish();
  BATON_CHECK(text == ValidUtf8(bytes));
  if (options.starts_text || options.skip_special_tokens) return;
  std::string all;
  for (const int32_t id : ids) all += tokenizer.TokenBytes(id);
  BATON_CHECK(bytes == all);
}

void TryText(const Family& family, const std::string& text, FuzzInput& input) {
  const Tokenizer& tokenizer = *family.tokenizer;
  const auto encoded = tokenizer.Encode(text, false);
  if (ValidUtf8(text) != text) {
    BATON_CHECK(absl::IsInvalidArgument(encoded.status()));
    return;
  }
  const Ids& ids = encoded.value();
  for (const int32_t id : ids) BATON_CHECK(tokenizer.IsToken(id));
  BATON_CHECK(text.size() <= ids.size() * tokenizer.longest_token_bytes());
  CheckRoundTrip(family, text, ids);
  CheckStream(tokenizer, ids, {.skip_special_tokens = false});
  CheckStream(tokenizer, ids, {.starts_text = true});

  PromptText prompt{.text = text};
  BATON_CHECK(tokenizer.Encode(prompt, false).value() == ids);
  // A text in which no special token counts, and one in which some do.
  prompt.controls.emplace();
  const Ids plain = tokenizer.Encode(prompt, false).value();
  BATON_CHECK(Specials(tokenizer, plain) == 0);
  if (family.trip == RoundTrip::kExact) BATON_CHECK(Decoded(tokenizer, plain) == text);
  const std::vector<PromptText::Place> places = PlacesOf(family, text);
  if (places.empty()) BATON_CHECK(plain == ids);
  for (const PromptText::Place& place : places)
    if (input.random()() % 2 == 0) prompt.controls->push_back(place);
  const Ids some = tokenizer.Encode(prompt, false).value();
  BATON_CHECK(Specials(tokenizer, some) <= prompt.controls->size());
  if (family.trip == RoundTrip::kExact) BATON_CHECK(Decoded(tokenizer, some) == text);
  for (int i = 0; i < 2; ++i)
    BATON_CHECK(tokenizer.Encode(prompt, false, family.cache.get()).value() == some);
}

void TryIds(const Family& family, std::string_view bytes, bool skip_special_tokens) {
  const Tokenizer& tokenizer = *family.tokenizer;
  Ids ids;
  for (size_t i = 0; i + 1 < bytes.size(); i += 2) {
    const auto at = [&](size_t k) { return static_cast<unsigned char>(bytes[k]); };
    ids.push_back(at(i) + 256 * at(i + 1) - 16);  // negative ones and some without a token too
  }
  const auto decoded = tokenizer.Decode(ids, skip_special_tokens);
  const DetokenizerOptions options{.skip_special_tokens = skip_special_tokens};
  CheckStream(tokenizer, ids, options);
  CheckStream(tokenizer, ids, {.starts_text = true});
  if (family.trip != RoundTrip::kExact) return;
  Detokenizer detokenizer(&tokenizer, options);
  std::string text;
  for (const int32_t id : ids) text += detokenizer.Push(id);
  BATON_CHECK(decoded.value() == text + detokenizer.Finish());
}

// The match that ends first, and of these the longest, by trying them all.
std::pair<std::string, int> FirstStop(const std::string& text,
                                      const std::vector<std::string>& stops) {
  for (size_t end = 1; end <= text.size(); ++end) {
    int best = -1;
    const std::string_view head = std::string_view(text).substr(0, end);
    for (size_t i = 0; i < stops.size(); ++i) {
      const bool is_longer = best < 0 || stops[i].size() > stops[static_cast<size_t>(best)].size();
      if (head.ends_with(stops[i]) && is_longer) best = static_cast<int>(i);
    }
    if (best >= 0)
      return {std::string(head.substr(0, end - stops[static_cast<size_t>(best)].size())), best};
  }
  return {text, -1};
}

void TryStops(FuzzInput& input) {
  std::vector<std::string> stops(1 + input.Below(kMaxStopStrings));
  for (std::string& stop : stops) stop = input.Upto('\0');
  const std::string text(input.Rest());
  auto matcher = StopMatcher::Create(stops);
  for (const std::string& stop : stops) {
    if (!stop.empty() && stop.size() <= kMaxStopBytes) continue;
    BATON_CHECK(!matcher.ok());
    return;
  }
  std::string told;
  int found = -1;
  for (size_t at = 0; at < text.size() && found < 0;) {
    const size_t size = 1 + input.random()() % 9;
    StopMatcher::Result result = matcher->Push(std::string_view(text).substr(at, size));
    told += result.text;
    found = result.stop;
    at += size;
  }
  if (found < 0) told += matcher->Finish();
  const auto [expected, stop] = FirstStop(text, stops);
  BATON_CHECK(told == expected);
  BATON_CHECK((found < 0) == (stop < 0));
  if (found >= 0)
    BATON_CHECK(stops[static_cast<size_t>(found)] == stops[static_cast<size_t>(stop)]);
}

}  // namespace

void TryInput(std::string_view bytes) {
  FuzzInput input(bytes);
  const Family& family = Families()[input.Below(Families().size())];
  switch (input.Below(4)) {
    case 0:
    case 1:
      return TryText(family, std::string(input.Rest()), input);
    case 2: {
      const bool skips = input.Bool();
      return TryIds(family, input.Rest(), skips);
    }
    default:
      return TryStops(input);
  }
}

FuzzSeeds MakeSeeds() {
  const std::vector<std::string> texts = {
      "",
      " Hello  world,\n\n\tit's 12345 o'clock!  ",
      "caf\u00e9 cafe\u0301 \u2581\u2581 \u65e5\u672c\u8a9e \U0001f600\u200d\U0001f525 \ufeff",
      "int main() { return 0; } // \r\n#!/bin/sh",
      "a\0b\x7f\u0085\u00a0\u2028",
      "\xff\xc3 half"};
  FuzzSeeds seeds;
  for (size_t family = 0; family < Families().size(); ++family) {
    const std::vector<std::string>& specials = Families()[family].specials;
    seeds.words.insert(seeds.words.end(), specials.begin(), specials.end());
    const std::string head{static_cast<char>(family)};
    for (const std::string& text : texts) seeds.inputs.push_back(head + '\0' + text);
    std::string chat;
    for (const std::string& special : specials) chat += special + "hi " + special.substr(1) + "\n";
    seeds.inputs.push_back(head + '\0' + chat);
    std::string ids;
    for (int i = 0; i < 120; ++i) ids += {static_cast<char>(i * 37), static_cast<char>(i % 11)};
    seeds.inputs.push_back(head + '\2' + '\1' + ids);
  }
  seeds.inputs.push_back(std::string("\0\3\2ab\0bc\0abcd\0xxabxabcdbc", 24));
  for (const char* word : {"\u2581", "\u0301", "\u212a", "\u037e", "'re", "\r\n", "\u3000"})
    seeds.words.emplace_back(word);
  return seeds;
}

}  // namespace baton
