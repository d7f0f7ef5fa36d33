#include "bench/grammar_bench.h"

#include <time.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <random>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "bench/grammar_steps.h"
#include "bench/synthetic_tokenizer.h"
#include "engine/load_backend.h"
#include "text/grammar.h"
#include "text/grammar_compiler.h"
#include "text/tokenizer.h"

namespace baton {
namespace {

struct Subject {
  GrammarKind kind;
  std::string_view grammar, text;  // a text of the grammar
};

// Grammars as agents and extraction programs send them, from small to large.
constexpr Subject kSubjects[] = {
    {GrammarKind::kJsonObject, "",
     R"J({"title": "A day", "items": [1, 2.5, null, true, {"deep": ["x"]}], "note": "none"})J"},
    {GrammarKind::kJsonSchema,
     R"J({"type":"object","properties":{"location":{"type":"string"},
          "unit":{"enum":["celsius","fahrenheit"]}},"required":["location","unit"],
          "additionalProperties":false})J",
     R"J({"location": "Lisbon, Portugal", "unit": "celsius"})J"},
    {GrammarKind::kJsonSchema,
     R"J({"type":"object","properties":{"name":{"type":"string","maxLength":40},
          "age":{"type":"integer","minimum":0,"maximum":130},
          "email":{"type":"string","format":"email"},"born":{"type":"string","format":"date"},
          "tags":{"type":"array","items":{"type":"string","pattern":"^[a-z]{2,12}$"},"maxItems":8}},
          "required":["name","age","email","born","tags"],"additionalProperties":false})J",
     R"J({"name": "Mira Tolen", "age": 41, "email": "mira.tolen@mail.example",
          "born": "1984-02-29", "tags": ["red", "round", "small"]})J"},
    {GrammarKind::kJsonSchema,
     R"J({"type":"object","properties":{"orders":{"type":"array","items":{"$ref":"#/$defs/order"}},
          "total":{"type":"number"}},"required":["orders","total"],"$defs":{"order":{"type":"object",
          "properties":{"id":{"type":"string","format":"uuid"},"lines":{"type":"array","items":{
          "type":"object","properties":{"sku":{"type":"string"},"count":{"type":"integer"},
          "price":{"type":"number","minimum":0}},"required":["sku","count"]}},
          "status":{"enum":["new","paid","sent"]},"parent":{"anyOf":[{"$ref":"#/$defs/order"},
          {"type":"null"}]}},"required":["id","lines","status"],"additionalProperties":false}}})J",
     R"J({"orders": [{"id": "0f3c2a10-9b1d-4e55-8a76-001122334455", "lines": [{"sku": "box 7",
          "count": 3, "price": 12.5}], "status": "paid", "parent": null}], "total": 37.5})J"},
    {GrammarKind::kJsonSchema,
     R"J({"type":"array","items":{"anyOf":[{"type":"object","properties":{"op":{"const":"replace"},
          "path":{"type":"string"},"text":{"type":"string"}},"required":["op","path","text"]},
          {"type":"object","properties":{"op":{"const":"delete"},"path":{"type":"string"}},
          "required":["op","path"]}]},"minItems":1,"maxItems":20})J",
     R"J([{"op": "replace", "path": "src/main.cc", "text": "int main() {\n  return 0;\n}\n"},
          {"op": "delete", "path": "src/old file.cc"}])J"},
    {GrammarKind::kRegex, R"J([A-Z][a-z]+( [a-z]+){2,12}[.!?])J", "The cat sat on a small mat."},
    {GrammarKind::kRegex, R"J(\+?[0-9]{1,3}[ -]?\(?[0-9]{3}\)?[ -]?[0-9]{3}[ -]?[0-9]{4})J",
     "+1 (555) 010-4477"},
    {GrammarKind::kChoice, R"J(["positive","negative","neutral","not sure"])J", "neutral"},
    {GrammarKind::kLark,
     "start: query\nquery: \"SELECT \" names \" FROM \" NAME (\" WHERE \" cond)? \";\"\n"
     "names: NAME (\", \" NAME)*\ncond: NAME OP (NUMBER | STRING) ((\" AND \" | \" OR \") cond)?\n"
     "OP: \" = \" | \" < \" | \" > \"\nNAME: /[a-z_]{1,20}/\nNUMBER: /[0-9]{1,9}/\n"
     "STRING: /'[^']{0,60}'/\n",
     "SELECT name, age FROM people WHERE age > 30 AND city = 'Porto';"},
    {GrammarKind::kParts,
     R"J([{"text":"<tool_call>\n"},{"any":[[{"text":"{\"name\": \"search\", \"arguments\": "},
          {"schema":{"type":"object","properties":{"query":{"type":"string"},
          "limit":{"type":"integer","maximum":50}},"required":["query"]}}],
          [{"text":"{\"name\": \"open\", \"arguments\": "},{"schema":{"type":"object",
          "properties":{"url":{"type":"string","format":"uri"}},"required":["url"]}}]]},
          {"text":"}\n</tool_call>"}])J",
     "<tool_call>\n{\"name\": \"search\", \"arguments\": {\"query\": \"weather in Porto\", "
     "\"limit\": 5}}\n</tool_call>"},
};

using Microseconds = std::vector<double>;

// The thread's processor time: what other processes of a shared machine take is not in it.
double ThreadMicroseconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) * 1e-3;
}

// Runs `work` and adds its time.
template <typename Work>
auto Timed(Microseconds* times, Work work) {
  const double begin = ThreadMicroseconds();
  auto result = work();
  times->push_back(ThreadMicroseconds() - begin);
  return result;
}

struct Times {
  Microseconds compile, matcher, mask, random_mask, push;
};

bool IsAllowed(const std::vector<uint32_t>& bits, int32_t id) {
  return (bits[static_cast<size_t>(id) / 32] >> (id % 32) & 1) != 0;
}

// The longest allowed token that begins `text`.
int32_t Longest(const Tokenizer& tokenizer, const std::vector<uint32_t>& bits,
                std::string_view text) {
  int32_t best = -1;
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    const std::string_view bytes = tokenizer.TokenBytes(id);
    if (!bytes.empty() && text.starts_with(bytes) && IsAllowed(bits, id) &&
        (best < 0 || bytes.size() > tokenizer.TokenBytes(best).size()))
      best = id;
  }
  return best;
}

absl::Status MeasureText(const Tokenizer& tokenizer, const Grammar& grammar, std::string_view text,
                         std::vector<uint32_t>* bits, Times* times) {
  ASSIGN_OR_RETURN(GrammarMatcher matcher,
                   Timed(&times->matcher, [&] { return grammar.NewMatcher(); }));
  while (!text.empty()) {
    RETURN_IF_ERROR(Timed(&times->mask, [&] { return matcher.FillMask(*bits); }));
    const int32_t token = Longest(tokenizer, *bits, text);
    if (token < 0)
      return absl::InternalError(
          absl::StrCat("no token of the grammar begins ", std::string(text)));
    RETURN_IF_ERROR(Timed(&times->push, [&] { return matcher.Push(token); }));
    text.remove_prefix(tokenizer.TokenBytes(token).size());
  }
  if (!matcher.accepting()) return absl::InternalError("a text ends before its grammar");
  return absl::OkStatus();
}

absl::Status MeasureRandom(const Grammar& grammar, int max_tokens, std::mt19937_64* random,
                           std::vector<uint32_t>* bits, Times* times) {
  ASSIGN_OR_RETURN(GrammarMatcher matcher, grammar.NewMatcher());
  for (int i = 0; i < max_tokens && !matcher.done(); ++i) {
    RETURN_IF_ERROR(Timed(&times->random_mask, [&] { return matcher.FillMask(*bits); }));
    std::vector<int32_t> allowed;
    for (size_t id = 0; id < bits->size() * 32; ++id)
      if (IsAllowed(*bits, static_cast<int32_t>(id))) allowed.push_back(static_cast<int32_t>(id));
    RETURN_IF_ERROR(matcher.Push(allowed[(*random)() % allowed.size()]));
  }
  return absl::OkStatus();
}

double Quantile(Microseconds times, double share) {
  std::sort(times.begin(), times.end());
  return times[static_cast<size_t>(share * static_cast<double>(times.size() - 1))];
}

void AddLines(const std::string& name, const Microseconds& times,
              std::vector<KernelResult>* results) {
  if (times.empty()) return;
  for (const auto& [label, share] :
       {std::pair{"p50", 0.5}, std::pair{"p99", 0.99}, std::pair{"max", 1.0}}) {
    results->push_back({.name = absl::StrCat(name, ", ", label),
                        .value = Quantile(times, share),
                        .unit = "us",
                        .note = absl::StrCat("of ", times.size())});
  }
}

absl::StatusOr<std::unique_ptr<Tokenizer>> Load(const GrammarBenchOptions& options) {
  if (!options.tokenizer.empty()) return Tokenizer::FromFolder(options.tokenizer);
  if (options.vocab < 2048 || options.vocab > 1'000'000)
    return absl::InvalidArgumentError("--vocab must be from 2048 to 1000000");
  return Tokenizer::FromJson(SyntheticTokenizerJson(options.vocab, options.seed));
}

// Steps of a model, and the masks' share of one.
absl::Status AddSteps(const GrammarBenchOptions& options, const Tokenizer& tokenizer,
                      const Times& masks, std::vector<KernelResult>* results) {
  EngineOptions engine = options.engine;
  engine.limits.max_step_tokens = std::max(options.rows, 256);
  ASSIGN_OR_RETURN(std::unique_ptr<Backend> backend, LoadBackend(engine));
  if (backend->model().vocab < tokenizer.vocab_size())
    return absl::InvalidArgumentError(
        absl::StrCat("--vocab must be at most the model's, ", backend->model().vocab));
  const int32_t end = tokenizer.vocab_size() - 1;
  GrammarCompiler compiler(&tokenizer, {end});
  std::vector<SharedGrammar> grammars;
  for (const Subject& subject : kSubjects) {
    ASSIGN_OR_RETURN(grammars.emplace_back(),
                     compiler.Compile({subject.kind, std::string(subject.grammar)}));
  }
  ASSIGN_OR_RETURN(const auto steps,
                   GrammarSteps::Make(std::move(backend), std::move(grammars), end, options.rows,
                                      options.context, options.seed));
  ASSIGN_OR_RETURN(const GrammarSteps::Times times, steps->Run(options.steps));
  const std::string rows = absl::StrCat("step of ", options.rows, " rows");
  AddLines("step of one row", times.one_row, results);
  AddLines(rows, times.all_rows, results);
  AddLines(absl::StrCat(rows, " with grammars"), times.constrained, results);
  const auto add_share = [&](const std::string& name, double part, double whole) {
    results->push_back({.name = name, .value = 100 * part / whole, .unit = "%"});
  };
  const auto sum = [](const Microseconds& of) {
    return std::accumulate(of.begin(), of.end(), 0.0);
  };
  // Neighbours have met the same state of the machine.
  Microseconds pairs;
  for (size_t i = 0; i < times.constrained.size(); ++i)
    pairs.push_back(times.constrained[i] / times.all_rows[i]);
  add_share("with grammars, of the step without beside it: p50", Quantile(pairs, 0.5), 1);
  add_share("with grammars, of without: all steps", sum(times.constrained), sum(times.all_rows));
  const double step = Quantile(times.one_row, 0.5);
  add_share("mask p99, typical text, of a step of one row", Quantile(masks.mask, 0.99), step);
  add_share("mask p99, random text, of a step of one row", Quantile(masks.random_mask, 0.99), step);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<KernelResult>> MeasureGrammars(const GrammarBenchOptions& options) {
  ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> tokenizer, Load(options));
  Microseconds vocabulary_time;
  const int32_t end = tokenizer->vocab_size() - 1;
  ASSIGN_OR_RETURN(const std::unique_ptr<GrammarVocabulary> vocabulary,
                   Timed(&vocabulary_time, [&] {
                     return GrammarVocabulary::Create(*tokenizer, std::span(&end, 1));
                   }));
  std::vector<uint32_t> bits(vocabulary->mask_words());
  std::mt19937_64 random(options.seed);
  Times times;
  for (const Subject& subject : kSubjects) {
    ASSIGN_OR_RETURN(
        const std::unique_ptr<Grammar> grammar, Timed(&times.compile, [&] {
          return Grammar::Compile({subject.kind, std::string(subject.grammar)}, *vocabulary);
        }));
    for (int round = 0; round < options.rounds; ++round) {
      RETURN_IF_ERROR(MeasureText(*tokenizer, *grammar, subject.text, &bits, &times));
      RETURN_IF_ERROR(MeasureRandom(*grammar, options.max_tokens, &random, &bits, &times));
    }
  }
  std::vector<KernelResult> results;
  results.push_back({.name = absl::StrCat("vocabulary of ", vocabulary->size(), " tokens"),
                     .value = vocabulary_time[0],
                     .unit = "us"});
  AddLines("compile", times.compile, &results);
  AddLines("new matcher", times.matcher, &results);
  AddLines("mask, typical text", times.mask, &results);
  AddLines("mask, random text", times.random_mask, &results);
  AddLines("token pushed", times.push, &results);
  if (!options.engine.model.empty())
    RETURN_IF_ERROR(AddSteps(options, *tokenizer, times, &results));
  return results;
}

absl::Status RunGrammarBench(const GrammarBenchOptions& options) {
  ASSIGN_OR_RETURN(const std::vector<KernelResult> results, MeasureGrammars(options));
  PrintKernelTable("grammars", results);
  if (options.json) PrintKernelJson("", results);
  return absl::OkStatus();
}

}  // namespace baton
