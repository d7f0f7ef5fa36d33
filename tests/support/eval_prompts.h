// The demo model's evaluation prompts (models/demo/README.md).
#pragma once

#include <zlib.h>

#include <boost/json.hpp>
#include <catch2/catch.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/oracle_case.h"

namespace baton {

struct EvalPrompt {
  std::string id;
  std::vector<int32_t> prompt;
  std::vector<int32_t> expected;  // the last token ends the answer
  bool is_correct_fp32 = false;   // the answer of transformers in fp32 is right
};

inline std::string ReadGzip(const std::string& path) {
  const gzFile file = gzopen(path.c_str(), "rb");
  REQUIRE(file != nullptr);
  std::string text;
  char buffer[65536];
  int n = 0;
  while ((n = gzread(file, buffer, sizeof(buffer))) > 0) text.append(buffer, n);
  REQUIRE(n == 0);
  gzclose(file);
  return text;
}

// Reads the prompts with one right answer (stories have none), in the order of the file.
inline std::vector<EvalPrompt> ReadEvalPrompts() {
  std::istringstream lines(ReadGzip(std::string(BATON_SOURCE_DIR) + "/models/demo/eval.jsonl.gz"));
  std::vector<EvalPrompt> prompts;
  for (std::string line; std::getline(lines, line);) {
    const boost::json::value entry = boost::json::parse(line);
    if (!entry.as_object().contains("expected_ids")) continue;
    prompts.push_back(
        {entry.at("id").as_string().c_str(), NumbersOf<int32_t>(entry.at("prompt_ids")),
         NumbersOf<int32_t>(entry.at("expected_ids")), entry.at("correct_fp32").as_bool()});
  }
  return prompts;
}

}  // namespace baton
