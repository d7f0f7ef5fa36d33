// A slice of a prompt while this worker computes it: what of its KV is here, and the handoffs that
// bring the KV before it and take KV up to its end away. A prompt alone is one slice; a rank of a
// relay has one, or in rounds several, and a rank that continues a lost rank's slices has those
// beside its own. Engine thread.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "common/ids.h"
#include "common/status.h"
#include "engine/kv/kv_layout.h"
#include "prefill_worker/slice_run.h"
#include "proto/messages.h"

namespace baton {

struct SliceOutput {
  KvOutput to;
  bool is_open = false;    // OPEN went out, and the handoff has not ended
  bool committed = false;  // all of it was given to the transfer room

  const TicketId& id() const { return to.ticket.id; }
  int32_t end_page() const { return to.first_page + to.ticket.n_pages; }
};

struct PromptSlice {
  // Tokens: those before lacks_from are here, an inflow brings [lacks_from, begin), this worker
  // computes [begin, end).
  int32_t lacks_from = 0, begin = 0, end = 0;
  int32_t done = 0;      // tokens up to which KV is in the pages, or will be before the slice runs
  int32_t expected = 0;  // tokens behind these that will be found, not computed; 0 with pages
  TicketId inflow_id{};
  std::vector<SliceOutput> outputs{};

  std::optional<SliceRun> run{};   // a rank's progress, once begun, also in an earlier attempt
  int64_t run_id = 0;              // of `run`: the engine holds one run at a time
  bool goes_on = false;            // continues what an earlier attempt computed here
  bool in_steps = false;           // a rank's slice computed in steps: the engine holds a later one
  bool inflow_open = false;        // the inflow may still write pages
  InflowProgress inflow{};         // KV received
  InflowProgress inflow_before{};  // KV received by the earlier attempt that this slice continues

  bool has_inflow() const { return begin > lacks_from; }
  bool misses_inflow(int n_layers) const { return has_inflow() && inflow.planes < n_layers; }
  int32_t size() const { return end - begin; }
  int inflow_pages(int page_tokens) const { return (begin - lacks_from) / page_tokens; }
  bool is_computed() const { return done == end; }
  // The first token that this worker computes, or computed.
  int32_t first_own() const {
    if (run) return end - run->n_rows();
    return is_computed() ? begin : done;
  }
  // Tokens from which on they are still to be computed, as far as is known.
  int32_t known_done() const { return done + expected; }
  // Tokens still to be computed.
  int32_t remaining() const { return run ? run->remaining() : end - known_done(); }
  bool in_transfer() const;
};

// True if both are the same tokens.
bool IsSameSlice(const PromptSlice& one, const PromptSlice& other);

// Continues `slice` where an earlier attempt's slices on this worker stopped, after their pages
// were taken over: with the same slice, or with KV received of a slice that another rank computed;
// and with the inflow received so far.
void TakeOver(const std::vector<PromptSlice>& kept, const KvLayout& layout, PromptSlice* slice);

// True if the prompt is shared among workers, and the request is one rank's part.
bool IsRank(const PrefillRequest& request);

// Makes a request's slices, in order. They make sense if CheckSlices is OK.
std::vector<PromptSlice> SlicesOf(const PrefillRequest& request);

// InvalidArgument: the request's slices are no share of a prompt that this worker (`self`) can
// compute. max_slice_tokens: of a rank of a relay.
absl::Status CheckSlices(const PrefillRequest& request, int page_tokens, int max_slice_tokens,
                         Incarnation self);

}  // namespace baton
