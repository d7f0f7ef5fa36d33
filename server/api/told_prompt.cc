#include "server/api/told_prompt.h"

#include <algorithm>

#include "server/api/generated_text.h"

namespace baton {

void WriteIds(JsonWriter& json, std::string_view key, const std::vector<int32_t>& ids) {
  json.Array(key, [&] {
    for (const int32_t id : ids) json.Value(id);
  });
}

ToldPrompt::ToldPrompt(const ApiRequest& request, const PreparedPrompt& prompt)
    : echo_(prompt.echo),
      echo_characters_(Characters(prompt.echo)),
      echoed_(prompt.echoed),
      tells_ids_(request.return_token_ids),
      prompt_logprobs_(request.prompt_logprobs),
      n_echoed_top_(static_cast<size_t>(request.top_logprobs.value_or(0))) {
  if (tells_ids_ || prompt_logprobs_ || request.echoes_logprobs()) ids_ = prompt.generate.prompt;
}

size_t ToldPrompt::Bytes(size_t n_scored) const {
  size_t n = echo_.size();
  if (tells_ids_) n += ids_.size() * kIdBytes;
  if (prompt_logprobs_) n += n_scored * static_cast<size_t>(1 + *prompt_logprobs_) * kLogprobBytes;
  if (!echoed_.empty()) n += n_scored * (1 + n_echoed_top_) * kLogprobBytes;
  return n;
}

std::vector<ReportedToken> ToldPrompt::EchoedTokens(const std::vector<PromptLogprob>& told) const {
  std::vector<ReportedToken> tokens;
  for (size_t at = 0; at < echoed_.size() && at <= told.size(); ++at) {
    ReportedToken& token = tokens.emplace_back();
    token.token = ids_[at];
    token.bytes = echoed_[at].bytes;
    token.offset = echoed_[at].offset;
    token.has_logprob = at > 0;
    if (!token.has_logprob) continue;
    token.logprob = told[at - 1].logprob;
    token.others = told[at - 1].top;
    token.others.resize(std::min(token.others.size(), n_echoed_top_));
  }
  return tokens;
}

void ToldPrompt::Write(JsonWriter& json, const LogprobForm& form,
                       const std::vector<PromptLogprob>& told) const {
  if (tells_ids_) WriteIds(json, "prompt_token_ids", ids_);
  if (prompt_logprobs_)
    WritePromptLogprobs(json, form, static_cast<size_t>(*prompt_logprobs_), ids_, told);
}

}  // namespace baton
