// Chooses who computes and walks each request through its life. Never touches KV bytes, text or
// sockets: a plain object on the front thread, event in, effects out, so that the same code runs in
// the simulation. Time comes in as an argument.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/time/time.h"
#include "common/ids.h"
#include "common/sampling_params.h"
#include "common/state_machine.h"
#include "common/status.h"
#include "common/ticket.h"
#include "planner/relay_plan.h"
#include "proto/messages.h"

namespace baton {

struct GenerateRequest {
  std::string name{};  // in log lines: as its client knows it; empty: its number
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
  int32_t reused_tokens = 0;  // of the prompt, whose KV was there when its first attempt began
  // Of a relay, whose prefill times are the tail's: computed the slices before the tail's
  // meanwhile. In order of slices, commas between them; or empty.
  std::string prefill_heads{};
  // Of the attempt that ran last: what each of its ranks computed, and how long it was to take, and
  // took, from when it was sent to its first token. took: zero, unless it brought one.
  std::vector<int32_t> slices{};
  absl::Duration predicted{}, took{};
  RelayPush push = RelayPush::kNone;  // of a relay: who hands its KV over
  int attempts = 1;
  int rounds = 1;  // of that attempt's relay
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
// The workers of a request that was ended over their heads (cancel, deadline, stop string, failure)
// have let go of it: at most once per request, after its EmitEnd, not when one of them was lost.
struct EmitReleased {
  RequestId request_id = 0;
  absl::Duration after{};  // its EmitEnd to the end of the last part
  bool overdue = false;    // they have not said so in end_wait; nobody waits for it any longer
};
// End this worker's stream, with this reason. The worker is gone here already: what still comes
// from that stream must not be reported, only its end may be.
struct CloseWorker {
  Incarnation worker = 0;
  absl::Status reason{};
};
using RouterEffect = std::variant<SendToWorker, EmitToken, EmitEnd, EmitReleased, CloseWorker>;

struct RouterOptions {
  int max_waiting = 1024;  // requests not ended; beyond it Submit answers ResourceExhausted (429)
  // Attempts in a row that fail by a fault of their part before the request fails. An attempt that
  // brought 8 tokens starts the count anew.
  int max_attempts = 4;
  // The same for attempts that ended because a worker was lost or a handoff broke: a request that
  // is there each time may be the cause.
  int max_lost_attempts = 8;
  // Prompts (after a failover: with the tokens so far) of so many tokens and more are prefilled by
  // several workers, the ranks of a relay, where that is predicted to be sooner; 0 = none. An
  // attempt after a relay that broke is no relay.
  int relay_min_tokens = 0;
  int relay_max_ranks = 2;
  int relay_min_ranks = 1;  // more than one: so many where they are there, whatever is predicted
  PartitionMode partition = PartitionMode::kClosed;
  std::shared_ptr<const PartitionTable> partition_table{};  // of kTable
  std::optional<RelayPush> relay_push{};  // kAll or kTail; nothing: what is predicted to be sooner
  // How long a request whose workers were lost waits for any worker before it fails.
  absl::Duration worker_wait = absl::Seconds(30);
  // A worker that says nothing for so long is lost: hung, stopped or cut off. Every report counts,
  // an empty one too; infinite = never.
  absl::Duration worker_silence = absl::Seconds(3);
  // An attempt that gives no sign of life (a token, the end of a part or of the prompt) for so
  // long, and 20 times the predicted wait before the first one, is given up and dispatched anew.
  absl::Duration attempt_silence = absl::Minutes(5);
  // A handoff of a relay broke: how long the reports of its other ranks, or the loss of a worker,
  // are awaited to tell whose fault it was, if it can be replaced.
  absl::Duration blame_wait = absl::Milliseconds(200);
  // How long an ended request is remembered for its parts to end.
  absl::Duration end_wait = absl::Seconds(30);
  TransitionCounts* transitions = nullptr;  // counts transitions; tests only
};

// Why a request was dispatched anew.
enum class FailoverCause { kWorkerLost, kPartFailed, kHandoffFailed, kStuck, kDraining, kSlowLink };
inline constexpr int kFailoverCauses = 6;
// Why tokens of a prompt were computed again: by FailoverCause, or since it was preempted or moved.
inline constexpr int kRecomputeReasons = kFailoverCauses + 1;

struct ClusterView {  // what /readyz, /metrics and logs show
  int prefill_workers = 0, decode_workers = 0;
  int running = 0, waiting = 0;  // running: dispatched at workers; waiting: for a worker to come
  bool draining = false;
  int64_t max_context = 0;                            // the smallest of the workers'
  int64_t kv_pages_total = 0, kv_pages_free = 0;      // of workers that decode, by their reports
  int64_t kv_pages_promised = 0;                      // by tickets of requests that run
  int ending = 0;                                     // ended requests whose parts have not
  std::array<uint64_t, kFailoverCauses> failovers{};  // since the start, by FailoverCause
  uint64_t relays = 0;                                // attempts that were relays, since the start
  uint64_t relays_in_rounds = 0;                      // of these
  std::array<uint64_t, kRelayPushes> relays_by_push{};
  // Of relays that went on with the slices of the others: their ranks, and their decode workers.
  uint64_t ranks_replaced = 0, sinks_replaced = 0;
  uint64_t replaced_in_rounds = 0;  // of both
  std::array<uint64_t, kRecomputeReasons> recomputed_tokens{};
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

  // A worker's stream brought a report; the first one on a stream carries WorkerAnnounce. One
  // without events is a sign of life. An error
  // means: close this stream with that reason (protocol violation, or a worker of another model,
  // numerics or layout than the cluster's, the field named). The worker is gone here already;
  // OnWorkerLost for it afterwards does nothing.
  absl::Status OnReport(Incarnation worker, const WorkerReport& report, absl::Time now);
  void OnWorkerLost(Incarnation worker, absl::Time now);  // its stream broke
  // Deadlines and silence. Reports that have arrived are given first: a call that comes late means
  // that the router itself stood still, and then nobody's silence proves anything.
  void OnTime(absl::Time now);
  absl::Time NextDeadline() const;  // when OnTime must be called next

  // Effects since the last call, in order.
  std::vector<RouterEffect> TakeEffects();
  ClusterView View() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace baton
