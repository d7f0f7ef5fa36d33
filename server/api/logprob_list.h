// The log-probabilities of one choice's tokens on their way to the client: kept until the text of
// their token has left, then written as OpenAI's chat or completions have them. Front thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "common/sampling_params.h"
#include "router/router_messages.h"
#include "server/api/json_writer.h"
#include "text/tokenizer.h"

namespace baton {

// Bytes, roughly, of a log-probability in an answer, with its token's name, and of a token's id.
inline constexpr size_t kLogprobBytes = 64, kIdBytes = 6;

struct ReportedToken {
  int32_t token = 0;
  float logprob = 0;
  std::vector<TokenLogprob> others{};  // as in EmitToken
  std::string bytes{};                 // added to the text by the token
  int64_t offset = 0;                  // characters of the choice's text before it
  bool has_logprob = true;             // false: the first of a prompt, which nothing precedes
};

class LogprobList {
 public:
  // Tokens in their order. bytes, offset: as in ReportedToken.
  void Add(const EmitToken& token, std::string_view bytes, int64_t offset);
  // Takes the first `n` tokens (counted from the first Add), without the ones taken before.
  std::vector<ReportedToken> TakeUpTo(size_t n);
  size_t n_taken() const { return n_taken_; }

 private:
  std::deque<ReportedToken> waiting_;
  size_t n_taken_ = 0;
};

// Says how tokens are told.
struct LogprobForm {
  const Tokenizer* tokenizer = nullptr;  // null: none, tokens are told by their ids
  bool tokens_as_ids = false;            // "token_id:7"
  size_t n_named = 0;  // SamplingParams::logprob_tokens, the last entries of EmitToken::logprobs
  bool with_bytes = true;
};

// A log-probability as answers tell it: at least -9999, for minus infinity, which JSON has not.
float Told(float logprob);
// Returns the most probable tokens, then those that the client named, each once.
std::vector<TokenLogprob> Listed(const LogprobForm& form, const ReportedToken& token);

// Writes entries {token, logprob, bytes, top_logprobs} into an open array.
void WriteTokenLogprobs(JsonWriter& json, const LogprobForm& form,
                        const std::vector<ReportedToken>& tokens);
// The member "logprobs" of a choice: {"content":[{token, logprob, bytes, top_logprobs}],...}.
void WriteChatLogprobs(JsonWriter& json, const LogprobForm& form,
                       const std::vector<ReportedToken>& tokens);
// Writes tokens, token_logprobs, top_logprobs and text_offset, lists of one length. An
// object of top_logprobs has the token itself too; of tokens with equal texts it has the most
// probable one.
void WriteCompletionLogprobs(JsonWriter& json, const LogprobForm& form,
                             const std::vector<ReportedToken>& tokens);
// The member "prompt_logprobs" as vLLM has it: of each token of the prompt an object of token ids
// with {logprob, rank, decoded_token}, its own first, then the `top` most probable ones; null for
// the first token. told: of the tokens after it.
void WritePromptLogprobs(JsonWriter& json, const LogprobForm& form, size_t top,
                         const std::vector<int32_t>& prompt,
                         const std::vector<PromptLogprob>& told);

}  // namespace baton
