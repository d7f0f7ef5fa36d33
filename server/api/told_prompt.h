// Parts of one prompt that an answer of completions or a chat tells: the text and tokens of an
// echo, token ids and log-probabilities. Immutable: any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/api/api_request.h"
#include "server/api/json_writer.h"
#include "server/api/logprob_list.h"
#include "server/api/prepared_prompt.h"

namespace baton {

void WriteIds(JsonWriter& json, std::string_view key, const std::vector<int32_t>& ids);

class ToldPrompt {
 public:
  // Keeps the parts of both that it tells.
  ToldPrompt(const ApiRequest& request, const PreparedPrompt& prompt);

  // The text before the answer's, empty without echo, and its characters.
  const std::string& echo() const { return echo_; }
  int64_t echo_characters() const { return echo_characters_; }
  // The answer begins with text or tokens of the prompt.
  bool is_echoed() const { return !echo_.empty() || !echoed_.empty(); }
  bool has_logprobs() const { return prompt_logprobs_.has_value(); }
  // Bytes, roughly, that tell of the prompt once. n_scored: tokens with log-probabilities.
  size_t Bytes(size_t n_scored) const;
  // The prompt's tokens as the answer repeats them; empty: without log-probabilities. told: of the
  // tokens after the first.
  std::vector<ReportedToken> EchoedTokens(const std::vector<PromptLogprob>& told) const;
  // Writes the members prompt_token_ids and prompt_logprobs, if they are asked for.
  void Write(JsonWriter& json, const LogprobForm& form,
             const std::vector<PromptLogprob>& told) const;

 private:
  const std::string echo_;
  const int64_t echo_characters_;
  const std::vector<EchoedToken> echoed_;
  const bool tells_ids_;
  const std::optional<int64_t> prompt_logprobs_;  // as in the request
  const size_t n_echoed_top_;                     // most probable tokens beside each of the echo
  std::vector<int32_t> ids_{};                    // where the answer tells of them
};

}  // namespace baton
