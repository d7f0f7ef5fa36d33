// A prompt of the PrefillScheduler, from its admission to its end, and what makes one impossible.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/state_machine.h"
#include "engine/kv_layout.h"
#include "engine/rope.h"
#include "prefill_worker/prefill_options.h"
#include "prefill_worker/prefix_index.h"
#include "prefill_worker/prompt_state.h"
#include "prefill_worker/slice_run.h"
#include "proto/messages.h"

namespace baton {

struct Prompt {
  Prompt(const PrefillOptions& options, PrefillRequest request, int64_t serial, absl::Time now);

  const PrefillRequest request;
  const int64_t serial;   // order of admission
  const bool is_remote;   // its KV goes to another worker
  const RopeRange range;  // of its request, in every attempt
  const absl::Time admitted;
  MachineState<PromptState> phase;
  bool no_room = false;    // of kOpening: the sink has no pages yet
  int32_t done = 0;        // tokens whose KV is in `pages`
  int32_t reused = 0;      // of them: whose KV was there
  int32_t recomputed = 0;  // of a later attempt: computed tokens, but of slices it went on with
  int64_t overtaken = 0;   // tokens computed for prompts admitted later while this one could run
  std::vector<int32_t> pages;
  PrefixChain chain;  // of the pages found in or entered into the index
  absl::Time first_step;
  absl::Time progress;            // since then it has got nowhere
  bool handing_over = false;      // OPEN went out, and the handoff has not ended
  bool pushing = false;           // the same of its push
  bool inflow_open = false;       // its pages may still be written by it
  InflowProgress inflow;          // that has arrived
  InflowProgress inflow_before;   // of it, in the attempt whose slice it goes on with
  std::optional<SliceRun> slice;  // of a rank, once it runs
  int32_t announced_layers = 0;   // of it, where whole prefixes are forwarded
  bool keep = false;              // when it ends, its slice is kept for a later attempt
  // Of kEnding.
  EndReason reason = EndReason::kLength;
  PartFault fault = PartFault::kOwn;
  std::string message;
  int64_t transfer_us = 0;

  int32_t size() const { return static_cast<int32_t>(request.tokens.size()); }
  // To be computed, in tokens.
  int32_t remaining() const { return slice ? slice->remaining() : size() - done; }
  bool has_inflow() const { return request.inflow.tokens > 0; }
  bool is_rank() const { return request.is_head || has_inflow(); }  // of a relay
  bool has_push() const { return request.push.ticket.kv_pages > 0; }
  // The first token of its slice, or to be computed.
  int32_t slice_begin() const { return slice ? size() - slice->n_rows() : done; }
  // A relay's slice of which there is something; a tail that is done has another end.
  bool has_work() const {
    return is_rank() && (slice || inflow.has_begun()) && (request.is_head || done < size());
  }
  // A handoff may still read or write its pages.
  bool in_transfer() const { return handing_over || pushing || inflow_open; }
  bool gave_up() const { return phase == PromptState::kEnding || phase == PromptState::kKept; }
  bool CanRun() const {
    return phase == PromptState::kPromised || phase == PromptState::kInflow ||
           phase == PromptState::kRunning || (phase == PromptState::kQueued && !is_remote);
  }
};

// `next` is a later attempt's, and computes the very slice that `earlier` does. Then its KV and
// pages are worth the same to it.
bool HasSameSlice(const Prompt& next, const Prompt& earlier);

// Why a worker with such a pool can never run it; empty: it can.
std::string WhyRefused(const PrefillRequest& request, const PrefillOptions& options,
                       const KvLayout& layout, int pool_pages);

}  // namespace baton
