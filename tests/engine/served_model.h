// A reference case (oracle_case.h) as an engine serves it.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/engine/sequence_runner.h"
#include "tests/support/oracle_case.h"

namespace baton {

constexpr int kMaxTokens = 704;  // of the longest prompt with its continuation

// Returns the names of all cases.
inline std::vector<std::string> OracleCases() {
  return {"llama2",           "llama32",       "llama_bias_fp16", "llama_linear_fp32",
          "llama_yarn",       "llama_dynamic", "qwen2",           "qwen3",
          "mistral_window",   "mixtral",       "qwen2_moe",       "qwen3_moe",
          "deepseek_v2_lite", "falcon7b",      "falcon40b",       "gemma",
          "gemma2",           "gemma3",        "phi3_short",      "phi3_long",
          "deepseek_v2",      "deepseek_v3",   "qwen2_layers",    "qwen3_layers"};
}

// Returns the cases that are GGUF files.
inline std::vector<std::string> GgufCases() { return {"gguf_llama", "gguf_qwen2", "gguf_qwen3"}; }

inline EngineOptions OptionsFor(const std::string& model, const std::string& dtype) {
  EngineOptions options;
  options.model = model;
  options.dtype = dtype;
  options.threads = 2;
  options.limits.max_step_tokens = kMaxTokens;
  return options;
}

// A model loaded with the context of each prompt's reference, because the frequencies of dynamic
// RoPE depend on the context.
class ServedModel {
 public:
  using Load = std::function<std::unique_ptr<Backend>(const EngineOptions&)>;
  explicit ServedModel(
      EngineOptions options,
      Load load = [](const EngineOptions& wanted) { return LoadOrDie(wanted); })
      : options_(std::move(options)), load_(std::move(load)) {}

  SequenceRunner& For(const OraclePrompt& prompt) {
    const int context = prompt.greedy.empty() ? static_cast<int>(prompt.tokens.size()) : 0;
    if (backend_ == nullptr || context != options_.max_context) {
      options_.max_context = context;
      runner_.reset();
      backend_.reset();
      backend_ = load_(options_);
      runner_ = std::make_unique<SequenceRunner>(*backend_, kMaxTokens);
    }
    return *runner_;
  }
  const Backend& backend() const { return *backend_; }

 private:
  EngineOptions options_;
  const Load load_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<SequenceRunner> runner_;
};

}  // namespace baton
