// Turns admitted prompts into KV and a first token, many at once, chunk by chunk, and hands the KV
// over. A plain object of the engine thread: events in, effects out; no clock, thread or socket.
//
// Life of a prompt: Queued -> (OPEN sent) Opening -> Promised -> Running -> Committing -> gone; the
// whole table, with deadlines, is in prompt_state.cc.
// A prompt whose sink is this very worker, or nobody, needs no promise and starts from Queued.
//  * OPEN goes out while a prompt is among the next `open_ahead`; compute starts with the promise
//    in hand. NO_ROOM takes the prompt out of that window: it waits while others go on.
//  * Pages are taken, all at once, when a prompt starts, and kept until its handoff has ended.
//    Those whose KV is there already, whole pages of the same tokens, are shared with who holds
//    them and not computed again; so an attempt that follows one that was cancelled, or whose
//    handoff failed, goes on where that one was, and only hands over again.
//  * A prompt waits for pages of two pools, its sink's (the promise) and this one, and takes them
//    in the order of the workers' incarnations: so workers that hand over to each other never wait
//    in a circle. Workers make incarnations that order decode workers below prefill workers; then
//    the promise comes first and no page here is held idle.
//  * Order: least remaining tokens first, so a short prompt passes a long one at the next step. A
//    prompt overtaken by more than `stretch` times its own length goes first and stays first, and
//    if it lacks pages nobody starts before it: every prompt ends (scheduling.md 6, rule 1, with
//    waiting counted in tokens computed for others). From when it could run, prompts admitted after
//    one of n tokens are computed ahead of it for at most
//        stretch * (n + 256) + B + P tokens,
//    B the budget of one step and P those of the pool: what it does not see until the step is over,
//    and what had started when it became the first. The wait for its promise is in order of arrival
//    at the sink. A preempted request comes back as a new prompt: at most three times.
//
// Ranks of a relay (KV-Runahead): a head computes its slice, hands all KV up to its end to the next
// rank as any prompt is handed over, and has no first token; the tail is the last rank. A rank that
// is not the first takes pages for all tokens up to its slice's end, the first of them for its
// inflow, and passes on at once what arrives. A head may hand its own slice to the decode worker
// too (Push), by a second handoff, so that the tail sends only its own. Its slice runs layer by
// layer (slice_run.h): the KV of a block of rows is announced when the block is projected, and a
// layer goes on when that layer of the inflow is there.
//
// Pages are taken from the decode worker's pool first, then the tail's, last the first head's (a
// tail that is less than its decode worker goes first); the router aims so that it is the order of
// incarnations too. A head that another worker stands in for may break that order; the router then
// marks it and whoever takes pages after it of a pool that is less than one before
// (PrefillRequest::pages_at_once): when its turn comes it takes its pages or fails, it never waits
// for them. So who waits for pages of a pool holds pages of lesser pools only. In a circle of
// attempts, each waiting for pages that the next one holds, every next pool would be greater than
// the one before, up to the first again: there is none.
//
// One slice at a time: it is kept until it is done, and other ranks wait for it; other prompts do
// not: those before it in the order run as if it were not there, the others when it waits for its
// inflow. A rank begins when the first of its inflow is there (or it has none), and passes on what
// has arrived from when it begins: so a slice waits only for one that has begun and is kept, and
// the first head's waits for nobody. No circle, however many relays share workers.
//
// Rounds: of a prompt that is too long for one slice per rank (prefill.max_slice_tokens), a rank
// computes several, one after the other in the order of the prompt: of p ranks slices i, p + i, ...
// It takes pages for all of them at once, when it would for the first, so pages make no new circle;
// what it lacks between two slices comes around the ring of ranks (the tail hands over to the first
// head), an inflow and a handoff of their own for each slice, and may come while the slice before
// runs. Of what a rank gets it hands on only what the next one lacks. Between two slices the engine
// is free for others. A slice begins as any does, and not before all the inflow of this rank's
// slice before is there; so again it waits only for the one before it in the prompt, which has
// begun: of all slices that have begun and are not done the first ones of their prompts get on.
//
// Slices outlive an attempt that a peer broke: when a handoff of their rank fails, a later attempt
// comes for the same slices, or a head has handed over (the ranks after it may still be lost), what
// there is of them is kept (the pages, how far each slice and its inflow are), and the later
// attempt takes it over in place of new pages, in its turn for pages; of its inflows it awaits only
// what is missing. So of a relay that lost a rank or its decode worker the others compute nothing
// again, but where another slice ran on the engine since. Nobody waits for what is kept: it is
// given back when a prompt, a row or a sequence lacks pages (ForgetKept), or when nobody came for
// it for kept_slice_time and as long as it had taken. And a slice that goes on waits for its inflow
// to move, as one that begins does, before it keeps others waiting. In rounds the later attempt
// goes through all of them again, from the first: those whose slice is done pass on what the next
// rank lacks, of a rank that stayed nothing but the last cell. So a slice begins, or goes on, only
// when the one before it has in this very attempt, and the order in which slices wait for each
// other is that of the prompt as ever: no circle. Who stands in for a lost rank computes all its
// slices, those of earlier rounds too: the ranks after it have their KV, but the one before it,
// which hands over to it, may not, and the decode worker lacks it. Where nobody new stands in, a
// rank that is left goes on with the lost slices besides its own: they are rounds of its prompt, in
// order, and between two that follow each other there is no inflow. If more pages are needed for
// them, it waits for these with empty hands: what is kept for it is still anybody's who lacks
// pages. A lost slice whose KV has come whole is not computed. One that comes before a slice of its
// own that is on the engine runs in steps, when its inflow is there: so it holds no place there,
// and waits, as a slice does, only for slices before it in the prompt.
//
// A step: Contribute, LayersDone after each run of layers until all are done, StepDone. Of the
// slice: NextBlock, BeginSlice if it is the first, BlockDone. Events come between steps and blocks.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/time/time.h"
#include "common/ids.h"
#include "common/ticket.h"
#include "engine/kv/kv_pool.h"
#include "engine/sampling/sampler.h"
#include "engine/step/backend.h"
#include "engine/step/step.h"
#include "kvtransfer/protocol/transfer_events.h"
#include "prefill_worker/prefill_options.h"
#include "prefill_worker/prompt.h"
#include "prefill_worker/prompt_pages.h"
#include "prefill_worker/prompt_queue.h"
#include "proto/messages.h"

namespace baton {

// TransferCommand: to the transfer room. WorkerEvent: to the router. HandoffArrived: the finished
// KV of a prompt whose sink is this worker, for its decode batch; the pages are the batch's from
// now.
using PrefillEffect = std::variant<TransferCommand, WorkerEvent, HandoffArrived>;

struct ComputedSlice {
  int tokens = 0, before = 0;
};

class PrefillScheduler {
 public:
  PrefillScheduler(const PrefillOptions& options, KvPool* pool);
  PrefillScheduler(const PrefillScheduler&) = delete;
  PrefillScheduler& operator=(const PrefillScheduler&) = delete;

  // --- events. Events of unknown tickets and requests are ignored.
  // A request that can never run ends at once with kFailed and the reason. Ends earlier attempts at
  // the request (this one finds their KV); one that comes after a later one is ignored.
  void Admit(PrefillRequest request, absl::Time now);
  void Promised(const HandoffPromised& event, absl::Time now);
  void NoRoom(const HandoffNoRoom& event);
  void Ended(const HandoffEnded& event, absl::Time now);
  void Arrived(const InflowArrived& event, absl::Time now);
  void Failed(const InflowFailed& event, absl::Time now);
  void Cancel(RequestId request, Epoch up_to);
  void CancelAll();
  // Ends everything at once: the transfer room is gone and reads no page any more.
  void Abandon();
  void OnTime(absl::Time now);      // ends prompts without progress for too long
  absl::Time NextDeadline() const;  // the latest time of the next OnTime

  // --- one step
  // Adds pieces of at most `budget` tokens in all; returns the number of tokens. Also chooses the
  // slice, and sends due OPENs. kept_pages: free pages that are reserved for others.
  int Contribute(int budget, int kept_pages, absl::Time now, StepBuilder* builder);
  // Bytes per layer that this step makes final for handoffs; 0: no peer waits for single layers.
  int64_t AnnouncedBytesPerLayer() const;
  // Announces the finished pages of the step's layers [0, to).
  void LayersDone(int to);
  void StepDone(const Backend& backend, Sampler* sampler, absl::Time now);

  // --- the slice, between steps
  bool has_slice() const { return slice_ != nullptr; }
  // The slice's next block, of at most max_rows rows; empty: no slice, or it waits for its inflow.
  std::optional<SliceBlock> NextBlock(int max_rows) const;
  // Describes the whole slice, for Backend::BeginSlice before the first block.
  void DescribeSlice(StepBuilder* builder) const;
  // Announces the block's KV. Returns the slice if this block ends it, else 0 tokens.
  ComputedSlice BlockDone(const SliceBlock& block, const Backend& backend, Sampler* sampler,
                          absl::Time now);

  // Effects since the last call, appended in order.
  void TakeEffects(std::vector<PrefillEffect>* out);

  // --- what the worker reports and the lender must know
  int64_t queued_tokens() const;  // still to be computed
  double queued_pairs() const;    // (query, key) pairs of these tokens
  int n_prompts() const { return queue_.size(); }
  int n_running() const;
  // Pages that the first prompt able to start lacks; 0: no prompt waits for pages.
  int wanted_pages() const { return pages_.wanted(); }
  // Gives back the pages of the slice kept the longest, `except` left out; false: there is none.
  bool ForgetKept(const Prompt* except = nullptr);
  // Free pages taken by the last Contribute.
  int taken_pages() const { return pages_.taken(); }

  int pages_held() const;
  int64_t reused_tokens() const { return pages_.reused_tokens(); }  // since the start

 private:
  struct Piece {
    Prompt* prompt;
    int32_t begin, end;  // positions
    int logits;          // index in the step's logits, -1 = none
    int announced;       // layers
  };

  bool MissesInflow(const PromptRound& round) const;
  bool TakesPagesFirst(const Prompt& prompt) const;
  bool HoldPages(Prompt* prompt);
  bool TakePages(Prompt* prompt, absl::Time now);
  bool TakePagesInTurn(Prompt* prompt, bool may_start, absl::Time now);
  void EndEarlier(Prompt* next);
  bool AwaitsKept(const Prompt& prompt) const;
  void GoOnWith(Prompt* prompt, Prompt* kept);
  bool RunsInSteps(Prompt* prompt);
  static bool InflowMoves(const PromptRound& round);
  void Run(Prompt* prompt, absl::Time now);
  void ChooseSlice(Prompt* prompt, absl::Time now);
  int AddPiece(Prompt* prompt, int budget, absl::Time now, StepBuilder* builder);
  void SendOpens(absl::Time now);
  void Open(PromptRound* round);
  void Announce(const Prompt& prompt, int plane, int n_planes, int first_page, int end_page);
  void AnnounceToNext(const Prompt& prompt, const PromptRound& round, int plane, int n_planes,
                      int first_page, int end_page);
  void AnnounceCells(const Prompt& prompt, const TicketId& ticket, int from, int plane,
                     int n_planes, int first_page, int end_page);
  // Positions [begin, end) of the planes are final.
  void AnnounceTokens(const Prompt& prompt, int plane, int n_planes, int begin, int end);
  void PassOn(Prompt* prompt, const InflowProgress& before);
  bool WaitsForPrefixes(const Prompt& prompt) const;
  void AnnouncePrefixes(Prompt* head);
  void AnnounceEarlier(const Prompt& prompt, int plane, int n_planes);
  void AnnounceProjected(Prompt* prompt);
  void SliceDone(const Backend& backend, Sampler* sampler, absl::Time now);
  void RoundComputed(Prompt* prompt);
  bool IsComplete(const Prompt& prompt) const;
  void CommitIfComplete(Prompt* prompt);
  void AwaitNextRound(Prompt* prompt);
  void PushEnded(const HandoffEnded& event, absl::Time now);
  void FirstToken(Prompt* prompt, std::span<const float> logits, Sampler* sampler, absl::Time now);
  void Commit(PromptRound* round, int32_t first_token);
  void GiveUp(Prompt* prompt);
  absl::Time Deadline(const Prompt& prompt) const;
  void Stop(Prompt* prompt, EndReason reason, std::string message);
  // Ends the attempt since the handoff `which` broke; computed parts of slices are kept.
  void Break(Prompt* prompt, PartFault which, const absl::Status& status);
  void End(Prompt* prompt, EndReason reason, std::string message);
  void ParkSlice(const Prompt* prompt);
  void EndIfReleased(Prompt* prompt);
  void EndIfHandedOver(Prompt* prompt);
  void Emit(TransferCommand command) { effects_.emplace_back(std::move(command)); }
  void Emit(WorkerEvent event) { effects_.emplace_back(std::move(event)); }

  const PrefillOptions options_;
  PromptPages pages_;
  PromptQueue queue_;
  int64_t next_serial_ = 0;
  std::vector<Piece> pieces_;  // the running step's
  Prompt* slice_ = nullptr;    // the prompt whose slice runs
  Prompt* parked_ = nullptr;   // the prompt whose slice stays in the engine without running
  std::vector<PrefillEffect> effects_;
};

}  // namespace baton
