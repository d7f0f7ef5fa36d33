#include "prefill_worker/prompt.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "planner/prefill_cost.h"

namespace baton {
namespace {

int64_t SizeOf(const PrefillRequest& request) {
  return static_cast<int64_t>(request.tokens.size());
}

std::string WhyNoPages(const PrefillRequest& request, const PrefillFacts& facts,
                       const KvLayout& layout, int pool_pages) {
  const int kv_pages = layout.PagesFor(static_cast<int>(SizeOf(request)));
  int pages = kv_pages;
  if (request.sink.incarnation != 0) {
    const bool too_few = !request.is_head && request.ticket.promise_pages < kv_pages;
    if ((!request.is_head && request.ticket.kv_pages != kv_pages) || too_few)
      return absl::StrFormat("ticket of %d KV pages, %d promised; the prompt has %d",
                             request.ticket.kv_pages, request.ticket.promise_pages, kv_pages);
    if (request.sink.incarnation == facts.self) pages = request.ticket.promise_pages;
  }
  if (pages > pool_pages)
    return absl::StrFormat("needs %d KV pages, this worker has %d", pages, pool_pages);
  return {};
}

}  // namespace

Prompt::Prompt(const PrefillFacts& facts, TransitionCounts* transitions, int page_tokens,
               PrefillRequest prefill, int64_t number, absl::Time now)
    : request(std::move(prefill)),
      serial(number),
      is_remote(request.sink.incarnation != 0 && request.sink.incarnation != facts.self),
      range(facts.rope.RangeOf(std::max(int64_t{request.max_total_tokens}, SizeOf(request)))),
      admitted(now),
      phase(PromptTable(), transitions),
      rounds(RoundsOf(request, page_tokens, facts.self)),
      progress(now) {}

int32_t Prompt::remaining() const {
  int32_t tokens = 0;
  for (const PromptRound& round : rounds) tokens += round.remaining();
  return tokens;
}

double Prompt::remaining_pairs() const {
  double pairs = 0;
  for (const PromptRound& round : rounds)
    if (const int whole = round.end - round.done; whole > 0)  // there in part, layer by layer
      pairs += CausalPairs(whole, round.done) * round.remaining() / whole;
  return pairs;
}

bool Prompt::in_transfer() const {
  return std::any_of(rounds.begin(), rounds.end(),
                     [](const PromptRound& round) { return round.in_transfer(); });
}

bool Prompt::has_work() const {
  return is_rank() && (request.is_head || rounds.back().done < size()) &&
         std::any_of(rounds.begin(), rounds.end(),
                     [](const PromptRound& round) { return round.has_begun(); });
}

PromptRound& Prompt::first_opened() {
  if (!request.is_head) return rounds.back();
  return *std::find_if(rounds.begin(), rounds.end(),
                       [](const PromptRound& round) { return round.is_remote; });
}

bool HasSlicesOf(const Prompt& next, const Prompt& earlier) {
  const PrefillRequest& a = next.request;
  const PrefillRequest& b = earlier.request;
  const auto is_there = [&](const PromptRound& slice) { return HasSlice(next.rounds, slice); };
  const bool fits =  // it has no more pages
      earlier.is_remote || (!next.is_remote && a.ticket.promise_pages == b.ticket.promise_pages);
  return a.request_id == b.request_id && a.epoch > b.epoch && fits &&
         next.is_rank() == earlier.is_rank() && a.cache_salt == b.cache_salt &&
         next.range == earlier.range && a.tokens.size() >= b.tokens.size() &&
         std::equal(b.tokens.begin(), b.tokens.end(), a.tokens.begin()) &&
         std::all_of(earlier.rounds.begin(), earlier.rounds.end(), is_there);
}

std::string WhyRefused(const PrefillRequest& request, const PrefillFacts& facts,
                       const KvLayout& layout, int pool_pages) {
  const int64_t n = SizeOf(request);
  if (n == 0) return "empty prompt";
  if (n > facts.max_context)
    return absl::StrFormat("prompt of %d tokens, context of %d", n, facts.max_context);
  if (request.n_generated < 0 || request.n_generated >= n)
    return absl::StrFormat("%d of %d tokens were generated", request.n_generated, n);
  for (const int32_t token : request.tokens)
    if (token < 0 || token >= facts.vocab)
      return absl::StrFormat("token id %d, vocabulary of %d", token, facts.vocab);
  const bool is_share = request.is_head || request.inflow.tokens > 0 || !request.earlier.empty();
  if (request.prompt_logprobs >= 0 && is_share)
    return "a rank of a relay has no log-probabilities of the whole prompt";
  std::string refusal = WhyNotRounds(request, RoundsOf(request, layout.page_tokens, facts.self),
                                     layout.page_tokens, facts.max_slice_tokens);
  return refusal.empty() ? WhyNoPages(request, facts, layout, pool_pages) : refusal;
}

}  // namespace baton
