// The model as the front sees it: names, limits, tokenizer, chat template, defaults; and the step
// from a checked API request to tokens for the router.
// Immutable after load: any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/civil_time.h"
#include "common/status.h"
#include "router/router.h"
#include "server/api/api_error.h"
#include "server/api/api_request.h"
#include "server/api/model_config.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace baton {

struct ServedModel {
  std::string name;
  int64_t created = 0;             // seconds since 1970: when this server loaded it
  std::string system_fingerprint;  // of the model's shape; workers compare the real one
  int32_t vocab = 0;
  int64_t max_context = 0;
  int64_t n_parameters = 0;
  std::vector<int32_t> eos_tokens;
  // From generation_config.json, for requests that do not say.
  double temperature = 1.0, top_p = 1.0;
  int32_t top_k = 0;
  std::unique_ptr<Tokenizer> tokenizer;         // null: token-id prompts only (random: models)
  std::unique_ptr<ChatTemplate> chat_template;  // null: no chat

  // `config.path` as resolved by ResolveModel. Errors name the file.
  static absl::StatusOr<std::unique_ptr<ServedModel>> Load(const ModelConfig& config);
  bool IsCalled(const std::string& model) const;
};

// Renders, tokenizes and checks what needs the model: ids, lengths, context. max_context: the
// cluster's. Cost is linear in the prompt; long ones belong on a pool thread.
// `now` is what templates see as the time of day.
std::optional<ApiError> BuildGenerateRequest(const ServedModel& model, const ApiRequest& request,
                                             int64_t max_context, absl::CivilSecond now,
                                             GenerateRequest* out);

}  // namespace baton
