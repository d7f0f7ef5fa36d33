// Requests from the router that wait until their grammar is compiled, which happens off the engine
// thread. They wait here, before either scheduler knows of them, so that neither has a further
// state. Plain state of WorkerCore.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "common/ids.h"
#include "common/router_id.h"
#include "common/token_grammar.h"
#include "proto/messages.h"

namespace baton {

struct GrammarJob {
  uint64_t id = 0;
  GrammarSpec spec{};
};
struct GrammarCompiled {
  uint64_t id = 0;  // the job's
  absl::StatusOr<SharedGrammar> grammar{};
};

// A message that begins this worker's part in an attempt at a request.
using PartRequest = std::variant<PrefillRequest, DecodeRequest>;
// The last word about a part that no scheduler knows: it failed for this reason.
PartEnded RefusalOf(const PartRequest& request, const absl::Status& why, PartFault fault);
const GrammarSpec& GrammarOf(const PartRequest& request);

class GrammarDesk {
 public:
  static constexpr size_t kMaxWaiting = 4096;

  bool is_full() const { return waiting_.size() >= kMaxWaiting; }
  size_t size() const { return waiting_.size(); }

  // Keeps the request; returns the job that it waits for. CHECKs that there is room.
  GrammarJob Add(PartRequest request);
  // The request that waited for the job; empty: it was cancelled.
  std::optional<PartRequest> Take(uint64_t job);
  // Removes the parts of the attempts 1..up_to at the request, and returns them.
  std::vector<PartRequest> Cancel(RequestId request, Epoch up_to);
  int CancelAllOf(RouterId router);  // removes its requests; returns how many
  void Clear() { waiting_.clear(); }

 private:
  std::map<uint64_t, PartRequest> waiting_;  // by job, which is the order of arrival
  uint64_t next_job_ = 1;
};

}  // namespace baton
