// What one request may hold: the one table that the API's validator, Router::Submit and the codec
// of the control wire check against, so that nothing one of them lets pass is refused by a later
// one. Constants and pure functions: any thread.
#pragma once

#include <cstdint>
#include <limits>

#include "common/status.h"

namespace baton {

// A number of a request, or how many entries a list of it has; both ends are allowed.
struct FieldLimit {
  const char* field;
  double least, most;  // a double holds each bound below exactly
};

struct RequestLimits {
  // Of prompt and tokens to come together; so it bounds positions too, and the prompts of later
  // attempts, which begin with the tokens so far. A model with a longer context serves this much.
  static constexpr int32_t kContextTokens = 4 << 20;

  static constexpr FieldLimit kTokenId{"token id", 0, std::numeric_limits<int32_t>::max()};
  static constexpr FieldLimit kPromptTokens{"tokens of the prompt", 1, kContextTokens - 1};
  static constexpr FieldLimit kMaxTokens{"max_tokens", 1, kContextTokens - 1};
  static constexpr FieldLimit kContext{"prompt and max_tokens", 2, kContextTokens};
  static constexpr FieldLimit kTemperature{"temperature", 0, 2};
  static constexpr FieldLimit kTopP{"top_p", 1e-6f, 1};  // the API raises what is less, and not 0
  static constexpr FieldLimit kTopK{"top_k", -1, std::numeric_limits<int32_t>::max()};
  // Lists whose entries are different: the client's, the model's, and both together.
  static constexpr FieldLimit kStopTokenIds{"stop_token_ids", 0, 1024};
  static constexpr FieldLimit kEosTokens{"eos tokens of the model", 0, 64};
  static constexpr FieldLimit kStopTokens{"stop tokens", 0, kStopTokenIds.most + kEosTokens.most};

  static constexpr const FieldLimit* kAll[] = {
      &kTokenId, &kPromptTokens, &kMaxTokens, &kContext,    &kTemperature,
      &kTopP,    &kTopK,         &kEosTokens, &kStopTokens, &kStopTokenIds};
};

// InvalidArgument: names the field, the value and its bounds. NaN is outside.
absl::Status CheckLimit(const FieldLimit& limit, double value);

}  // namespace baton
