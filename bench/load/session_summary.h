// Figures of conversations: KV that travelled, prompt tokens that were computed or found cached,
// times to first token of first turns and of later ones.
#pragma once

#include <boost/json/fwd.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "bench/load/session_run.h"

namespace baton {

// Sums of counters over the /metrics of all workers.
struct WorkerCounters {
  double kv_bytes = 0;              // received from other workers
  double computed = 0, reused = 0;  // prompt tokens

  WorkerCounters Since(const WorkerCounters& before) const;
};

// Reads the pages of all workers. urls: http://HOST:PORT each.
absl::StatusOr<WorkerCounters> ReadWorkerCounters(const std::vector<std::string>& urls);

struct SessionSummary {
  int n_conversations = 0, n_whole = 0;
  int n_turns = 0;                     // answered
  int64_t n_prompt = 0, n_cached = 0;  // tokens of their prompts, as the answers tell
  std::vector<double> first_ttft_ms, later_ttft_ms;
  uint64_t digest = 0;  // of the tokens of all answers, in order
};

SessionSummary SummarizeSessions(const std::vector<SessionOutcome>& sessions);

// workers: null: their counters are not known.
void PrintSessions(const SessionSummary& sum, const WorkerCounters* workers);
void AddSessions(const SessionSummary& sum, const WorkerCounters* workers,
                 boost::json::object* object);

}  // namespace baton
