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

// A turn behind the first of its conversation.
struct LaterTurn {
  double cached = 0;  // share of the prompt whose KV was found cached, as the answer tells
  double ttft_ms = 0;
};

struct SessionSummary {
  int n_conversations = 0, n_whole = 0;
  int n_turns = 0;                     // answered
  int64_t n_prompt = 0, n_cached = 0;  // tokens of their prompts, as the answers tell
  std::vector<double> first_ttft_ms;
  std::vector<LaterTurn> later;
  uint64_t digest = 0;  // of the tokens of all answers, in order
};

// Times to first token of later turns whose cached share is at least `from` and less than `to`.
std::vector<double> LaterTtfts(const SessionSummary& sum, double from, double to);

SessionSummary SummarizeSessions(const std::vector<SessionOutcome>& sessions);

// workers: null: their counters are not known.
void PrintSessions(const SessionSummary& sum, const WorkerCounters* workers);
void AddSessions(const SessionSummary& sum, const WorkerCounters* workers,
                 boost::json::object* object);

}  // namespace baton
