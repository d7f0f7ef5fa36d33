// The requests to the cluster that the choices of clients' requests are: submitted together, found
// by their ids, cancelled together, so that none outlives the client's request unnoticed. Front
// thread.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "common/ids.h"
#include "common/status.h"
#include "server/api/generator.h"
#include "server/api/prepared_prompt.h"
#include "server/api/running_request.h"

namespace baton {

class SubmittedChoices {
 public:
  struct Choice {
    RunningRequest* running;  // alive until Forget or CancelAll forgets the choice
    size_t index;             // in running->choices
  };

  // The generator must outlive it.
  explicit SubmittedChoices(Generator* generator) : generator_(generator) {}

  // Submits all choices and lists them in running->choices. Error: the refusal of one; those before
  // it are cancelled and forgotten.
  absl::Status Submit(RunningRequest* running, const std::vector<PreparedPrompt>& prompts,
                      size_t n_choices);
  // Nothing: unknown, or forgotten.
  std::optional<Choice> Find(RequestId id) const;
  void Cancel(const Choice& choice);  // once; the end still comes
  void Forget(RequestId id) { choices_.erase(id); }
  // Cancels the choices that have not ended; with `forget` their ends are unknown.
  void CancelAll(RunningRequest* running, bool forget);

 private:
  Generator* generator_;
  absl::flat_hash_map<RequestId, Choice> choices_;  // that have not ended
};

}  // namespace baton
