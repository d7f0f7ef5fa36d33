#include "server/api/submitted_choices.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/clock.h"
#include "server/api/choice_seed.h"

namespace baton {

absl::Status SubmittedChoices::Submit(RunningRequest* running,
                                      const std::vector<PreparedPrompt>& prompts,
                                      size_t n_choices) {
  const size_t per_prompt = n_choices / prompts.size();
  for (size_t i = 0; i < n_choices; ++i) {
    GenerateRequest choice = prompts[i / per_prompt].generate;
    running->max_tokens = std::max<int64_t>(running->max_tokens, choice.max_tokens);
    choice.name = running->log_name(n_choices == 1 ? "" : absl::StrCat(".", i));
    choice.sampling.seed = ChoiceSeed(choice.sampling.seed, i % per_prompt);
    if (i % per_prompt > 0) choice.prompt_logprobs = -1;  // those of the first choice are the same
    const absl::Time begin = MonotonicNow();
    auto submitted = generator_->Submit(std::move(choice));
    if (!submitted.ok()) {
      CancelAll(running, /*forget=*/true);
      running->choices.clear();
      return submitted.status();
    }
    running->choices.push_back({.id = *submitted, .submitted = begin, .sent = MonotonicNow()});
    choices_.emplace(*submitted, Choice{running, i});
  }
  return absl::OkStatus();
}

std::optional<SubmittedChoices::Choice> SubmittedChoices::Find(RequestId id) const {
  const auto found = choices_.find(id);
  if (found == choices_.end()) return std::nullopt;
  return found->second;
}

void SubmittedChoices::Cancel(const Choice& choice) {
  RunningRequest::Choice& entry = choice.running->choices[choice.index];
  if (!std::exchange(entry.cancelled, true)) generator_->Cancel(entry.id);
}

void SubmittedChoices::CancelAll(RunningRequest* running, bool forget) {
  for (size_t i = 0; i < running->choices.size(); ++i) {
    RunningRequest::Choice& choice = running->choices[i];
    if (choice.ended) continue;
    if (forget) {  // its end would have told
      const auto progress = running->is_traced() ? generator_->Progress(choice.id) : std::nullopt;
      if (progress) choice.timeline = progress->timeline;
      Forget(choice.id);
    }
    Cancel({running, i});
  }
}

}  // namespace baton
