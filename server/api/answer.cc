#include "server/api/answer.h"

namespace baton {

Answer::Answer(const ServedModel& model, const ApiRequest& request,
               const std::vector<PreparedPrompt>& prompts)
    : choices_per_prompt_(ChoicesPerPrompt(request)) {
  texts_.reserve(prompts.size() * choices_per_prompt_);
  for (const PreparedPrompt& prompt : prompts) {
    for (size_t sample = 0; sample < choices_per_prompt_; ++sample)
      texts_.emplace_back(model, request, prompt);
  }
}

int64_t Answer::n_prompt() const {
  int64_t n = 0;
  for (size_t i = 0; i < texts_.size(); i += choices_per_prompt_) n += texts_[i].n_prompt();
  return n;
}

int64_t Answer::n_tokens() const {
  int64_t n = 0;
  for (const GeneratedText& text : texts_) n += text.n_tokens();
  return n;
}

int64_t Answer::n_reasoning() const {
  int64_t n = 0;
  for (const GeneratedText& text : texts_) n += text.n_reasoning();
  return n;
}

}  // namespace baton
