#include "prefill_worker/prompt_slice.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_format.h"

namespace baton {
namespace {

// is_end: of the last slice of a prompt whose first token is computed here.
absl::Status CheckOutput(const KvOutput& output, const SliceSpec& slice, bool is_end,
                         int page_tokens, Incarnation self) {
  const Ticket& ticket = output.ticket;
  const int end_page = (slice.end + page_tokens - 1) / page_tokens;
  const Incarnation peer = output.peer.incarnation;
  if (peer == 0 || (peer == self && !is_end))
    return absl::InvalidArgumentError(
        absl::StrFormat("a slice up to token %d for worker %016x", slice.end, peer));
  if (output.first_page < 0 || output.first_page > slice.begin / page_tokens ||
      ticket.n_pages <= 0 || int64_t{output.first_page} + ticket.n_pages != end_page)
    return absl::InvalidArgumentError(
        absl::StrFormat("a handoff of %d pages from %d on, of a slice that is tokens [%d, %d)",
                        ticket.n_pages, output.first_page, slice.begin, slice.end));
  // The decode worker takes a sequence only whole.
  const bool is_whole = ticket.kv_pages == end_page && ticket.promise_pages >= end_page &&
                        ticket.first_page == output.first_page;
  if (is_end && !is_whole)
    return absl::InvalidArgumentError(
        absl::StrFormat("ticket of %d KV pages, %d promised; the prompt has %d", ticket.kv_pages,
                        ticket.promise_pages, end_page));
  return absl::OkStatus();
}

// How far pages [from, from + n_pages) of the inflow are.
InflowProgress PartOf(const InflowProgress& inflow, int from, int n_pages) {
  InflowProgress part{.planes = inflow.planes,
                      .pages = std::clamp(inflow.pages - from, 0, n_pages)};
  if (part.pages == n_pages) part = {.planes = part.planes + 1, .pages = 0};
  return part;
}

}  // namespace

bool PromptSlice::in_transfer() const {
  return inflow_open || std::any_of(outputs.begin(), outputs.end(),
                                    [](const SliceOutput& output) { return output.is_open; });
}

bool IsSameSlice(const PromptSlice& one, const PromptSlice& other) {
  return one.begin == other.begin && one.end == other.end;
}

void TakeOver(const std::vector<PromptSlice>& kept, const KvLayout& layout, PromptSlice* slice) {
  const int n_layers = layout.n_layers(), page_tokens = layout.page_tokens;
  for (const PromptSlice& before : kept) {
    const bool reaches = before.lacks_from <= slice->lacks_from;
    if (IsSameSlice(before, *slice)) {
      slice->goes_on = true;
      if (before.run) slice->run.emplace(*before.run);
      slice->run_id = before.run_id;
      // A cached prefix may reach further.
      if (before.run || before.is_computed() || !slice->has_inflow())
        slice->done = std::max(slice->done, before.done);
    } else if (before.lacks_from <= slice->begin && slice->end <= before.begin &&
               !before.misses_inflow(n_layers)) {
      slice->done = slice->end;
    }
    if (slice->has_inflow() && reaches && slice->begin <= before.begin)
      slice->inflow = PartOf(before.inflow, (slice->lacks_from - before.lacks_from) / page_tokens,
                             slice->inflow_pages(page_tokens));
  }
  // An inflow has a last word, so its last cell comes again.
  if (slice->has_inflow() && !slice->misses_inflow(n_layers))
    slice->inflow = {.planes = n_layers - 1, .pages = slice->inflow_pages(page_tokens) - 1};
  slice->inflow_before = slice->inflow;
}

bool IsRank(const PrefillRequest& request) {
  return !request.wants_first_token || request.slices.size() > 1 ||
         (!request.slices.empty() && request.slices.front().begin > 0);
}

std::vector<PromptSlice> SlicesOf(const PrefillRequest& request) {
  std::vector<PromptSlice> slices;
  for (const SliceSpec& spec : request.slices) {
    PromptSlice slice{.lacks_from = slices.empty() ? 0 : slices.back().end,
                      .begin = spec.begin,
                      .end = spec.end,
                      .done = spec.begin,
                      .inflow_id = spec.inflow};
    for (const KvOutput& output : spec.outputs) slice.outputs.push_back({.to = output});
    slices.push_back(std::move(slice));
  }
  return slices;
}

absl::Status CheckSlices(const PrefillRequest& request, int page_tokens, int max_slice_tokens,
                         Incarnation self) {
  const std::vector<SliceSpec>& slices = request.slices;
  const auto n_tokens = static_cast<int32_t>(request.tokens.size());
  if (slices.empty() || slices.back().end != n_tokens)
    return absl::InvalidArgumentError(
        absl::StrFormat("%d slices up to token %d of %d", slices.size(),
                        slices.empty() ? 0 : slices.back().end, n_tokens));
  const bool is_rank = IsRank(request);
  std::set<TicketId> handoffs, inflows;
  bool for_rank = false;  // an output is for another rank
  int32_t before = 0;
  for (const SliceSpec& slice : slices) {
    const bool is_end = &slice == &slices.back() && request.wants_first_token;
    if (slice.begin < before || slice.begin >= slice.end || slice.begin % page_tokens != 0 ||
        (slice.end % page_tokens != 0 && !is_end) ||
        (slice.inflow != TicketId{}) != (slice.begin > before))
      return absl::InvalidArgumentError(
          absl::StrFormat("a slice that is tokens [%d, %d) after token %d, pages of %d",
                          slice.begin, slice.end, before, page_tokens));
    if (is_rank && slice.end - slice.begin > max_slice_tokens)
      return absl::InvalidArgumentError(absl::StrFormat(
          "a slice of %d tokens; this worker computes at most %d (prefill.max_slice_tokens)",
          slice.end - slice.begin, max_slice_tokens));
    if (is_end && slice.outputs.size() > 1)
      return absl::InvalidArgumentError("a prompt with a first token is for one decode worker");
    bool are_new = slice.inflow == TicketId{} || inflows.insert(slice.inflow).second;
    for (const KvOutput& output : slice.outputs) {
      RETURN_IF_ERROR(CheckOutput(output, slice, is_end, page_tokens, self));
      are_new &= handoffs.insert(output.ticket.id).second;
      for_rank |= output.ticket.is_named();
    }
    if (!are_new) return absl::InvalidArgumentError("a ticket is given twice");
    before = slice.end;
  }
  if (!request.wants_first_token && (!for_rank || slices.back().outputs.empty()))
    return absl::InvalidArgumentError("a rank without a first token hands nothing over");
  if (request.wants_first_token && request.pages_at_once)
    return absl::InvalidArgumentError("a prompt with a first token waits for pages in its turn");
  return absl::OkStatus();
}

}  // namespace baton
