// The served model of fuzz targets whose inputs are requests, and the limits that a request keeps
// which was taken.
#pragma once

#include "common/check.h"
#include "common/request_limits.h"
#include "proto/messages.h"
#include "server/api/served_model.h"
#include "tests/fuzz/file_text.h"

namespace baton {

inline const ServedModel& Demo() {
  static const auto* const model = [] {
    ModelConfig config;
    config.path = SourcePath("models/demo");
    config.name = "demo";
    return ServedModel::Load(config).value().release();
  }();
  return *model;
}

// As Router::Submit.
inline void CheckGenerate(const GenerateRequest& request) {
  using Limits = RequestLimits;
  const auto check = [](const FieldLimit& limit, size_t value) {
    BATON_CHECK(CheckLimit(limit, static_cast<double>(value)).ok());
  };
  const size_t n_prompt = request.prompt.size();
  check(Limits::kPromptTokens, n_prompt);
  check(Limits::kMaxTokens, static_cast<size_t>(request.max_tokens));
  check(Limits::kContext, n_prompt + static_cast<size_t>(request.max_tokens));
  check(Limits::kStopTokens, request.stop_tokens.size());
  BATON_CHECK(CheckLimit(Limits::kPromptLogprobs, request.prompt_logprobs).ok());
  check(Limits::kPromptLogprobEntries, n_prompt * static_cast<size_t>(request.prompt_logprobs + 1));
  BATON_CHECK(CheckSampling(request.sampling).ok());
  for (const auto* ids : {&request.prompt, &request.stop_tokens})
    for (const int32_t id : *ids) BATON_CHECK(id >= 0 && id < Demo().vocab);
  BATON_CHECK(static_cast<int64_t>(n_prompt) + request.max_tokens <= Demo().max_context);
}

}  // namespace baton
