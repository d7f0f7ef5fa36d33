// Requests that go into a Router, effects that come out of it, and the numbers that /readyz,
// /metrics and logs show. Plain values, any thread.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/time/time.h"
#include "common/status.h"
#include "planner/push_choice.h"
#include "proto/messages.h"

namespace baton {

struct GenerateRequest {
  std::string name{};  // for log lines, as the client knows the request; empty: its number
  std::vector<int32_t> prompt{};
  int32_t max_tokens = 16;
  SamplingParams sampling{};
  std::vector<int32_t> stop_tokens{};  // empty with ignore_eos
  bool want_digests = false;
  // Log-probabilities of the prompt's tokens, each with so many of the most probable ones; -1:
  // none. Such a prompt is computed whole, by one worker.
  int32_t prompt_logprobs = -1;
  uint64_t cache_salt = 0;  // KV is reused only among requests with the same salt
  absl::Duration timeout = absl::InfiniteDuration();
};

// Work of one worker for a request, on the way to its tokens. Times are since the request was
// submitted: a worker tells how long its work took when it is done, which is its end here. A head
// of a relay tells of its end alone, so its prefill is all of its part, the handoff included.
struct WorkSpan {
  enum class Kind { kPrefillQueue, kPrefill, kTransfer, kDecodeQueue, kDecode };
  Kind kind = Kind::kPrefill;
  std::string worker{};
  absl::Duration begin{}, end{};
};

// One attempt at a request. Times as in WorkSpan.
struct AttemptRecord {
  static constexpr size_t kMax = 16;  // of a request: the last ones are kept
  int number = 1;
  absl::Duration sent{};
  std::string prefill_worker{}, decode_worker{}, prefill_heads{};  // as in Timeline
  std::vector<WorkSpan> spans{};                                   // in the order they were told
  // Why and when it was given up: FailoverCause, or kFailoverCauses for a preemption or a move; -1:
  // it was not. worker: the one that failed, if there is one.
  int cause = -1;
  std::string failure{}, failed_worker{};
  absl::Duration given_up{};
};

// Time that each part of a request took, each stamped by the worker that did it; unaccounted() is
// the rest. After a failover the parts of all attempts that reported their end are summed.
// `transfer` (OPEN seen to KV complete) overlaps prefill: the time not hidden there belongs to
// unaccounted(), with the wires and with parts whose end was not reported.
struct Timeline {
  absl::Duration router_queue{};  // submitted to sent to a prefill worker
  absl::Duration prefill_queue{}, prefill{}, transfer{}, decode_queue{}, decode{};
  // On the way to the first token, of attempts that computed the prompt: its worker took the
  // message and was in a turn; it drew the token and reported; both ways between the two, with what
  // the router did before its message went out.
  absl::Duration inbox{}, draw{}, wire{};
  // Values of router_queue, prefill_queue and prefill at the first token.
  absl::Duration queue_to_first{}, prefill_queue_to_first{}, prefill_to_first{};
  // Times of the last attempt that its workers told at their ends (PartEnded); nothing: not told.
  // The exposed transfer is zero where has_handoff is false: its KV stays where it is.
  std::optional<absl::Duration> exposed_transfer{}, first_decode_step{};
  std::vector<absl::Duration> rank_compute{};  // of a relay's ranks, in the order of their ends
  absl::Duration ttft{};                       // submitted to first token
  absl::Duration total{};                      // submitted to end
  absl::Duration unaccounted() const {
    return total - router_queue - prefill_queue - prefill - decode_queue - decode;
  }
  std::string prefill_worker{}, decode_worker{};
  // Prompt tokens whose KV was cached when the first attempt began. Of a relay's heads, those that
  // had handed over their slices before the end: an answer of a few tokens may miss one.
  int32_t reused_tokens = 0;
  // Names of a relay's ranks before the tail, in order of slices, commas between them; empty: no
  // relay. The prefill times above are the tail's.
  std::string prefill_heads{};
  // The last attempt: tokens that each rank computed; time from sent to first token, predicted and
  // taken (zero: no token came; zero predicted: unknown); predicted mean time between tokens (zero:
  // unknown); of the predicted time to the first token, that before the prompt begins.
  std::vector<int32_t> slices{};
  absl::Duration predicted{}, took{}, predicted_gap{}, predicted_queue{};
  RelayPush push = RelayPush::kNone;  // which ranks of a relay hand KV over
  bool has_handoff = false;           // the last attempt: its KV goes to another worker to decode
  int attempts = 1;
  int rounds = 1;  // rounds of the last attempt's relay
  std::vector<AttemptRecord> records{};
};

// --- effects ----------------------------------------------------------------------------------
struct SendToWorker {
  Incarnation worker = 0;
  RouterMessage message{};
};
// Emits every index from 0 on, each once, ascending. A stop token is emitted too, and EmitEnd says
// kStopToken: the server leaves it out of the text.
struct EmitToken {
  RequestId request_id = 0;
  int32_t index = 0;  // 0 = the first token
  int32_t token = 0;
  float logprob = 0;
  uint64_t digest = 0;
  std::vector<TokenLogprob> logprobs{};  // as in TokenOut
  // With index 0, where they were asked for: of all tokens of the prompt but the first.
  std::vector<PromptLogprob> prompt_logprobs{};
};
// Comes exactly once per submitted request, after the last token; only EmitReleased may follow.
struct EmitEnd {
  RequestId request_id = 0;
  EndReason reason = EndReason::kLength;
  absl::Status status{};  // error of EndReason::kFailed
  Timeline timeline{};
};
// All workers have released a request that the router ended (cancel, deadline, stop string,
// failure): at most once per request, after its EmitEnd. If one of the workers was lost, only to
// tell that another one is overdue.
struct EmitReleased {
  RequestId request_id = 0;
  absl::Duration after{};  // EmitEnd to the end of the last part
  bool overdue = false;    // a worker did not report the end within end_wait
};
// Asks the shell to end this worker's stream with this reason. The Router has forgotten the worker:
// later reports of that stream must not be given to it, only the stream's end may be.
struct CloseWorker {
  Incarnation worker = 0;
  absl::Status reason{};
};
using RouterEffect = std::variant<SendToWorker, EmitToken, EmitEnd, EmitReleased, CloseWorker>;

// --- numbers ----------------------------------------------------------------------------------
// The link from a worker to one that it sends KV to.
struct LinkView {
  std::string peer{};
  double bytes_per_second = 0;   // as the sender measured it; 0: unknown
  int64_t tokens_under_way = 0;  // whose KV the router has asked for and that is not known there
  bool broken = false;           // tried in vain since a handoff over it broke (broken_links.h)
};

// One worker: what it announced and reported last, and what the router has sent it since.
struct WorkerView {
  std::string name{};
  Incarnation incarnation = 0;
  Role role = Role::kBoth;
  bool draining = false;
  bool standing = false;              // its engine stands still: it gets nothing new
  int32_t requests = 0;               // with a part there that has not ended
  int32_t prefill_queued_tokens = 0;  // of admitted prompts, still to be computed
  int32_t decode_rows = 0, decode_waiting = 0, max_batch = 0;
  int32_t pages_total = 0, pages_free = 0;
  int64_t pages_promised = 0;  // by tickets of running requests
  absl::Time heard_at{};       // when a report came last
  std::vector<LinkView> links{};
};

// A request that has not ended.
struct RequestView {
  bool waits = false;    // for a worker
  int32_t n_tokens = 0;  // so far
  Timeline timeline{};   // up to now
};

// Why a request was dispatched anew.
enum class FailoverCause { kWorkerLost, kPartFailed, kHandoffFailed, kStuck, kDraining, kLate };
inline constexpr int kFailoverCauses = 6;
// Reasons to compute tokens of a prompt again: FailoverCause, and preemption or a move.
inline constexpr int kRecomputeReasons = kFailoverCauses + 1;

struct ClusterView {
  int prefill_workers = 0, decode_workers = 0;  // that take requests
  int standing_workers = 0;                     // whose engines stand still, of any role
  int broken_links = 0;  // from worker to worker, that were tried in vain since a handoff broke
  int running = 0, waiting = 0;  // requests dispatched, and requests without a worker
  bool draining = false;
  int64_t max_context = 0;                            // the smallest of all workers
  uint64_t model_fingerprint = 0;                     // of all workers, with the next
  std::string numerics_id{};                          // empty: no worker is there
  int64_t kv_pages_total = 0, kv_pages_free = 0;      // as decode workers report
  int64_t kv_pages_promised = 0;                      // by tickets of running requests
  int ending = 0;                                     // ended requests with parts still open
  std::array<uint64_t, kFailoverCauses> failovers{};  // since the start, by FailoverCause
  uint64_t relays = 0;                                // attempts that were relays, since the start
  uint64_t relays_in_rounds = 0;                      // relays with more than one round
  uint64_t followed = 0;  // times that a request waited for KV that another one computed
  std::array<uint64_t, kRelayPushes> relays_by_push{};
  // Lost ranks and lost decode workers of relays that were replaced while the others went on.
  uint64_t ranks_replaced = 0, sinks_replaced = 0;
  uint64_t replaced_in_rounds = 0;  // both, in relays with more than one round
  std::array<uint64_t, kRecomputeReasons> recomputed_tokens{};
  uint64_t preemptions = 0;  // rows that lost their pages to others, since the start
  int32_t page_tokens = 0;   // tokens of a KV page; 0: no worker is there
  // Workers that the load of the last minutes needs (pool_sizing.h).
  int desired_prefill = 0, desired_decode = 0;
};

}  // namespace baton
