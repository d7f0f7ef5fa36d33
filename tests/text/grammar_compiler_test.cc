// The compiler remembers grammars, and what it gives to the workers is what the grammar's own
// matcher says.
#include "text/grammar_compiler.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <thread>

#include "absl/strings/str_cat.h"
#include "tests/text/grammar_walk.h"

namespace baton {
namespace {

using grammar_walk::DemoModel;
using grammar_walk::Model;

struct Compiling {
  Model model = DemoModel();
  GrammarCompiler compiler{model.tokenizer.get(), {model.end}};
};

GrammarSpec Choice(int i) { return {GrammarKind::kChoice, absl::StrCat("[\"c", i, "\"]")}; }

TEST_CASE("a grammar is compiled once and forgotten when many others came after it") {
  Compiling c;
  CHECK(c.compiler.Find(Choice(0)) == nullptr);
  const auto first = c.compiler.Compile(Choice(0));
  REQUIRE(first.ok());
  CHECK(c.compiler.Find(Choice(0)) == *first);
  CHECK(*c.compiler.Compile(Choice(0)) == *first);
  CHECK(c.compiler.Find({GrammarKind::kLark, Choice(0).text}) == nullptr);  // another kind
  for (int i = 1; i <= 127; ++i) REQUIRE(c.compiler.Compile(Choice(i)).ok());
  CHECK(c.compiler.Find(Choice(0)) == *first);  // and now it is the latest
  for (int i = 128; i <= 254; ++i) REQUIRE(c.compiler.Compile(Choice(i)).ok());
  CHECK(c.compiler.Find(Choice(0)) == *first);
  for (int i = 300; i <= 427; ++i) REQUIRE(c.compiler.Compile(Choice(i)).ok());
  CHECK(c.compiler.Find(Choice(0)) == nullptr);
  CHECK((*first)->NewMatcher().ok());  // whoever has it keeps it
}

TEST_CASE("the masks of a compiled grammar are those of the grammar") {
  Compiling c;
  const GrammarSpec spec{GrammarKind::kRegex, "[ab]{3}"};
  const auto compiled = c.compiler.Compile(spec);
  REQUIRE(compiled.ok());
  const auto matcher = (*compiled)->NewMatcher();
  REQUIRE(matcher.ok());
  GrammarMatcher own = grammar_walk::MatcherOf(c.model, spec.kind, spec.text);
  for (int i = 0; i < 4; ++i) {
    std::vector<uint32_t> bits((*matcher)->mask_words());
    REQUIRE((*matcher)->FillMask(bits).ok());
    CHECK(bits == grammar_walk::Mask(c.model, own));
    const int32_t token = grammar_walk::Allowed(c.model, own).front();
    REQUIRE((*matcher)->Push(token).ok());
    REQUIRE(own.Push(token).ok());
    CHECK((*matcher)->is_done() == own.done());
  }
}

TEST_CASE("threads compile at once, and errors are not remembered") {
  Compiling c;
  std::atomic<int> n_compiled = 0, n_refused = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 20; ++i) {
        n_compiled += c.compiler.Compile(Choice(i)).ok();
        n_refused +=
            absl::IsInvalidArgument(c.compiler.Compile({GrammarKind::kRegex, "[.*"}).status());
      }
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(n_compiled == 80);
  CHECK(n_refused == 80);
  for (int i = 0; i < 20; ++i) CHECK(c.compiler.Find(Choice(i)) != nullptr);
  CHECK(c.compiler.Find({GrammarKind::kRegex, "[.*"}) == nullptr);
}

}  // namespace
}  // namespace baton
