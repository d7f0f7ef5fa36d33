// `baton bench grammar` with a small synthetic vocabulary: every line is there.
#include "bench/grammar_bench.h"

#include <catch2/catch.hpp>
#include <set>

#include "bench/synthetic_tokenizer.h"
#include "text/tokenizer.h"

namespace baton {

TEST_CASE("the bench of grammars measures compiling, masks and tokens") {
  GrammarBenchOptions options;
  options.vocab = 4096;
  options.rounds = 1;
  options.max_tokens = 20;
  const auto results = MeasureGrammars(options);
  INFO(results.status());
  REQUIRE(results.ok());
  CHECK(results->size() == 1 + 5 * 3);
  std::set<std::string> names;
  for (const KernelResult& result : *results) {
    INFO(result.name);
    CHECK(result.value > 0);
    names.insert(result.name);
  }
  CHECK(names.size() == results->size());
  options.vocab = 100;
  CHECK(MeasureGrammars(options).status().code() == absl::StatusCode::kInvalidArgument);
}

TEST_CASE("with a model it measures steps with grammars and without") {
  GrammarBenchOptions options;
  options.vocab = 2048;
  options.rounds = 1;
  options.max_tokens = 5;
  options.engine.model = BATON_SOURCE_DIR "/models/demo";
  options.engine.threads = 1;
  options.rows = 3;
  options.context = 20;
  options.steps = 12;
  const auto results = MeasureGrammars(options);
  INFO(results.status());
  REQUIRE(results.ok());
  REQUIRE(results->size() == 1 + 8 * 3 + 4);
  for (const KernelResult& result : *results) {
    INFO(result.name);
    CHECK(result.value > 0);
  }
  CHECK(results->back().unit == "%");
  options.rows = 0;
  CHECK(MeasureGrammars(options).status().code() == absl::StatusCode::kInvalidArgument);
  options.rows = 3;
  options.vocab = 4096;
  CHECK(MeasureGrammars(options).status().code() == absl::StatusCode::kInvalidArgument);
}

TEST_CASE("a synthetic tokenizer has the tokens asked for, each once, and every byte") {
  const auto tokenizer = Tokenizer::FromJson(SyntheticTokenizerJson(4096, 3)).value();
  REQUIRE(tokenizer->vocab_size() == 4096);
  std::set<std::string> tokens;
  for (int32_t id = 0; id < 4096; ++id) tokens.insert(std::string(tokenizer->TokenBytes(id)));
  CHECK(tokens.size() == 4096);
  for (int byte = 0; byte < 256; ++byte)
    CHECK(tokenizer->TokenBytes(byte) == std::string(1, static_cast<char>(byte)));
  CHECK(tokenizer->IsSpecial(4095));
}

}  // namespace baton
