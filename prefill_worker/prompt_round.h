// What a worker computes of a prompt in one go, what comes before it and where it goes. A prompt
// has one round, but for a rank of a relay in rounds, which computes a slice in each of several,
// and one that goes on with the slices of a lost rank next to its own. Engine thread.
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
  // Tokens: an inflow brings [lacks_from, begin), those before are there; [begin, end) is computed.
  // No inflow: the slice before is this worker's too, or there is none.
  int32_t lacks_from = 0, begin = 0, end = 0;
  int32_t done = 0;  // tokens up to which KV is in the pages, or will be before the round runs
  TicketId inflow_ticket{};
  Ticket ticket{};  // of the handoff to `sink`: the last kv_pages up to `end`
  TransferPeer sink{};
  Push push{};
  bool is_remote = false;  // `sink` is another worker
  int32_t first_page = 0;  // of the prompt's pages, the first of the handoff's

  std::optional<SliceRun> slice{};  // of a rank, once it has begun, be it in an earlier attempt
  bool goes_on = false;             // with all that an earlier attempt has computed here of it
  bool in_steps = false;            // of a rank: computed in steps, the engine has a later slice
  bool handing_over = false;        // OPEN went out, and the handoff has not ended
  bool pushing = false;             // the same of the push
  bool inflow_open = false;         // pages may still be written by it
  bool committed = false;           // all of the handoff was given to the transfer room
  InflowProgress inflow{};          // that has arrived
  InflowProgress inflow_before{};   // of it, in the attempt whose slice it goes on with
  int32_t announced_layers = 0;     // where whole prefixes are forwarded

  bool has_inflow() const { return begin > lacks_from; }
  bool has_push() const { return push.ticket.kv_pages > 0; }
  bool misses_inflow(int n_layers) const { return has_inflow() && inflow.planes < n_layers; }
  int32_t size() const { return end - begin; }
  int inflow_pages(int page_tokens) const { return (begin - lacks_from) / page_tokens; }
  bool is_computed() const { return done == end; }
  // The first token that this worker computes, or computed.
  int32_t slice_begin() const {
    if (slice) return end - slice->n_rows();
    return is_computed() ? begin : done;
  }
  // To be computed, in tokens.
  int32_t remaining() const { return slice ? slice->remaining() : end - done; }
  bool has_begun() const { return slice || inflow.has_begun(); }
  bool in_transfer() const { return handing_over || pushing || inflow_open; }
};

// One of `rounds` computes the same tokens as `slice`.
bool HasSlice(const std::vector<PromptRound>& rounds, const PromptRound& slice);

// Goes on where an earlier attempt's rounds on this worker are, whose pages it has got: with the
// very slice, or, where it was another rank's, with KV that came from there; and with so much of
// its inflow.
void TakeOver(const std::vector<PromptRound>& kept, const KvLayout& layout, PromptRound* round);

// Those of a request, in order; one at least. `self` is the worker's own incarnation.
std::vector<PromptRound> RoundsOf(const PrefillRequest& request, int page_tokens, Incarnation self);

// Why they are no rounds of a relay's rank, or of a prompt alone; empty: they are.
std::string WhyNotRounds(const PrefillRequest& request, const std::vector<PromptRound>& rounds,
                         int page_tokens, int max_slice_tokens);

}  // namespace baton
