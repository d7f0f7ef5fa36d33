// The record behind /v1/cluster/live: latencies of the last two minutes, requests that ended last
// and, when asked, those that run. Costs a few instructions per token, and a copy of the figures
// per request; the text is made when it is asked for. Front thread.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/time/time.h"
#include "router/router_messages.h"
#include "server/api/front_metrics.h"
#include "server/api/latency_windows.h"
#include "server/api/running_request.h"

namespace baton {

struct LiveRequest {
  std::string id, key;
  FinishedRequest facts;  // of one that runs: so far, with the timeline of a choice that runs
  absl::Time arrived;     // of the monotonic clock
  bool waits = false;     // for a worker
};

// The cluster and its requests at one moment.
struct LiveView {
  std::string model, version;
  bool is_ready = false;
  absl::Time now, date;  // the monotonic clock and the other one
  ClusterView cluster{};
  std::vector<WorkerView> workers{};
  std::vector<LiveRequest> running{};

  // progress: of one of its choices; nothing: not known.
  void Add(const RunningRequest& request, std::optional<RequestView> progress);
};

class LiveRecord {
 public:
  static constexpr size_t kMaxRequests = 200;  // of those that have ended, and of those that run

  LiveRecord();

  void OnFirstToken(absl::Duration ttft, absl::Time now) { ttft_.Add(ttft, now); }
  void OnNextToken(absl::Duration gap, absl::Time now) { gaps_.Add(gap, now); }
  void OnFinished(const RunningRequest& request, const FinishedRequest& facts);

  // JSON. cursor: of an earlier text, whose seconds and ended requests are left out; any other text
  // leaves out nothing.
  std::string Text(const LiveView& view, std::string_view cursor) const;

 private:
  struct Cursor {
    uint64_t n_finished = 0;  // told so far
    int64_t second = 0;       // the last one told
  };
  Cursor Read(std::string_view cursor) const;

  const std::string instance_;  // of the record: cursors of another one mean nothing
  LatencyWindows ttft_, gaps_;
  std::deque<LiveRequest> finished_;
  uint64_t n_finished_ = 0;
};

}  // namespace baton
