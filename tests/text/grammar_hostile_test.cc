// Grammars made to be slow, deep or large: an error, or a grammar whose masks stay cheap; never a
// crash, a hang or a panic that crosses.
#include <pthread.h>
#include <time.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "bench/synthetic_tokenizer.h"
#include "tests/text/grammar_walk.h"

namespace baton {
namespace {

using absl::StatusCode;
using absl::StrCat;
using grammar_walk::Model;

std::string Times(int count, std::string_view text) {
  std::string result;
  for (int i = 0; i < count; ++i) result += text;
  return result;
}

// `item` with N replaced by each number, joined.
std::string Numbered(int count, const std::string& item, const std::string& separator = ",") {
  std::string result;
  for (int i = 0; i < count; ++i) {
    const std::string number = StrCat(i), next = StrCat(i + 1);
    absl::StrAppend(&result, i == 0 ? std::string() : separator,
                    absl::StrReplaceAll(item, {{"NEXT", next}, {"N", number}}));
  }
  return result;
}

std::vector<GrammarSpec> HostileSpecs() {
  std::vector<GrammarSpec> specs;
  const auto schema = [&](std::string text) {
    specs.push_back({GrammarKind::kJsonSchema, std::move(text)});
  };
  const auto lark = [&](std::string text) {
    specs.push_back({GrammarKind::kLark, std::move(text)});
  };
  const auto regex = [&](const std::string& text) {
    specs.push_back({GrammarKind::kRegex, text});
    specs.push_back(
        {GrammarKind::kJsonSchema, boost::json::serialize(boost::json::value{{"pattern", text}})});
    specs.push_back({GrammarKind::kJsonSchema,
                     boost::json::serialize(boost::json::value{
                         {"type", "array"}, {"items", {{"type", "string"}, {"pattern", text}}}})});
  };
  // Deep.
  for (const char* open :
       {"[", "{\"items\":", "{\"anyOf\":[", "{\"properties\":{\"a\":", "{\"not\":"})
    schema(Times(60000 / static_cast<int>(std::string_view(open).size()), open));
  for (const int depth : {15, 31, 32, 33, 60, 1000}) {
    schema(StrCat(Times(depth, "{\"items\":"), "true", Times(depth, "}")));
    schema(StrCat(Times(depth, "{\"properties\":{\"a\":"), "true", Times(depth, "}}")));
    schema(StrCat(Times(depth, "{\"anyOf\":[{},"), "true", Times(depth, "]}")));
    schema(StrCat("{\"const\":", Times(depth, "["), Times(depth, "]"), "}"));
  }
  for (const int count : {30, 190, 1500})
    schema(StrCat(R"({"$ref":"#/$defs/0","$defs":{)",
                  Numbered(count, R"("N":{"items":{"$ref":"#/$defs/NEXT"}})"), ",\"", count,
                  "\":{}}}"));
  for (const int size : {22, 40}) {
    std::string defs;
    for (int i = 0; i < size; ++i)
      absl::StrAppend(&defs, i == 0 ? "" : ",", "\"", i, "\":{\"anyOf\":[",
                      Numbered(size, R"({"items":{"$ref":"#/$defs/N"}})"), "]}");
    schema(StrCat(R"({"$ref":"#/$defs/0","$defs":{)", defs, "}}"));
  }
  // Wide and multiplied out.
  for (const int count : {2, 3, 4, 8, 100})
    schema(StrCat(
        "{\"allOf\":[",
        Times(count - 1, StrCat("{\"anyOf\":[", Numbered(8, R"({"required":["aN"]})"), "]},")),
        "{}]}"));
  schema(StrCat("{\"allOf\":[{\"anyOf\":[", Numbered(1000, R"({"type":"object"})"),
                "]},{\"properties\":{", Numbered(1500, R"("pN":{})"), "}}]}"));
  schema(StrCat("{\"anyOf\":[", Times(20000, "{},"), "{}]}"));
  schema(StrCat("{\"oneOf\":[", Numbered(3000, R"({"const":"N"})"), "]}"));
  schema(StrCat("{\"oneOf\":[", Numbered(900, R"({"const":"N"})"), "]}"));
  schema(StrCat("{\"oneOf\":[", Numbered(60, R"({"enum":["aN","bN","cN","dN"]})"), "]}"));
  schema(StrCat("{\"type\":[", Times(6000, "\"string\","), "\"null\"]}"));
  for (const int count : {300, 1000, 3000}) {
    schema(StrCat("{\"properties\":{", Numbered(count, R"("pN":{})"), "}}"));
    schema(StrCat("{\"properties\":{", Numbered(count, R"("pN":{})"),
                  "},\"additionalProperties\":false}"));
    schema(StrCat("{\"required\":[", Numbered(count, "\"pN\""), "]}"));
    schema(StrCat("{\"required\":[", Numbered(count, "\"pN\""), "],\"minProperties\":", count + 5,
                  "}"));
    schema(StrCat("{\"enum\":[", Numbered(count, "\"value number N\""), "]}"));
    schema(StrCat("{\"enum\":[", Numbered(count, "[N,\"N\",{\"a\":N}]"), "]}"));
    schema(StrCat("{\"enum\":[", Numbered(count, "N.5"), "]}"));
  }
  for (const int count : {50, 1000, 10000}) {
    for (const char* bound : {"minItems", "maxItems", "minProperties", "maxProperties"})
      schema(StrCat("{\"", bound, "\":", count, "}"));
    schema(StrCat(Times(6, StrCat("{\"maxItems\":", count, ",\"items\":")), "{}", Times(6, "}")));
    schema(StrCat("{\"minLength\":", count * 10, "}"));
    schema(StrCat("{\"maxLength\":", count * 10, ",\"pattern\":\"^[a-z]+ [0-9]+$\"}"));
    schema(StrCat("{\"properties\":{\"a\":{},\"b\":{}},\"maxProperties\":", count,
                  ",\"additionalProperties\":{\"minProperties\":", count / 2, "}}"));
  }
  for (const char* number : {"1e-300", "1e300", "0.1", "7", "7919", "1e-7", "123456789", "1e17"})
    for (const char* type : {"integer", "number"})
      schema(StrCat("{\"type\":\"", type, "\",\"multipleOf\":", number,
                    ",\"minimum\":-1e18,\"maximum\":123456789012345678}"));
  for (const char* number : {"1e308", "-1e308", "5e-324", "0.1234567890123456789", "-0.0"})
    schema(StrCat("{\"type\":\"number\",\"minimum\":", number, ",\"maximum\":1.7e308}"));
  schema(StrCat("{\"patternProperties\":{", Numbered(16, R"("^aN_(x+x+)+y$":{})"), "}}"));
  schema(StrCat("{\"patternProperties\":{", Numbered(2000, R"("aN":{})"), "}}"));
  schema(StrCat("{\"patternProperties\":{", Numbered(16, R"("^N[a-z]{0,200}$":{})"),
                "},\"properties\":{", Numbered(1500, "\"0pN\":{}"), "}}"));
  schema(StrCat("{\"anyOf\":[", Numbered(10, R"({"format":"uri"},{"format":"ipv6","minLength":N})"),
                "]}"));
  schema(StrCat("{\"const\":\"", Times(60000, "x"), "\"}"));
  schema(StrCat("{\"title\":\"", Times(70000, "x"), "\"}"));
  // Regexes that are catastrophic for other engines, or large.
  for (const char* text :
       {"(a|aa)+$", "(x+x+)+y", "(.*a.*){20}", ".{0,30000}", "(.{0,1000}){0,1000}",
        "((a{0,100}){0,100}){0,100}", "(((((a{9}){9}){9}){9}){9}){9}",
        "\\p{L}{1,1000}\\p{N}{1,900}", "[^a]{5,1000}b[^c]{5,1000}", "(a?){500}a{500}",
        "(?i)(\\w+\\s?)*[^\\w]{3,300}", "(.|a){0,99}(.|b){0,99}(.|c){0,99}", ".*a.{0,20}b.{0,20}c",
        "(.*,){11}P", "a{0}", "(a*)*", "([ab]*a[ab]{30})", "(a|b)*a(a|b){200}"})
    regex(text);
  for (const int count : {490, 990, 10000}) regex(Times(count, "a?"));
  regex("(a?){10000}");
  regex(Times(30000, "."));
  regex(StrCat(Times(31, "("), "a", Times(31, ")*")));
  regex(Times(60000, "("));
  regex(StrCat("(", Numbered(5000, "wordN", "|"), ")*"));
  regex(StrCat("(", Numbered(100, "a.{0,100}N", "|"), ")"));
  for (const char* one : {".*a.{0,20}b", "(a|b)*a(a|b){30}", "[^x]{0,3000}", "^.{5,}$"})
    for (const int count : {2, 3, 6})
      schema(StrCat("{\"allOf\":[",
                    Numbered(count, StrCat(R"({"type":"string","pattern":")", one, "N\"}")), "]}"));
  schema(R"({"allOf":[{"multipleOf":997},{"multipleOf":991},{"multipleOf":983}]})");
  schema(R"({"type":"integer","multipleOf":10000,"minimum":-1e18})");
  // Lark.
  for (const char* open : {"(", "[", "~", "\"a\" (", "\"a\"? | (", "%ignore ", "a: "})
    lark(StrCat("start: ", Times(60000 / static_cast<int>(std::string_view(open).size()), open)));
  lark(StrCat("start: r0\n", Numbered(290, "rN: rNEXT \"a\"", "\n"), "\nr290: \"b\"\n"));
  lark(StrCat("start: T0\n", Numbered(290, "TN: TNEXT \"a\"", "\n"), "\nT290: \"b\"\n"));
  lark(StrCat("start: r0\n", Numbered(290, "rN: rNEXT rNEXT", "\n"), "\nr290: \"b\"\n"));
  lark(StrCat("start: T0\n", Numbered(290, "TN: TNEXT TNEXT", "\n"), "\nT290: \"b\"\n"));
  lark(StrCat("start: r0\n", Numbered(3000, "rN: \"a\"", "\n")));
  lark(StrCat("start: ", Numbered(5000, "\"wN\"", "|")));
  lark(StrCat("start: ", Numbered(5000, "/wN/", "|")));
  lark("start: start start | \"a\"");
  lark("start: start | \"\"");
  lark("start: a\na: b\nb: a");
  lark("start: \"a\"{0,100000000}");
  lark("start: (((\"a\"{0,1000}){0,1000}){0,1000}){0,1000}");
  lark("start: A\nA: ((\"a\"{0,1000}){0,1000}){0,1000}");
  lark("start: A\nA: ~/.*a.{0,20}/ & ~/.*b.{0,20}/ & ~/.*c.{0,20}/ & /[abc]{0,1000}/");
  lark(StrCat("start: A\nA: ", Times(1000, "/[^a]*/ & "), "/b/"));
  for (const int count : {900, 3000}) {
    lark(StrCat("start: ", Times(count, "\"a\"? "), "\"b\""));
    lark(StrCat("start: T\nT: ", Times(count, "\"a\"? "), "\"b\""));
  }
  lark(StrCat("start: ", Times(300, "x "), "\nx: \"a\" | \"\" | x x"));
  lark("start: (\"a\" | \"b\" | /./)* \"c\"\n%ignore /.*/");
  for (const char* special : {"<[0-99999999]>", "<[*]>", "<[^0]>", "<[5]>*", "<>", "<[-]>"})
    lark(StrCat("start: \"a\" ", special));
  specs.push_back({GrammarKind::kChoice, StrCat("[", Numbered(5000, "\"choice N\""), "]")});
  specs.push_back({GrammarKind::kChoice, StrCat("[\"", Times(60000, "x"), "\"]")});
  specs.push_back({GrammarKind::kParts, StrCat(Times(9000, "[{\"any\":["), "")});
  specs.push_back(
      {GrammarKind::kParts, StrCat("[", Numbered(900, R"({"schema":{"maxLength":N}})"), "]")});
  specs.push_back({GrammarKind::kParts, StrCat(Times(7, R"([{"repeat":)"), R"([{"text":"a"}])",
                                               Times(7, ",\"max\":1000}]"))});
  for (const int length : {1, 500, 50000})
    specs.push_back({GrammarKind::kParts,
                     StrCat(Times(7, R"([{"repeat":)"), R"([{"text":")", Times(length, "a"), "\"}]",
                            Times(7, R"(,"between":[{"text":";"}],"min":1,"max":9}])"))});
  return specs;
}

double ThreadSeconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

struct Worst {
  double compile = 0, mask = 0;
  std::string compiled, masked;
  int good = 0, bad = 0, cut = 0;
};

std::string Shortened(const GrammarSpec& spec) {
  return StrCat(static_cast<int>(spec.kind), ": ", spec.text.substr(0, 120));
}

// Compiles and goes some tokens; notes what takes longest.
void Try(const Model& model, const GrammarSpec& spec, std::mt19937_64& random, Worst* worst) {
  double begin = ThreadSeconds();
  const auto grammar = Grammar::Compile(spec, *model.vocabulary);
  const double compile = ThreadSeconds() - begin;
  if (compile > worst->compile) {
    worst->compile = compile;
    worst->compiled = StrCat(Shortened(spec), grammar.ok() ? "" : " -> ",
                             std::string(grammar.status().message()));
  }
  if (!grammar.ok()) {
    ++worst->bad;
    INFO(Shortened(spec) << " " << grammar.status());
    CHECK(grammar.status().code() == StatusCode::kInvalidArgument);
    return;
  }
  ++worst->good;
  GrammarMatcher matcher = (*grammar)->NewMatcher().value();
  std::vector<uint32_t> bits(model.vocabulary->mask_words());
  for (int step = 0; step < 12 && !matcher.done(); ++step) {
    begin = ThreadSeconds();
    absl::Status status = matcher.FillMask(bits);
    const double mask = ThreadSeconds() - begin;
    if (mask > worst->mask) {
      worst->mask = mask;
      worst->masked = StrCat(Shortened(spec), " step ", step, " ", std::string(status.message()));
    }
    std::vector<int32_t> allowed;
    for (int32_t id = 0; id < model.vocabulary->size(); ++id)
      if (bits[static_cast<size_t>(id) / 32] >> (id % 32) & 1) allowed.push_back(id);
    if (status.ok()) status = matcher.Push(allowed[random() % allowed.size()]);
    if (!status.ok()) {
      ++worst->cut;
      INFO(Shortened(spec) << " " << status);
      CHECK(status.code() == StatusCode::kResourceExhausted);
      CHECK(matcher.failed());
      return;
    }
  }
}

void Report(const Worst& worst) {
  UNSCOPED_INFO(worst.good << " compile, " << worst.bad << " are errors, " << worst.cut
                           << " hit a limit; the slowest to compile: " << worst.compile * 1e3
                           << " ms (" << worst.compiled << "); the slowest mask: "
                           << worst.mask * 1e3 << " ms (" << worst.masked << ")");
}

// Runs `work` on a thread of `stack` bytes; a stack overflow ends the test program.
template <typename Work>
void OnSmallStack(size_t stack, Work work) {
  pthread_attr_t attributes;
  REQUIRE(pthread_attr_init(&attributes) == 0);
  REQUIRE(pthread_attr_setstacksize(&attributes, stack) == 0);
  pthread_t thread;
  const auto run = [](void* argument) -> void* {
    (*static_cast<Work*>(argument))();
    return nullptr;
  };
  REQUIRE(pthread_create(&thread, &attributes, run, &work) == 0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
}

TEST_CASE("grammars made to be slow or deep end soon, on a small stack") {
  const Model model = grammar_walk::DemoModel();
  Worst worst;
  OnSmallStack(4 << 20, [&] {
    std::mt19937_64 random(1);
    for (const GrammarSpec& spec : HostileSpecs()) Try(model, spec, random, &worst);
  });
  Report(worst);
  CHECK(worst.good > 50);
  CHECK(worst.bad > 50);
  CHECK(worst.compile < 1.0);
  CHECK(worst.mask < 0.5);
}

// A command: making the vocabulary takes seconds and the bounds are those of a quiet machine.
TEST_CASE("hostile grammars with 128,000 tokens, by command", "[.][128k]") {
  Model model;
  model.tokenizer = Tokenizer::FromJson(SyntheticTokenizerJson(128'000, 1)).value();
  model.end = model.tokenizer->IdOf("<|end|>").value();
  model.vocabulary = GrammarVocabulary::Create(*model.tokenizer, std::span(&model.end, 1)).value();
  std::mt19937_64 random(1);
  for (const GrammarSpec& spec : HostileSpecs()) {
    Worst worst;
    Try(model, spec, random, &worst);
    Report(worst);
    CHECK(worst.compile < 0.2);
    CHECK(worst.mask < 0.1);
  }
}

TEST_CASE("grammars with random changes") {
  const Model model = grammar_walk::DemoModel();
  const std::vector<GrammarSpec> seeds = {
      {GrammarKind::kJsonSchema,
       R"({"type":"object","properties":{"a":{"type":"string","pattern":"^[a-z]{2,5}$"},
           "b":{"type":"array","items":{"$ref":"#/$defs/c"},"minItems":1,"maxItems":3}},
           "required":["a"],"additionalProperties":{"type":"number","minimum":-3.5,"multipleOf":0.5},
           "$defs":{"c":{"oneOf":[{"const":"x"},{"type":"integer","exclusiveMaximum":7},
           {"format":"date-time"}]}}})"},
      {GrammarKind::kRegex, R"((?i)[a-z_]{1,8}(\.\d{2,3}|\/\w*|[^"\\])+?(x|y{0,4})$)"},
      {GrammarKind::kChoice, R"(["red","green \"é\"","\\u0041\n"])"},
      {GrammarKind::kLark,
       "start: expr\nexpr: term ((\"+\" | \"-\") term)* // sum\nterm: NUMBER | \"(\" expr \")\" | "
       "<|im_end|>\nNUMBER: /[0-9]{1,3}/\n%ignore /[ ]{1,3}/\n"},
      {GrammarKind::kParts,
       R"J([{"text":"<call>"},{"any":[[{"text":"a("},{"schema":{"type":"integer"}}],
           [{"regex":"[a-z]+"},{"choice":["x","y"]}]]},{"token":5},
           {"repeat":[{"text":";"}],"min":1,"max":3}])J"},
  };
  static constexpr std::string_view kPieces =
      "{}[]()\"\\/,:.*+?|^$-09azAZ~<>@#%=&\n \x01\x7F\xC3\xA9";
  std::mt19937_64 random(7);
  Worst worst;
  for (int i = 0; i < 1500; ++i) {
    GrammarSpec spec = seeds[random() % seeds.size()];
    for (uint64_t n = 1 + random() % 4; n > 0 && !spec.text.empty(); --n) {
      const size_t at = random() % spec.text.size();
      const uint64_t what = random() % 4;
      if (what == 0) spec.text[at] = kPieces[random() % kPieces.size()];
      if (what == 1) spec.text.insert(at, 1, kPieces[random() % kPieces.size()]);
      if (what == 2) spec.text.erase(at, 1 + random() % 5);
      if (what == 3) spec.text.insert(at, spec.text.substr(random() % spec.text.size(), 12));
    }
    Try(model, spec, random, &worst);
  }
  Report(worst);
  CHECK(worst.good > 100);
  CHECK(worst.compile < 1.0);
  CHECK(worst.mask < 0.5);
}

}  // namespace
}  // namespace baton
