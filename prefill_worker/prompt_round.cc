#include "prefill_worker/prompt_round.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"

namespace baton {
namespace {

// Checks which ranks bring which pages of a promise to the decode worker.
std::string WhyNotInRanges(const PromptRound& round, bool is_last_of_tail, int page_tokens) {
  const int own_page = round.begin / page_tokens;
  const Ticket& ticket = round.ticket;
  if (!ticket.is_last() || ticket.first_page > (is_last_of_tail ? own_page : 0))
    return absl::StrFormat("others bring the pages before %d, those of its inflow are %d",
                           ticket.first_page, own_page);
  const Ticket& push = round.push.ticket;
  if (push.n_pages == 0) return {};
  const int end = round.end / page_tokens;
  if (is_last_of_tail || push.is_named() || push.first_page != own_page ||
      push.first_page + push.n_pages != end)
    return absl::StrFormat("a push of %d pages from %d on, of a slice from %d to %d", push.n_pages,
                           push.first_page, own_page, end);
  return {};
}

// The slice's KV alone is wanted, by another worker that lacks it and perhaps some of what is
// before it; or by nobody: the next slice is this worker's own.
std::string WhyNotForRank(const PromptRound& round, bool is_last, int page_tokens) {
  const bool stays = !is_last && round.sink.incarnation == 0 && round.ticket.kv_pages == 0;
  if (round.end % page_tokens != 0 || (!round.is_remote && !stays))
    return absl::StrFormat("a head's slice of %d tokens for worker %016x", round.end,
                           round.sink.incarnation);
  if (stays) return {};
  const int64_t first = int64_t{round.end} - int64_t{round.ticket.kv_pages} * page_tokens;
  // A rank hands on the part of the ring's KV that it lacked itself.
  const int32_t min_first = round.has_inflow() ? round.lacks_from : 0;
  if (first < min_first || first > round.begin || round.ticket.promise_pages != 0)
    return absl::StrFormat("ticket of %d KV pages, %d promised, for a rank; the slice is [%d, %d)",
                           round.ticket.kv_pages, round.ticket.promise_pages, round.begin,
                           round.end);
  return {};
}

bool IsSameSlice(const PromptRound& one, const PromptRound& other) {
  return one.begin == other.begin && one.end == other.end;
}

// How far pages [from, from + n_pages) of the inflow are.
InflowProgress PartOf(const InflowProgress& inflow, int from, int n_pages) {
  InflowProgress part{.planes = inflow.planes,
                      .pages = std::clamp(inflow.pages - from, 0, n_pages)};
  if (part.pages == n_pages) part = {.planes = part.planes + 1, .pages = 0};
  return part;
}

}  // namespace

bool HasSlice(const std::vector<PromptRound>& rounds, const PromptRound& slice) {
  return std::any_of(rounds.begin(), rounds.end(),
                     [&](const PromptRound& round) { return IsSameSlice(round, slice); });
}

void TakeOver(const std::vector<PromptRound>& kept, const KvLayout& layout, PromptRound* round) {
  const int n_layers = layout.n_layers(), page_tokens = layout.page_tokens;
  for (const PromptRound& before : kept) {
    const bool reaches = before.lacks_from <= round->lacks_from;
    if (IsSameSlice(before, *round)) {
      round->goes_on = true;
      if (before.slice) round->slice.emplace(*before.slice);
      if (before.slice || before.is_computed() || !round->has_inflow()) round->done = before.done;
    } else if (before.lacks_from <= round->begin && round->end <= before.begin &&
               !before.misses_inflow(n_layers)) {
      round->done = round->end;
    }
    if (round->has_inflow() && reaches && round->begin <= before.begin)
      round->inflow = PartOf(before.inflow, (round->lacks_from - before.lacks_from) / page_tokens,
                             round->inflow_pages(page_tokens));
  }
  // An inflow has a last word, so its last cell comes again.
  if (round->has_inflow() && !round->misses_inflow(n_layers))
    round->inflow = {.planes = n_layers - 1, .pages = round->inflow_pages(page_tokens) - 1};
  round->inflow_before = round->inflow;
}

std::vector<PromptRound> RoundsOf(const PrefillRequest& request, int page_tokens,
                                  Incarnation self) {
  std::vector<PromptRound> rounds;
  const auto add = [&](int32_t end, const Inflow& inflow, const Ticket& ticket,
                       const TransferPeer& sink, const Push& push) {
    const int32_t before = rounds.empty() ? 0 : rounds.back().end;
    const int32_t begin = inflow.tokens != 0 ? inflow.tokens : before;
    rounds.push_back({.lacks_from = before,
                      .begin = begin,
                      .end = end,
                      .done = begin,
                      .inflow_ticket = inflow.ticket_id,
                      .ticket = ticket,
                      .sink = sink,
                      .push = push,
                      .is_remote = sink.incarnation != 0 && sink.incarnation != self,
                      .first_page = (end + page_tokens - 1) / page_tokens - ticket.kv_pages});
  };
  for (const RelayRound& round : request.earlier)
    add(round.tokens, round.inflow, round.ticket, round.sink, round.push);
  add(static_cast<int32_t>(request.tokens.size()), request.inflow, request.ticket, request.sink,
      request.push);
  return rounds;
}

std::string WhyNotRounds(const PrefillRequest& request, const std::vector<PromptRound>& rounds,
                         int page_tokens, int max_slice_tokens) {
  const bool is_rank = request.is_head || request.inflow.tokens > 0 || rounds.size() > 1;
  for (const PromptRound& round : rounds) {
    const bool is_last = &round == &rounds.back();
    if (round.begin < round.lacks_from || round.begin >= round.end ||
        round.begin % page_tokens != 0 ||
        (round.inflow_ticket != TicketId{} && !round.has_inflow()))
      return absl::StrFormat("an inflow of %d tokens before a prompt of %d, pages of %d",
                             round.begin - round.lacks_from, round.end, page_tokens);
    if (is_rank && round.size() > max_slice_tokens)
      return absl::StrFormat(
          "a slice of %d tokens; this worker computes at most %d (prefill.max_slice_tokens)",
          round.size(), max_slice_tokens);
    if (request.is_head || !is_last)
      if (std::string why = WhyNotForRank(round, is_last, page_tokens); !why.empty()) return why;
    if (std::string why = WhyNotInRanges(round, is_last && !request.is_head, page_tokens);
        !why.empty())
      return why;
  }
  return {};
}

}  // namespace baton
