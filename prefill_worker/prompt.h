// A prompt of the PrefillScheduler, from its admission to its end, and what makes one impossible.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/state_machine.h"
#include "engine/kv/kv_layout.h"
#include "engine/model/rope.h"
#include "prefill_worker/prefill_options.h"
#include "prefill_worker/prefix_index.h"
#include "prefill_worker/prompt_round.h"
#include "prefill_worker/prompt_state.h"
#include "proto/messages.h"

namespace baton {

struct Prompt {
  Prompt(const PrefillOptions& options, int page_tokens, PrefillRequest request, int64_t serial,
         absl::Time now);

  const PrefillRequest request;
  const int64_t serial;   // order of admission
  const bool is_remote;   // all its KV goes to another worker
  const RopeRange range;  // of its request, in every attempt
  const absl::Time admitted;
  MachineState<PromptState> phase;
  bool no_room = false;  // of kOpening: the sink has no pages yet
  std::vector<PromptRound> rounds;
  size_t at = 0;           // of them: the one that runs, or is next
  int32_t reused = 0;      // tokens whose KV was there
  int32_t recomputed = 0;  // of a later attempt: computed tokens, but of slices it went on with
  int64_t overtaken = 0;   // tokens computed for prompts admitted later while this one could run
  std::vector<int32_t> pages;
  PrefixChain chain;  // of the pages found in or entered into the index
  absl::Time first_step;
  absl::Time progress;      // since then it has got nowhere
  bool awaits = false;      // the transfer room was told where its inflows land
  bool keep = false;        // when it ends, its slices are kept for a later attempt
  int32_t first_token = 0;  // of kCommitting, where tokens follow on this worker
  // Of kEnding.
  EndReason reason = EndReason::kLength;
  PartFault fault = PartFault::kOwn;
  std::string message;
  int64_t transfer_us = 0;

  int32_t size() const { return static_cast<int32_t>(request.tokens.size()); }
  PromptRound& round() { return rounds[at]; }
  const PromptRound& round() const { return rounds[at]; }
  bool is_last_round() const { return at + 1 == rounds.size(); }
  // Whose promise it needs before it runs: a head's next rank, else the decode worker.
  PromptRound& first_opened();
  // To be computed, in tokens, and the pairs of queries and keys they see.
  int32_t remaining() const;
  double remaining_pairs() const;
  bool is_rank() const {  // of a relay
    return request.is_head || request.inflow.tokens > 0 || rounds.size() > 1;
  }
  // Another rank waits for the round's slice, which gives no token.
  bool is_for_rank() const { return request.is_head || !is_last_round(); }
  // Slices of a relay of which there is something; a tail that is done has another end.
  bool has_work() const;
  // A handoff may still read or write its pages.
  bool in_transfer() const;
  bool gave_up() const { return phase == PromptState::kEnding || phase == PromptState::kKept; }
  bool CanRun() const {
    return phase == PromptState::kPromised || phase == PromptState::kInflow ||
           phase == PromptState::kRunning || (phase == PromptState::kQueued && !is_remote);
  }
};

// `next` is a later attempt's, and computes the very slices that `earlier` does, perhaps a lost
// rank's too. Then what there is of them, and their pages, are worth the same to it.
bool HasSlicesOf(const Prompt& next, const Prompt& earlier);

// Why a worker with such a pool can never run it; empty: it can.
std::string WhyRefused(const PrefillRequest& request, const PrefillOptions& options,
                       const KvLayout& layout, int pool_pages);

}  // namespace baton
