#include "text/token_list.h"

#include <algorithm>
#include <boost/json.hpp>
#include <tuple>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/status.h"

namespace baton {
namespace {

namespace json = boost::json;

constexpr std::string_view kSpace = "\u2581";  // SentencePiece's character for a space

// A way to split texts into words before byte-level BPE.
struct PreTokenizer {
  std::string_view name;
  std::string_view pattern;     // every match is a word
  bool single_digits = false;   // single digits are split first
  bool is_composed = false;     // texts are converted to NFC first
  bool ignores_merges = false;  // a word that is a token stays whole
  bool adds_begin = false;
};
constexpr std::string_view kGpt2Words =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr std::string_view kLlama3Words =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen2Words =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr PreTokenizer kPreTokenizers[] = {
    {.name = "llama-bpe", .pattern = kLlama3Words, .ignores_merges = true, .adds_begin = true},
    {.name = "qwen2", .pattern = kQwen2Words, .is_composed = true},
    {.name = "deepseek-r1-qwen", .pattern = kQwen2Words, .is_composed = true},
    {.name = "gpt-2", .pattern = kGpt2Words},
    {.name = "smollm", .pattern = kGpt2Words, .single_digits = true},
};

json::string Text(std::string_view text) { return json::string(text.data(), text.size()); }

// Returns a name of the file, quoted for an error.
std::string Shown(std::string_view text) { return json::serialize(json::value(Text(text))); }

using Ids = absl::flat_hash_map<std::string_view, size_t>;

absl::StatusOr<Ids> IdsOf(const TokenList& list) {
  if (list.tokens.empty()) return absl::InvalidArgumentError("there are no tokens");
  if (!list.types.empty() && list.types.size() != list.tokens.size()) {
    return absl::InvalidArgumentError(absl::StrFormat("there are %d tokens, but %d token types",
                                                      list.tokens.size(), list.types.size()));
  }
  Ids ids;
  for (size_t id = 0; id < list.tokens.size(); ++id) {
    const auto [found, is_new] = ids.emplace(list.tokens[id], id);
    if (is_new) continue;
    return absl::InvalidArgumentError(
        absl::StrFormat("tokens %d and %d are both %s", found->second, id, Shown(list.tokens[id])));
  }
  for (const std::optional<int64_t>& id : {list.begin, list.end, list.unknown}) {
    if (!id || (*id >= 0 && *id < static_cast<int64_t>(list.tokens.size()))) continue;
    return absl::InvalidArgumentError(
        absl::StrFormat("a special token has the id %d, but there are "
                        "%d tokens",
                        *id, list.tokens.size()));
  }
  return ids;
}

json::object Vocabulary(const TokenList& list) {
  json::object vocabulary;
  vocabulary.reserve(list.tokens.size());
  for (size_t id = 0; id < list.tokens.size(); ++id) {
    vocabulary.emplace(json::string_view(list.tokens[id].data(), list.tokens[id].size()), id);
  }
  return vocabulary;
}

// Returns tokens that are found in texts before anything else.
json::array AddedTokens(const TokenList& list) {
  json::array added;
  for (size_t id = 0; id < list.types.size(); ++id) {
    const int64_t type = list.types[id];
    const bool is_special = type == TokenList::kControl || type == TokenList::kUnknown;
    if (list.tokens[id].empty() || (!is_special && type != TokenList::kUserDefined)) continue;
    added.push_back(json::object{{"id", id},
                                 {"content", Text(list.tokens[id])},
                                 {"single_word", false},
                                 {"lstrip", false},
                                 {"rstrip", false},
                                 {"normalized", false},
                                 {"special", is_special}});
  }
  return added;
}

json::value ByteLevel() {
  return json::object{{"type", "ByteLevel"},
                      {"add_prefix_space", false},
                      {"trim_offsets", true},
                      {"use_regex", false}};
}

// Returns the tokens around a plain text, or null.
absl::StatusOr<json::value> Around(const TokenList& list, bool adds_begin) {
  adds_begin = list.adds_begin.value_or(adds_begin);
  const bool adds_end = list.adds_end.value_or(false);
  if (!adds_begin && !adds_end) return json::value(nullptr);
  json::array single;
  json::object special;
  const auto add = [&](std::optional<int64_t> id) {
    if (!id) return false;
    const json::string name = Text(list.tokens[static_cast<size_t>(*id)]);
    single.push_back(json::object{{"SpecialToken", {{"id", name}, {"type_id", 0}}}});
    special[name] =
        json::object{{"id", name}, {"ids", json::array{*id}}, {"tokens", json::array{name}}};
    return true;
  };
  bool is_complete = !adds_begin || add(list.begin);
  single.push_back(json::object{{"Sequence", {{"id", "A"}, {"type_id", 0}}}});
  is_complete &= !adds_end || add(list.end);
  if (!is_complete) {
    return absl::InvalidArgumentError(
        "a token is to be put before or after every text, but its id is missing");
  }
  json::array pair = single;
  pair.push_back(json::object{{"Sequence", {{"id", "B"}, {"type_id", 1}}}});
  return json::value(json::object{{"type", "TemplateProcessing"},
                                  {"single", std::move(single)},
                                  {"pair", std::move(pair)},
                                  {"special_tokens", std::move(special)}});
}

json::object Bpe(const TokenList& list, json::array merges) {
  return {{"type", "BPE"},
          {"dropout", nullptr},
          {"unk_token", nullptr},
          {"continuing_subword_prefix", nullptr},
          {"end_of_word_suffix", nullptr},
          {"fuse_unk", false},
          {"byte_fallback", false},
          {"ignore_merges", false},
          {"vocab", Vocabulary(list)},
          {"merges", std::move(merges)}};
}

std::string Whole(const TokenList& list, json::value normalizer, json::value words,
                  json::value around, json::value decoder, json::object model) {
  return json::serialize(json::object{{"version", "1.0"},
                                      {"truncation", nullptr},
                                      {"padding", nullptr},
                                      {"added_tokens", AddedTokens(list)},
                                      {"normalizer", std::move(normalizer)},
                                      {"pre_tokenizer", std::move(words)},
                                      {"post_processor", std::move(around)},
                                      {"decoder", std::move(decoder)},
                                      {"model", std::move(model)}});
}

// ---- byte-level BPE ----

absl::StatusOr<json::array> MergesOf(const TokenList& list, const Ids& ids) {
  json::array merges;
  merges.reserve(list.merges.size());
  for (size_t i = 0; i < list.merges.size(); ++i) {
    const std::string_view merge = list.merges[i];
    const size_t space = merge.find(' ', 1);  // the byte alphabet has no space
    const bool is_pair = space != std::string_view::npos && ids.contains(merge.substr(0, space)) &&
                         ids.contains(merge.substr(space + 1));
    if (!is_pair) {
      return absl::InvalidArgumentError(
          absl::StrFormat("merge %d, %s, is not of two tokens", i, Shown(merge)));
    }
    merges.push_back(json::array{Text(merge.substr(0, space)), Text(merge.substr(space + 1))});
  }
  return merges;
}

absl::StatusOr<const PreTokenizer*> FindPreTokenizer(std::string_view name) {
  std::string known;
  for (const PreTokenizer& pre : kPreTokenizers) {
    if (pre.name == name) return &pre;
    absl::StrAppend(&known, known.empty() ? "" : ", ", std::string(pre.name));
  }
  return absl::InvalidArgumentError(
      absl::StrFormat("tokenizer.ggml.pre is %s; supported: %s", Shown(name), known));
}

absl::StatusOr<std::string> ByteLevelJson(const TokenList& list, const Ids& ids) {
  ASSIGN_OR_RETURN(const PreTokenizer* const pre, FindPreTokenizer(list.pre));
  ASSIGN_OR_RETURN(json::array merges, MergesOf(list, ids));
  ASSIGN_OR_RETURN(json::value around, Around(list, pre->adds_begin));
  json::array words;
  if (pre->single_digits) {
    words.push_back(json::object{{"type", "Digits"}, {"individual_digits", true}});
  }
  words.push_back(json::object{{"type", "Split"},
                               {"pattern", {{"Regex", Text(pre->pattern)}}},
                               {"behavior", "Isolated"},
                               {"invert", false}});
  words.push_back(ByteLevel());
  json::value normalizer;
  if (pre->is_composed) normalizer = json::object{{"type", "NFC"}};
  json::object model = Bpe(list, std::move(merges));
  model["ignore_merges"] = pre->ignores_merges;
  return Whole(list, std::move(normalizer),
               json::object{{"type", "Sequence"}, {"pretokenizers", std::move(words)}},
               std::move(around), ByteLevel(), std::move(model));
}

// ---- SentencePiece BPE ----

size_t Characters(std::string_view text) {
  return static_cast<size_t>(std::count_if(
      text.begin(), text.end(), [](char c) { return (static_cast<uint8_t>(c) & 0xc0) != 0x80; }));
}

// Returns all pairs of tokens that make up a token: by the token's score, then the longer first
// parts.
json::array MergesByScore(const TokenList& list, const Ids& ids) {
  struct Merge {
    double score;
    size_t left_length, right_length;
    size_t left, right;
  };
  std::vector<Merge> all;
  for (size_t id = 0; id < list.tokens.size(); ++id) {
    const std::string_view token = list.tokens[id];
    const size_t first = all.size();
    for (size_t cut = 1; cut < token.size(); ++cut) {
      const auto left = ids.find(token.substr(0, cut)), right = ids.find(token.substr(cut));
      if (left == ids.end() || right == ids.end()) continue;
      all.push_back({list.scores[id], Characters(left->first), Characters(right->first),
                     left->second, right->second});
    }
    std::sort(all.begin() + static_cast<int64_t>(first), all.end(),
              [](const Merge& a, const Merge& b) {
                return std::tie(a.left, a.right) < std::tie(b.left, b.right);
              });
  }
  std::stable_sort(all.begin(), all.end(), [](const Merge& a, const Merge& b) {
    return std::tie(a.score, a.left_length, a.right_length) >
           std::tie(b.score, b.left_length, b.right_length);
  });
  json::array merges;
  merges.reserve(all.size());
  for (const Merge& merge : all) {
    merges.push_back(json::array{Text(list.tokens[merge.left]), Text(list.tokens[merge.right])});
  }
  return merges;
}

absl::StatusOr<std::string> SentencePieceJson(const TokenList& list, const Ids& ids) {
  if (list.scores.size() != list.tokens.size()) {
    return absl::InvalidArgumentError(absl::StrFormat("there are %d tokens, but %d token scores",
                                                      list.tokens.size(), list.scores.size()));
  }
  if (std::any_of(list.scores.begin(), list.scores.end(), [](double s) { return s != s; })) {
    return absl::InvalidArgumentError("a token score is not a number");
  }
  ASSIGN_OR_RETURN(json::value around, Around(list, true));
  const bool adds_space = list.adds_space.value_or(true);
  json::array normalizers, decoders;
  if (adds_space)
    normalizers.push_back(json::object{{"type", "Prepend"}, {"prepend", Text(kSpace)}});
  normalizers.push_back(
      json::object{{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", Text(kSpace)}});
  decoders.push_back(
      json::object{{"type", "Replace"}, {"pattern", {{"String", Text(kSpace)}}}, {"content", " "}});
  decoders.push_back(json::object{{"type", "ByteFallback"}});
  decoders.push_back(json::object{{"type", "Fuse"}});
  if (adds_space) {
    decoders.push_back(
        json::object{{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  }
  json::object model = Bpe(list, MergesByScore(list, ids));
  model["byte_fallback"] = model["fuse_unk"] = true;
  if (list.unknown) model["unk_token"] = Text(list.tokens[static_cast<size_t>(*list.unknown)]);
  return Whole(list, json::object{{"type", "Sequence"}, {"normalizers", std::move(normalizers)}},
               nullptr, std::move(around),
               json::object{{"type", "Sequence"}, {"decoders", std::move(decoders)}},
               std::move(model));
}

}  // namespace

absl::StatusOr<std::string> TokenizerJson(const TokenList& list) {
  const bool is_byte_level = list.model == "gpt2";
  if (!is_byte_level && list.model != "llama") {
    return absl::InvalidArgumentError(
        absl::StrFormat("tokenizer.ggml.model is %s; supported: gpt2, llama", Shown(list.model)));
  }
  ASSIGN_OR_RETURN(const Ids ids, IdsOf(list));
  return is_byte_level ? ByteLevelJson(list, ids) : SentencePieceJson(list, ids);
}

}  // namespace baton
