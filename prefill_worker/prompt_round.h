// A contiguous share of a prompt that a worker computes: the KV that comes in before it and where
// its KV goes. A prompt has one round; a rank of a relay in rounds has a slice in each of several,
// and a rank that continues a lost rank's slices has those beside its own. Engine thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/ids.h"
#include "common/ticket.h"
#include "engine/kv/kv_layout.h"
#include "prefill_worker/slice_run.h"
#include "proto/messages.h"

namespace baton {

struct PromptRound {
  // Tokens: those before lacks_from are here, an inflow brings [lacks_from, begin), this worker
  // computes [begin, end). Without an inflow the slice before is this worker's too, or there is
  // none.
  int32_t lacks_from = 0, begin = 0, end = 0;
  int32_t done = 0;  // tokens up to which KV is in the pages, or will be before the round runs
  TicketId inflow_ticket{};
  Ticket ticket{};  // the handoff to `sink`: the last kv_pages up to `end`
  TransferPeer sink{};
  Push push{};
  bool is_remote = false;  // `sink` is another worker
  int32_t first_page = 0;  // index, among the prompt's pages, of the handoff's first page

  std::optional<SliceRun> slice{};  // a rank's progress, once begun, also in an earlier attempt
  bool goes_on = false;             // continues what an earlier attempt computed here
  bool in_steps = false;           // a rank's slice computed in steps: the engine holds a later one
  bool handing_over = false;       // OPEN went out, and the handoff has not ended
  bool pushing = false;            // the push's OPEN went out, and the push has not ended
  bool inflow_open = false;        // the inflow may still write pages
  bool committed = false;          // all of the handoff was given to the transfer room
  InflowProgress inflow{};         // KV received
  InflowProgress inflow_before{};  // KV received by the earlier attempt that this round continues

  bool has_inflow() const { return begin > lacks_from; }
  bool has_push() const { return push.ticket.n_pages > 0; }
  bool misses_inflow(int n_layers) const { return has_inflow() && inflow.planes < n_layers; }
  int32_t size() const { return end - begin; }
  int inflow_pages(int page_tokens) const { return (begin - lacks_from) / page_tokens; }
  bool is_computed() const { return done == end; }
  // The first token that this worker computes, or computed.
  int32_t slice_begin() const {
    if (slice) return end - slice->n_rows();
    return is_computed() ? begin : done;
  }
  // Tokens still to be computed.
  int32_t remaining() const { return slice ? slice->remaining() : end - done; }
  bool has_begun() const { return slice || inflow.has_begun(); }
  bool in_transfer() const { return handing_over || pushing || inflow_open; }
};

// True if one of `rounds` computes the same tokens as `slice`.
bool HasSlice(const std::vector<PromptRound>& rounds, const PromptRound& slice);

// Continues `round` where an earlier attempt's rounds on this worker stopped, after their pages
// were taken over: with the same slice, or with KV received of a slice that another rank computed;
// and with the inflow received so far.
void TakeOver(const std::vector<PromptRound>& kept, const KvLayout& layout, PromptRound* round);

// Makes a request's rounds, in order; at least one. self: the worker's own incarnation.
std::vector<PromptRound> RoundsOf(const PrefillRequest& request, int page_tokens, Incarnation self);

// Why `rounds` cannot be those of a relay's rank or of a lone prompt; empty: they can.
std::string WhyNotRounds(const PrefillRequest& request, const std::vector<PromptRound>& rounds,
                         int page_tokens, int max_slice_tokens);

}  // namespace baton
