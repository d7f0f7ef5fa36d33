// One reference case of tests/data/models (README there): prompts, bounds and expected logits of
// Hugging Face transformers.
#pragma once

#include <boost/json.hpp>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "engine/checkpoint/safetensors.h"
#include "engine/numerics/bf16.h"

namespace baton {

struct OraclePrompt {
  std::string name;
  std::vector<int32_t> tokens;
  std::vector<int32_t> positions;         // rows of `logits`
  std::vector<float> logits;              // (positions, vocab) fp32 run
  double bound_fp32 = 0, bound_bf16 = 0;  // relative L2
  std::vector<int32_t> greedy;  // empty where the rope frequencies are for this sequence only
  std::vector<double> margin;   // per greedy token
  // First greedy step computed, from the beginning, with the long factors of longrope; -1: none.
  int rope_switch_step = -1;
  double clear_margin_fp32 = 0, clear_margin_bf16 = 0;
};

struct OracleCase {
  std::string folder;
  std::string model;  // the folder, or the model.gguf in it
  std::vector<OraclePrompt> prompts;
  double bound_bf16_median = 0;
  SafetensorsFile expected;

  std::vector<float> Floats(const std::string& name) const {
    const TensorView& view = expected.tensors().at(name);
    REQUIRE(view.dtype == "F32");
    std::vector<float> values(view.bytes.size() / sizeof(float));
    std::memcpy(values.data(), view.bytes.data(), view.bytes.size());
    return values;
  }
};

inline std::string ReadAll(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  REQUIRE(file.good());
  return {std::istreambuf_iterator<char>(file), {}};
}

template <typename T>
std::vector<T> NumbersOf(const boost::json::value& list) {
  std::vector<T> numbers;
  for (const auto& item : list.as_array()) numbers.push_back(item.to_number<T>());
  return numbers;
}

inline OracleCase LoadOracleCase(const std::string& name) {
  OracleCase result;
  result.folder = std::string(BATON_TEST_DATA) + "/models/" + name;
  const std::string file = result.folder + "/model.gguf";
  result.model = std::filesystem::exists(file) ? file : result.folder;
  absl::StatusOr<SafetensorsFile> expected =
      SafetensorsFile::Open(result.folder + "/expected.safetensors");
  REQUIRE(expected.ok());
  result.expected = *std::move(expected);
  const boost::json::value cases = boost::json::parse(ReadAll(result.folder + "/cases.json"));
  result.bound_bf16_median = cases.at("summary").at("bound_bf16_median_rel_l2").to_number<double>();
  for (const boost::json::value& entry : cases.at("prompts").as_array()) {
    OraclePrompt& prompt = result.prompts.emplace_back();
    prompt.name = entry.at("name").as_string().c_str();
    prompt.tokens = NumbersOf<int32_t>(entry.at("tokens"));
    prompt.positions = NumbersOf<int32_t>(entry.at("positions"));
    prompt.logits = result.Floats(prompt.name + ".logits");
    prompt.bound_fp32 = entry.at("bound_fp32").at("rel_l2").to_number<double>();
    prompt.bound_bf16 = entry.at("bound_bf16").at("rel_l2").to_number<double>();
    const boost::json::value& greedy = entry.at("greedy");
    if (greedy.is_null()) continue;
    prompt.greedy = NumbersOf<int32_t>(greedy.at("tokens"));
    prompt.margin = NumbersOf<double>(greedy.at("margin"));
    if (const auto* step = greedy.as_object().if_contains("rope_switch_step")) {
      prompt.rope_switch_step = step->to_number<int>();
    }
    prompt.clear_margin_fp32 = greedy.at("clear_margin_fp32").to_number<double>();
    prompt.clear_margin_bf16 = greedy.at("clear_margin_bf16").to_number<double>();
  }
  return result;
}

// |a - b| / |b| of n values.
template <typename A, typename B>
double RelativeError(const A* a, const B* b, int64_t n) {
  double difference = 0, norm = 0;
  for (int64_t i = 0; i < n; ++i) {
    const double d = static_cast<double>(a[i]) - static_cast<double>(b[i]);
    difference += d * d;
    norm += static_cast<double>(b[i]) * static_cast<double>(b[i]);
  }
  return std::sqrt(difference / norm);
}

}  // namespace baton
