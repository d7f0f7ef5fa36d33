#include "prefill_worker/prompt.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "common/prefill_cost.h"

namespace baton {
namespace {

using S = PromptState;

constexpr StateRow kStates[] = {
    {"queued", "wait_timeout without progress", "ended, kFailed"},
    {"opening", "wait_timeout without progress", "CancelHandoff, ending, kFailed"},
    {"promised", "wait_timeout without progress", "CancelHandoff, ending, kFailed"},
    {"inflow", "wait_timeout without a plane of it", "CancelHandoff, ending, kFailed"},
    {"running", "wait_timeout without a chunk", "CancelHandoff, ending, kFailed"},
    {"committing", "wait_timeout; sooner 2.5 times its handoff's peer_timeout: HandoffEnded",
     "CancelHandoff, ending, kFailed"},
    // Not by a timer of this object: what may still be read or written must not be given back.
    {"ending", "kDrainTimeoutUs of the handoffs' machines, which close the connection",
     "HandoffEnded, InflowFailed: ended"},
    {"ended", "", ""}};
constexpr TransitionRow kTransitions[] = {
    Move(S::kQueued, S::kOpening),    Move(S::kQueued, S::kRunning),
    Move(S::kQueued, S::kEnded),      Move(S::kOpening, S::kPromised),
    Move(S::kOpening, S::kEnding),    Move(S::kOpening, S::kEnded),
    Move(S::kPromised, S::kRunning),  Move(S::kPromised, S::kEnding),
    Move(S::kPromised, S::kEnded),    Move(S::kRunning, S::kCommitting),
    Move(S::kRunning, S::kEnding),    Move(S::kRunning, S::kEnded),
    Move(S::kQueued, S::kInflow),     Move(S::kPromised, S::kInflow),
    Move(S::kInflow, S::kRunning),    Move(S::kInflow, S::kEnding),
    Move(S::kInflow, S::kEnded),      Move(S::kRunning, S::kInflow),
    Move(S::kCommitting, S::kEnding), Move(S::kCommitting, S::kEnded),
    Move(S::kEnding, S::kEnded)};

int64_t SizeOf(const PrefillRequest& request) {
  return static_cast<int64_t>(request.tokens.size());
}

// The worker to whose decode batch the sequence belongs; 0: to none.
Incarnation DecodesAt(const PrefillRequest& request) {
  if (!request.wants_first_token || request.slices.empty()) return 0;
  const std::vector<KvOutput>& outputs = request.slices.back().outputs;
  return outputs.empty() ? 0 : outputs.front().peer.incarnation;
}

// Pages that a prompt takes when it starts: the prompt's, and if its tokens follow here those that
// were promised to them too.
int PagesNeeded(const PrefillRequest& request, Incarnation self, int page_tokens) {
  if (DecodesAt(request) == self) return request.slices.back().outputs.front().ticket.promise_pages;
  return static_cast<int>((SizeOf(request) + page_tokens - 1) / page_tokens);
}

}  // namespace

const MachineTable& PromptTable() {
  static const MachineTable table{"prompt", "AdmittedPrompts, engine thread", kStates,
                                  kTransitions};
  return table;
}

Prompt::Prompt(const PrefillFacts& facts, TransitionCounts* transitions, int page_tokens,
               PrefillRequest prefill, int64_t number, absl::Time now)
    : request(std::move(prefill)),
      serial(number),
      is_remote(!request.wants_first_token ||
                (DecodesAt(request) != 0 && DecodesAt(request) != facts.self)),
      is_rank(IsRank(request)),
      pages_needed(PagesNeeded(request, facts.self, page_tokens)),
      range(
          facts.model->rope.RangeOf(std::max(int64_t{request.max_total_tokens}, SizeOf(request)))),
      admitted(now),
      phase(PromptTable(), transitions),
      slices(SlicesOf(request)),
      progress(now) {
  last_word.request_id = request.request_id;
  last_word.epoch = request.epoch;
  last_word.was_prefill = true;
}

int32_t Prompt::remaining() const {
  int32_t tokens = 0;
  for (const PromptSlice& slice : slices) tokens += slice.remaining();
  return tokens;
}

double Prompt::remaining_pairs() const {
  double pairs = 0;
  for (const PromptSlice& slice : slices)
    if (const int whole = slice.end - slice.known_done(); whole > 0)  // in part, layer by layer
      pairs += CausalPairs(whole, slice.known_done()) * slice.remaining() / whole;
  return pairs;
}

bool Prompt::in_transfer() const {
  return std::any_of(slices.begin(), slices.end(),
                     [](const PromptSlice& slice) { return slice.in_transfer(); });
}

bool Prompt::is_continuable() const {
  return is_rank && !(request.wants_first_token && slices.back().is_computed());
}

absl::Time Prompt::Deadline(const PrefillOptions& options) const {
  return phase == PromptState::kEnding ? absl::InfiniteFuture() : progress + options.wait_timeout;
}

SliceOutput* Prompt::first_output() {
  if (request.wants_first_token)
    return slices.back().outputs.empty() ? nullptr : &slices.back().outputs.front();
  for (PromptSlice& slice : slices)
    for (SliceOutput& output : slice.outputs)
      if (output.to.ticket.is_named()) return &output;
  return nullptr;
}

bool HasSlicesOf(const Prompt& next, const Prompt& earlier) {
  const PrefillRequest& a = next.request;
  const PrefillRequest& b = earlier.request;
  const auto is_there = [&](const PromptSlice& slice) {
    return std::any_of(next.slices.begin(), next.slices.end(),
                       [&](const PromptSlice& other) { return IsSameSlice(other, slice); });
  };
  return a.request_id == b.request_id && a.epoch > b.epoch &&
         next.pages_needed >= earlier.pages_needed && next.is_rank == earlier.is_rank &&
         a.cache_salt == b.cache_salt && next.range == earlier.range &&
         a.tokens.size() >= b.tokens.size() &&
         std::equal(b.tokens.begin(), b.tokens.end(), a.tokens.begin()) &&
         std::all_of(earlier.slices.begin(), earlier.slices.end(), is_there);
}

absl::Status CheckRequest(const PrefillRequest& request, const PrefillFacts& facts,
                          const KvLayout& layout, int pool_pages) {
  const int64_t n = SizeOf(request);
  if (n == 0) return absl::InvalidArgumentError("empty prompt");
  if (n > facts.max_context)
    return absl::InvalidArgumentError(
        absl::StrFormat("prompt of %d tokens, context of %d", n, facts.max_context));
  if (request.n_generated < 0 || request.n_generated >= n)
    return absl::InvalidArgumentError(
        absl::StrFormat("%d of %d tokens were generated", request.n_generated, n));
  for (const int32_t token : request.tokens)
    if (token < 0 || token >= facts.model->vocab)
      return absl::InvalidArgumentError(
          absl::StrFormat("token id %d, vocabulary of %d", token, facts.model->vocab));
  if (request.prompt_logprobs >= 0 && IsRank(request))
    return absl::InvalidArgumentError(
        "a rank of a relay has no log-probabilities of the whole prompt");
  RETURN_IF_ERROR(
      CheckSlices(request, layout.page_tokens, facts.limits.max_slice_tokens, facts.self));
  const int pages = PagesNeeded(request, facts.self, layout.page_tokens);
  if (pages > pool_pages)
    return absl::InvalidArgumentError(
        absl::StrFormat("needs %d KV pages, this worker has %d", pages, pool_pages));
  return absl::OkStatus();
}

}  // namespace baton
