// Answers that clients ask for by their ids: those that are stored, and those that still run, which
// can be cancelled. Front thread.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "server/api/answer_store.h"
#include "server/api/api_error.h"
#include "server/api/api_request.h"
#include "server/api/running_request.h"
#include "server/api/submitted_choices.h"

namespace baton {

class AnswerDesk {
 public:
  // choices must outlive the desk.
  AnswerDesk(const AnswerStoreOptions& options, SubmittedChoices* choices)
      : store_(options), choices_(choices) {}

  AnswerStore& store() { return store_; }

  // Called once the request has its answer; OnForgotten must come while it is alive.
  void OnStarted(RunningRequest* running);
  void OnForgotten(const RunningRequest& running);
  // Sets *conversation to that of the response that the request goes on with, and its own behind
  // it. The error: 404, as for a response of another tenant, or the response still runs.
  std::optional<ApiError> FindConversation(const ApiRequest& request, std::string* conversation);
  // Ends an answer as it is: its client gets what there is. It still runs until the cluster has
  // told the end and the text is written; `ended` is called then, and finds it in the store. False,
  // and no call: none of the tenant's with this id runs.
  bool Cancel(const std::string& tenant, const std::string& id, std::function<void()> ended);
  // Removes an answer from the store, for good if it still runs. False: unknown.
  bool Erase(StoredKind kind, const std::string& tenant, const std::string& id);

 private:
  RunningRequest* FindRunning(const std::string& tenant, const std::string& id) const;
  void TellEnd(const std::string& id);

  AnswerStore store_;
  SubmittedChoices* choices_;
  absl::flat_hash_map<std::string, RunningRequest*> running_;  // by Answer::stored_id
  // By the same id: who has cancelled it and is to be told its end.
  absl::flat_hash_map<std::string, std::vector<std::function<void()>>> cancels_;
};

}  // namespace baton
