// The bug bank: bugs that other servers of this kind had, put back at the matching places to prove
// that the simulation finds them (docs/RELIABILITY.md has the table). Only the target
// baton_bug_bank compiles them in; everywhere else Planted is a constant false and costs nothing.
#pragma once

namespace baton {

enum class PlantedBug {
  kNone,
  // Handoff.
  kCrcNotChecked,        // a damaged chunk counts as verified
  kLostChunkCounts,      // so does one whose connection broke under it
  kPagesBackUnderWrite,  // an aborted handoff's pages go back with receives still posted
  kEndUnderRead,         // a source ends while the link still reads its pages
  kSlotBackEarly,        // a bounce slot goes back when it was announced, not when it was read
  kPromiseKept,          // an aborted handoff's promise is never released
  kBoundPagesLost,       // its pages with KV never come back
  kWaitsAfterAbort,      // an aborted handoff stays in the queue for room
  kPromisesPromptOnly,   // room is checked for the prompt's pages only
  kSinksOfLostPeerStay,  // handoffs from a lost peer wait for it for ever
  // Decode worker.
  kLateKvDropped,    // KV that comes after its request's cancel is forgotten, pages and all
  kOrphansKept,      // no deadline for KV whose request never comes
  kCancelsEveryone,  // cancelling one request ends all
  kRowKeepsPages,    // a row that ends by a stop token keeps its pages
  kTrimsTooMuch,     // one page more than has fallen out of the window is given back
  kTrimsShared,      // so are planes that another holder of the page still reads
  // Prefill worker.
  kCachedBeforeComputed,    // pages are found by other prompts before they are computed
  kAnnouncesBeforeCompute,  // layers are announced before they are computed
  kLastPageNotSent,         // a page that is not full is not announced
  kPagesBackAtCancel,       // a cancelled prompt's pages go back while its handoff is open
  kFailureEndsAll,          // one failed handoff ends every prompt
  kPromiseAfterNoRoom,      // a promise that follows NO_ROOM is ignored
  kNeverAges,               // short prompts pass a long one for ever
  // Ranks of relays.
  kAnnouncedUnprojected,  // a slice's first layer is announced before its rows are projected
  kPartNotPushed,         // a head does not hand the last page of its slice to the decode worker
  kInflowAssumed,         // a layer is finished before that layer of the inflow is there
  kKeptTooFar,            // a slice is gone on with as if one more page of its inflow were there
  kKeptPageSkipped,       // so much more of it is said to be there with the promise
  kKeptOffEngine,         // it is gone on with although the engine has another slice
  // Worker.
  kSweepNeedsWork,     // timers run only in turns that compute
  kLenderIsDeaf,       // lent pages are not asked back for a prompt that waits for them
  kLostRouterIgnored,  // work goes on when the router is lost
  // Router.
  kPrefillNotCancelled,       // an end is told to the decode worker only
  kDecodeFailureWaits,        // a failed decode part waits for the prefill part
  kLostDecodeIgnored,         // a lost decode worker's requests wait for it
  kDispatchesWithPromptOnly,  // a new attempt starts without the tokens so far
  kNeverCovered,  // a request that was preempted again and again gets no pages to its end
  kLedgerKept,    // an attempt that ends keeps its place in the ledger
  kStaleTokens,   // tokens of an earlier attempt are taken
  kGapsPassed,    // a token is passed on although the one before it is missing
  kCount
};

#ifdef BATON_BUG_BANK
inline PlantedBug planted_bug = PlantedBug::kNone;  // set before the first run
inline bool Planted(PlantedBug bug) { return planted_bug == bug; }
#else
constexpr bool Planted(PlantedBug) { return false; }
#endif

}  // namespace baton
