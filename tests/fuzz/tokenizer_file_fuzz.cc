// tokenizer.json files that nobody vouches for: loaded or refused, and what is loaded works.
#include <boost/json.hpp>

#include "absl/strings/str_cat.h"
#include "tests/fuzz/checked_tokenizer.h"
#include "tests/fuzz/file_text.h"
#include "tests/fuzz/fuzz_target.h"
#include "text/token_list.h"

namespace baton {
namespace {

namespace json = boost::json;

// The parts of a tokenizer.json that stand between the others. Each kind that the library knows is
// in one of them.
constexpr const char* kModels[] = {
    R"({"type":"BPE","dropout":null,"unk_token":"u","continuing_subword_prefix":null,)"
    R"("end_of_word_suffix":null,"fuse_unk":true,"byte_fallback":true,"ignore_merges":false,)"
    R"("vocab":{"u":0,"a":1,"b":2,"ab":3,"<0x0A>":4,"abab":6,"\u2581":7},)"
    R"("merges":[["a","b"],["ab","ab"]]})",
    R"({"type":"BPE","vocab":{"a":0,"b</w>":1,"ab</w>":2},"merges":["a b</w>"],)"
    R"("end_of_word_suffix":"</w>","ignore_merges":true})",
    R"({"type":"WordPiece","unk_token":"u","continuing_subword_prefix":"##",)"
    R"("max_input_chars_per_word":100,"vocab":{"u":0,"a":1,"##b":2}})",
    R"({"type":"WordLevel","unk_token":"u","vocab":{"u":0,"a":1,"b":5}})",
    R"({"type":"Unigram","unk_id":0,"byte_fallback":false,)"
    R"("vocab":[["u",0.0],["a",-1.5],["b",-2.0],["ab",-2.5],["\u2581",-3.0]]})",
};
constexpr const char* kNormalizers[] = {
    "null",
    R"({"type":"Sequence","normalizers":[{"type":"Prepend","prepend":"\u2581"},)"
    R"({"type":"Replace","pattern":{"String":" "},"content":"\u2581"}]})",
    R"({"type":"BertNormalizer","clean_text":true,"handle_chinese_chars":true,)"
    R"("strip_accents":null,"lowercase":true})",
    R"({"type":"Sequence","normalizers":[{"type":"NFD"},{"type":"StripAccents"},)"
    R"({"type":"Lowercase"},{"type":"Strip","strip_left":true,"strip_right":true},)"
    R"({"type":"NFKC"},{"type":"Nmt"},{"type":"Replace","pattern":{"Regex":"a+"},"content":""}]})",
};
constexpr const char* kPreTokenizers[] = {
    "null",
    R"({"type":"Metaspace","replacement":"\u2581","prepend_scheme":"first","split":true})",
    R"({"type":"Sequence","pretokenizers":[{"type":"Split","pattern":{"Regex":)"
    R"("(?i:'s|'t)|\\p{L}+|\\s+(?!\\S)|[^\\s]"},"behavior":"Isolated","invert":false},)"
    R"({"type":"ByteLevel","add_prefix_space":true,"trim_offsets":true,"use_regex":true}]})",
    R"({"type":"Sequence","pretokenizers":[{"type":"Digits","individual_digits":true},)"
    R"({"type":"Punctuation","behavior":"MergedWithNext"},{"type":"UnicodeScripts"},)"
    R"({"type":"CharDelimiterSplit","delimiter":"x"},{"type":"BertPreTokenizer"},)"
    R"({"type":"WhitespaceSplit"},{"type":"Whitespace"}]})",
};
constexpr const char* kDecoders[] = {
    R"({"type":"ByteLevel","add_prefix_space":true,"trim_offsets":true,"use_regex":true})",
    R"({"type":"Metaspace","replacement":"\u2581","prepend_scheme":"always","split":true})",
    R"({"type":"Sequence","decoders":[{"type":"Replace","pattern":{"String":"\u2581"},)"
    R"("content":" "},{"type":"ByteFallback"},{"type":"Fuse"},)"
    R"({"type":"Strip","content":" ","start":1,"stop":0}]})",
};
constexpr const char* kProcessors[] = {
    "null",
    R"({"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"u","type_id":0}},)"
    R"({"Sequence":{"id":"A","type_id":0}}],"pair":[{"Sequence":{"id":"A","type_id":0}},)"
    R"({"Sequence":{"id":"B","type_id":1}}],)"
    R"("special_tokens":{"u":{"id":"u","ids":[0],"tokens":["u"]}}})",
    R"({"type":"BertProcessing","sep":["u",0],"cls":["a",1]})",
    R"({"type":"RobertaProcessing","sep":["u",0],"cls":["a",1],"trim_offsets":true,)"
    R"("add_prefix_space":false})",
};
constexpr char kAddedTokens[] =
    R"([{"id":0,"content":"u","single_word":false,"lstrip":false,"rstrip":false,)"
    R"("normalized":false,"special":true},{"id":9,"content":"<a b>","single_word":true,)"
    R"("lstrip":true,"rstrip":true,"normalized":true,"special":false}])";

std::string FileOf(size_t i) {
  return absl::StrCat(R"({"version":"1.0","truncation":null,"padding":null,"added_tokens":)",
                      i % 3 == 0 ? "[]" : kAddedTokens, R"(,"normalizer":)",
                      kNormalizers[i % std::size(kNormalizers)], R"(,"pre_tokenizer":)",
                      kPreTokenizers[i / 2 % std::size(kPreTokenizers)], R"(,"post_processor":)",
                      kProcessors[i / 3 % std::size(kProcessors)], R"(,"decoder":)",
                      kDecoders[i % std::size(kDecoders)], R"(,"model":)",
                      kModels[i % std::size(kModels)], "}");
}

// The strings of a document, keys too.
void AddStrings(const json::value& value, std::vector<std::string>* out) {
  if (value.is_string()) out->push_back("\"" + std::string(value.get_string().c_str()) + "\"");
  if (value.is_array())
    for (const json::value& item : value.get_array()) AddStrings(item, out);
  if (!value.is_object()) return;
  for (const auto& [key, member] : value.get_object()) {
    out->push_back("\"" + std::string(key) + "\":");
    AddStrings(member, out);
  }
}

}  // namespace

void TryInput(std::string_view bytes) {
  const auto tokenizer = Tokenizer::FromJson(bytes);
  if (!tokenizer.ok()) {
    BATON_CHECK(!tokenizer.status().message().empty());
    BATON_CHECK(absl::IsInvalidArgument(tokenizer.status()) ||
                absl::IsInternal(tokenizer.status()));  // a panic of the library is caught
    return;
  }
  CheckTokens(**tokenizer);
  for (const char* text : {"", "ab abu <a b> b\n", " a1.\u00c9\u4e2d x\U0001f600"})
    CheckUse(**tokenizer, text);
}

FuzzSeeds MakeSeeds() {
  FuzzSeeds seeds;
  for (size_t i = 0; i < 60; ++i) seeds.inputs.push_back(FileOf(i));
  TokenList list;
  list.model = "gpt2";
  list.pre = "llama-bpe";
  list.tokens = {"a", "b", "ab", "<s>"};
  list.types = {1, 1, 1, 3};
  list.merges = {"a b"};
  list.begin = 3;
  seeds.inputs.push_back(TokenizerJson(list).value());
  for (size_t i = 0; i < 60; ++i) AddStrings(json::parse(FileOf(i)), &seeds.words);
  std::sort(seeds.words.begin(), seeds.words.end());
  seeds.words.erase(std::unique(seeds.words.begin(), seeds.words.end()), seeds.words.end());
  for (const char* word : {"4294967295", "16777216", "-1", "1e400", "null", "\\\\u0000"})
    seeds.words.emplace_back(word);
  return seeds;
}

}  // namespace baton
