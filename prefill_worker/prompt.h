// A prompt of the PrefillScheduler, from its admission to its end. Engine thread. prompt.cc has the
// table of its states, with deadlines.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/time/time.h"
#include "common/state_machine.h"
#include "common/status.h"
#include "common/token_grammar.h"
#include "engine/kv/kv_layout.h"
#include "engine/kv/prefix_index.h"
#include "engine/model/rope.h"
#include "prefill_worker/prefill_options.h"
#include "prefill_worker/prompt_slice.h"
#include "proto/messages.h"

namespace baton {

enum class PromptState {
  kQueued,      // waits for its turn to send OPEN; without a handoff: to run
  kOpening,     // OPEN is out, the sink has promised nothing yet
  kPromised,    // waits for pages here and its first chunk
  kInflow,      // has pages; waits for the KV before its (next) slice, from the rank before it
  kRunning,     // some chunk was computed, its first token was not
  kCommitting,  // computed and committed; the handoff has not ended
  kEnding,      // given up: the handoff was cancelled and may still read its pages
  kEnded
};

const MachineTable& PromptTable();

struct Prompt {
  // serial: order of admission. transitions may be null, else outlives the prompt.
  Prompt(const PrefillFacts& facts, TransitionCounts* transitions, int page_tokens,
         PrefillRequest request, int64_t serial, absl::Time now);

  const PrefillRequest request;
  SharedGrammar grammar;  // null: none
  const int64_t serial;
  const bool is_remote;    // all its KV goes to another worker
  const bool is_rank;      // the prompt is a rank's share of a relay
  const int pages_needed;  // to start
  const RopeRange range;   // the same in every attempt at the request
  const absl::Time admitted;
  MachineState<PromptState> phase;
  bool no_room = false;     // while kOpening: the sink has no pages yet
  bool lacks_room = false;  // and will have none soon
  int asking_steps = 0;     // kept short for it while it awaited its promise
  std::vector<PromptSlice> slices;
  size_t at = 0;          // index of the slice that runs, or is next
  int64_t overtaken = 0;  // tokens computed for prompts admitted later while this one could run
  std::vector<int32_t> pages;  // ids in the pool, in the order of the tokens; empty: none held
  PrefixChain chain;           // the pages found in or entered into the index
  absl::Time first_step;
  absl::Time opened, computed;  // its first output was opened; its first token was drawn
  absl::Time progress;          // time of the last progress
  bool awaits = false;          // the transfer room knows where inflows land
  bool keep = false;            // a later attempt may come: a rank's slices are left in PromptPages
  int32_t first_token = 0;      // once drawn
  PartEnded last_word;          // told at its end: what is known of it so far

  int32_t size() const { return static_cast<int32_t>(request.tokens.size()); }
  // Its tokens' log-probabilities are asked for.
  bool is_scored() const { return request.prompt_logprobs >= 0; }
  PromptSlice& slice() { return slices[at]; }
  const PromptSlice& slice() const { return slices[at]; }
  bool is_last_slice() const { return at + 1 == slices.size(); }
  // The output that needs a promise before the prompt takes pages: to the decode worker, or for a
  // rank without a first token to the next rank. Null: KV goes nowhere.
  SliceOutput* first_output();
  const SliceOutput* first_output() const { return const_cast<Prompt*>(this)->first_output(); }
  // Pages that are final when the KV up to `end` is.
  int FinalPages(int32_t end, const KvLayout& layout) const {
    return end == size() ? layout.PagesFor(end) : end / layout.page_tokens;
  }
  // Tokens still to be computed, and their (query, key) pairs.
  int32_t remaining() const;
  double remaining_pairs() const;
  // True if the slice at hand gives no token: another rank, or the next slice, waits for it.
  bool is_for_rank() const { return !request.wants_first_token || !is_last_slice(); }
  // True if a later attempt could continue the slices: none of a tail that is done is wanted.
  bool is_continuable() const;
  // True while a handoff may still read or write the pages.
  bool in_transfer() const;
  // Time at which it fails if it gets nowhere; infinite while kEnding, which its handoffs end.
  absl::Time Deadline(const PrefillOptions& options) const;
  bool CanRun() const {
    return phase == PromptState::kPromised || phase == PromptState::kInflow ||
           phase == PromptState::kRunning || (phase == PromptState::kQueued && !is_remote);
  }
};

// True if `next`, of a later attempt, computes the very slices that `earlier` did, perhaps a lost
// rank's too, so that their computed part and pages can be taken over.
bool HasSlicesOf(const Prompt& next, const Prompt& earlier);

// InvalidArgument: a worker with a pool of `pool_pages` can never run the request.
absl::Status CheckRequest(const PrefillRequest& request, const PrefillFacts& facts,
                          const KvLayout& layout, int pool_pages);

}  // namespace baton
