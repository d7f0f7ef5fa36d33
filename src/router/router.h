// Chooses who computes and walks each request through its life. Never touches KV bytes, text or
// sockets: a plain object on the front thread, event in, effects out, so that the same code runs in
// the simulation. Time comes in as an argument.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "absl/time/time.h"
#include "common/ids.h"
#include "common/sampling_params.h"
#include "common/status.h"
#include "common/ticket.h"
#include "proto/messages.h"

namespace baton {

struct GenerateRequest {
  std::vector<int32_t> prompt{};
  int32_t max_tokens = 16;
  SamplingParams sampling{};
  std::vector<int32_t> stop_tokens{};  // empty with ignore_eos
  bool want_digests = false;
  absl::Duration timeout = absl::InfiniteDuration();
};

// How long each part of a request took; each part was stamped on its own, by the worker that did
// it, and the rest is stated. After a failover the parts of all attempts that reported their end
// are summed. `transfer` (OPEN seen to KV complete) overlaps prefill: what of it is not hidden
// there belongs to unaccounted(), with the wires and parts whose end had not been reported.
struct Timeline {
  absl::Duration router_queue{};  // submitted to sent to a prefill worker
  absl::Duration prefill_queue{}, prefill{}, transfer{}, decode_queue{}, decode{};
  absl::Duration ttft{};   // submitted to first token
  absl::Duration total{};  // submitted to end
  absl::Duration unaccounted() const;
  std::string prefill_worker{}, decode_worker{};
  int attempts = 1;
};

// --- effects ----------------------------------------------------------------------------------
struct SendToWorker {
  Incarnation worker = 0;
  RouterMessage message{};
};
// Every index from 0 on, each once, ascending. A stop token is emitted too (index of its place, and
// EmitEnd says kStopToken): the server leaves it out of the text.
struct EmitToken {
  RequestId request_id = 0;
  int32_t index = 0;  // 0 = the first token
  int32_t token = 0;
  float logprob = 0;
  uint64_t digest = 0;
};
// Exactly once per submitted request, after its last token; nothing of it follows.
struct EmitEnd {
  RequestId request_id = 0;
  EndReason reason = EndReason::kLength;
  absl::Status status{};  // of kFailed
  Timeline timeline{};
};
using RouterEffect = std::variant<SendToWorker, EmitToken, EmitEnd>;

struct RouterOptions {
  int max_waiting = 1024;  // requests not ended; beyond it Submit answers ResourceExhausted (429)
  int max_attempts = 4;    // times a request is aimed before it fails
  // How long a request whose workers were lost waits for any worker before it fails.
  absl::Duration worker_wait = absl::Seconds(30);
};

struct ClusterView {  // what /readyz, /metrics and logs show
  int prefill_workers = 0, decode_workers = 0;
  int running = 0, waiting = 0;  // running: aimed at workers; waiting: for a worker to come
  bool draining = false;
  int64_t max_context = 0;                        // the smallest of the workers'
  int64_t kv_pages_total = 0, kv_pages_free = 0;  // of workers that decode, by their reports
  int64_t kv_pages_promised = 0;                  // by tickets of requests that run
};

class Router {
 public:
  // random: a source of ids (tests give a counter).
  Router(const RouterOptions& options, const ClusterKey& key, uint64_t (*random)());
  ~Router();

  // Refused at once: ResourceExhausted (queue full), InvalidArgument (can never fit, values out of
  // range), Unavailable (no worker now, or draining). A request without a seed must have got one.
  absl::StatusOr<RequestId> Submit(GenerateRequest request, absl::Time now);
  // Ends the request with kCancelled; unknown or ended ids are ignored.
  void Cancel(RequestId id, absl::Time now);
  // Takes nothing new; what runs goes on to its end. Then every worker is told to drain.
  void Drain();

  // A worker's stream brought a report; the first one on a stream carries WorkerAnnounce. An error
  // means: close this stream with that reason (protocol violation, or a worker of another model,
  // numerics or layout than the cluster's, the field named). The worker is gone here already;
  // OnWorkerLost for it afterwards does nothing.
  absl::Status OnReport(Incarnation worker, const WorkerReport& report, absl::Time now);
  void OnWorkerLost(Incarnation worker, absl::Time now);  // its stream broke
  void OnTime(absl::Time now);                            // deadlines
  absl::Time NextDeadline() const;                        // when OnTime must be called next

  // Effects since the last call, in order.
  std::vector<RouterEffect> TakeEffects();
  ClusterView View() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace baton
