// A completion request as the client sent it, checked field by field: one table says which fields
// there are, of which type and in which range. Fields that other servers know, that change what
// comes out and that are not built are in it too: refused by name, unless they say what is the case
// anyway. What is not in the table is ignored, as the peers do. Pure: any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/api/api_error.h"

namespace baton {

enum class Endpoint { kCompletions, kChat };

struct ApiRequest {
  Endpoint endpoint = Endpoint::kCompletions;
  std::string model;  // empty = the served one

  // Exactly one of these: text, tokens (completions), messages (chat; a JSON array of objects with
  // role and string content).
  std::optional<std::string> prompt_text;
  std::optional<std::vector<int32_t>> prompt_tokens;
  std::string messages;
  std::string tools;               // JSON array, or empty
  std::string template_variables;  // JSON object, or empty
  bool add_generation_prompt = true;
  std::optional<bool> add_special_tokens;

  std::optional<int64_t> max_tokens;
  std::optional<double> temperature, top_p;
  std::optional<int64_t> top_k, seed;
  std::vector<std::string> stop;
  std::vector<int32_t> stop_token_ids;  // each once
  bool ignore_eos = false;

  bool stream = false;
  bool include_usage = false;
  bool continuous_usage = false;
  bool skip_special_tokens = true;
  bool include_stop = false;  // the stop string stays in the text
  bool return_token_ids = false;
  bool timings = false;
  bool digests = false;
};

// Nothing: *request is whole. Values that need the model (ids, lengths) are checked later.
std::optional<ApiError> ParseApiRequest(Endpoint endpoint, std::string_view body,
                                        ApiRequest* request);

}  // namespace baton
