// Runs conversations against a server: some users at once, each with one conversation after the
// other, each turn after the answer before, when it is due or thought over.
#pragma once

#include <cstdint>
#include <vector>

#include "bench/load/conversation.h"
#include "bench/load/load_client.h"

namespace baton {

struct SessionRunOptions {
  double seconds = 0;  // the run ends then; 0: with the last answer
  int vocab = 2048;
  uint64_t seed = 1;
};

struct SessionOutcome {
  std::vector<Outcome> turns;  // one that failed ends the conversation
  bool is_whole = false;       // every turn was answered
};

// Returns an outcome per conversation. A turn that was due and could not begin until the end of the
// run is cut. An answer without its token ids is a failure: the next prompt could not be exact.
std::vector<SessionOutcome> RunConversations(const HttpUrl& url,
                                             const std::vector<Conversation>& conversations,
                                             const SessionRunOptions& options);

}  // namespace baton
