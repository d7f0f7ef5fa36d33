#include "prefill_worker/prompt_round.h"

#include <utility>

#include "absl/strings/str_format.h"

namespace baton {
namespace {

// Who brings which pages of a handoff to the decode worker.
std::string WhyNotInParts(const PromptRound& round, bool is_last_of_tail, int page_tokens) {
  const int own_page = round.begin / page_tokens;
  const Ticket& ticket = round.ticket;
  if (ticket.is_part() || ticket.first_page > (is_last_of_tail ? own_page : 0))
    return absl::StrFormat("pages before %d come in parts, those of its inflow are %d",
                           ticket.first_page, own_page);
  const Ticket& push = round.push.ticket;
  if (push.kv_pages == 0) return {};
  const int end = round.end / page_tokens;
  if (is_last_of_tail || !push.is_part() || push.first_page != own_page ||
      push.first_page + push.kv_pages != end)
    return absl::StrFormat("a push of %d pages from %d on, of a slice from %d to %d", push.kv_pages,
                           push.first_page, own_page, end);
  return {};
}

// The slice's KV alone is wanted, by another worker that lacks it and perhaps some of its inflow.
std::string WhyNotForRank(const PromptRound& round, int page_tokens) {
  if (round.end % page_tokens != 0 || !round.is_remote)
    return absl::StrFormat("a head's slice of %d tokens for worker %016x", round.end,
                           round.sink.incarnation);
  const int64_t first = int64_t{round.end} - int64_t{round.ticket.kv_pages} * page_tokens;
  if (first < round.lacks_from || first > round.begin || round.ticket.promise_pages != 0)
    return absl::StrFormat("ticket of %d KV pages, %d promised, for a rank; the slice is [%d, %d)",
                           round.ticket.kv_pages, round.ticket.promise_pages, round.begin,
                           round.end);
  return {};
}

}  // namespace

std::vector<PromptRound> RoundsOf(const PrefillRequest& request, int page_tokens,
                                  Incarnation self) {
  std::vector<PromptRound> rounds;
  const auto add = [&](int32_t end, const Inflow& inflow, const Ticket& ticket,
                       const TransferPeer& sink, const Push& push) {
    const int32_t before = rounds.empty() ? 0 : rounds.back().end;
    rounds.push_back({.lacks_from = before,
                      .begin = inflow.tokens,
                      .end = end,
                      .done = inflow.tokens,
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
        round.begin % page_tokens != 0 || (round.lacks_from > 0 && !round.has_inflow()))
      return absl::StrFormat("an inflow of %d tokens before a prompt of %d, pages of %d",
                             round.begin - round.lacks_from, round.end, page_tokens);
    if (is_rank && round.size() > max_slice_tokens)
      return absl::StrFormat(
          "a slice of %d tokens; this worker computes at most %d (prefill.max_slice_tokens)",
          round.size(), max_slice_tokens);
    if (request.is_head || !is_last)
      if (std::string why = WhyNotForRank(round, page_tokens); !why.empty()) return why;
    if (std::string why = WhyNotInParts(round, is_last && !request.is_head, page_tokens);
        !why.empty())
      return why;
  }
  return {};
}

}  // namespace baton
