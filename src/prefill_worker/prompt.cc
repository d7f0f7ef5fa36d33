#include "prefill_worker/prompt.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"

namespace baton {
namespace {

int64_t SizeOf(const PrefillRequest& request) {
  return static_cast<int64_t>(request.tokens.size());
}

// Who brings which pages of a handoff to the decode worker.
std::string WhyNotInParts(const PrefillRequest& request, int page_tokens) {
  const int inflow_pages = request.inflow.tokens / page_tokens;
  const Ticket& ticket = request.ticket;
  if (ticket.is_part() || ticket.first_page > (request.is_head ? 0 : inflow_pages))
    return absl::StrFormat("pages before %d come in parts, those of its inflow are %d",
                           ticket.first_page, inflow_pages);
  const Ticket& push = request.push.ticket;
  if (push.kv_pages == 0) return {};
  const int end = static_cast<int>(SizeOf(request)) / page_tokens;
  if (!request.is_head || !push.is_part() || push.first_page != inflow_pages ||
      push.first_page + push.kv_pages != end)
    return absl::StrFormat("a push of %d pages from %d on, of a slice from %d to %d", push.kv_pages,
                           push.first_page, inflow_pages, end);
  return {};
}

std::string WhyNotThisRank(const PrefillRequest& request, const PrefillOptions& options,
                           const KvLayout& layout) {
  const int64_t n = SizeOf(request);
  const int32_t inflow = request.inflow.tokens;
  if (inflow < 0 || inflow >= n || inflow % layout.page_tokens != 0)
    return absl::StrFormat("an inflow of %d tokens before a prompt of %d, pages of %d", inflow, n,
                           layout.page_tokens);
  const Incarnation sink = request.sink.incarnation;
  if (request.is_head && (n % layout.page_tokens != 0 || sink == 0 || sink == options.self))
    return absl::StrFormat("a head's slice of %d tokens for worker %016x", n, sink);
  const bool is_rank = request.is_head || inflow > 0;
  if (is_rank && n - inflow > options.max_slice_tokens)
    return absl::StrFormat(
        "a slice of %d tokens; this worker computes at most %d (prefill.max_slice_tokens)",
        n - inflow, options.max_slice_tokens);
  return WhyNotInParts(request, layout.page_tokens);
}

std::string WhyNoPages(const PrefillRequest& request, const PrefillOptions& options,
                       const KvLayout& layout, int pool_pages) {
  const int kv_pages = layout.PagesFor(static_cast<int>(SizeOf(request)));
  int pages = kv_pages;
  if (request.sink.incarnation != 0) {
    const bool too_few = !request.is_head && request.ticket.promise_pages < kv_pages;
    if (request.ticket.kv_pages != kv_pages || too_few)
      return absl::StrFormat("ticket of %d KV pages, %d promised; the prompt has %d",
                             request.ticket.kv_pages, request.ticket.promise_pages, kv_pages);
    if (request.sink.incarnation == options.self) pages = request.ticket.promise_pages;
  }
  if (pages > pool_pages)
    return absl::StrFormat("needs %d KV pages, this worker has %d", pages, pool_pages);
  return {};
}

}  // namespace

Prompt::Prompt(const PrefillOptions& options, PrefillRequest prefill, int64_t number,
               absl::Time now)
    : request(std::move(prefill)),
      serial(number),
      is_remote(request.sink.incarnation != 0 && request.sink.incarnation != options.self),
      range(options.rope.RangeOf(std::max(int64_t{request.most_tokens}, SizeOf(request)))),
      admitted(now),
      phase(PromptTable(), options.transitions),
      done(request.inflow.tokens),
      progress(now) {}

bool HasSameSlice(const Prompt& next, const Prompt& earlier) {
  const PrefillRequest& a = next.request;
  const PrefillRequest& b = earlier.request;
  return a.request_id == b.request_id && a.epoch > b.epoch && a.is_head == b.is_head &&
         a.inflow.tokens == b.inflow.tokens && a.tokens == b.tokens &&
         a.cache_salt == b.cache_salt && next.range == earlier.range &&
         next.is_remote == earlier.is_remote &&
         (next.is_remote || a.ticket.promise_pages == b.ticket.promise_pages);
}

std::string WhyRefused(const PrefillRequest& request, const PrefillOptions& options,
                       const KvLayout& layout, int pool_pages) {
  const int64_t n = SizeOf(request);
  if (n == 0) return "empty prompt";
  if (n > options.max_context)
    return absl::StrFormat("prompt of %d tokens, context of %d", n, options.max_context);
  for (const int32_t token : request.tokens)
    if (token < 0 || token >= options.vocab)
      return absl::StrFormat("token id %d, vocabulary of %d", token, options.vocab);
  std::string refusal = WhyNotThisRank(request, options, layout);
  return refusal.empty() ? WhyNoPages(request, options, layout, pool_pages) : refusal;
}

}  // namespace baton
