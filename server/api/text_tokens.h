// The work of requests to tokenize and detokenize, whatever the form of their answer. Any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "server/api/api_error.h"
#include "server/api/api_request.h"
#include "server/api/served_model.h"

namespace baton {

struct TokenizedText {
  ApiRequest request{};
  std::vector<int32_t> tokens{};
};

// body: as of POST /tokenize.
std::variant<TokenizedText, ApiError> TokensOf(const ServedModel& model, std::string_view body);
// Returns the text of the tokens. body: as of POST /detokenize.
std::variant<std::string, ApiError> TextOfTokens(const ServedModel& model, std::string_view body);

}  // namespace baton
