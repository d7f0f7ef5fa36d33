#include "decode_worker/sequence.h"

#include <algorithm>
#include <span>

#include "absl/strings/str_format.h"

namespace baton {
namespace {

using S = SequenceState;

constexpr StateRow kStates[] = {{"expected", "kv_timeout", "CancelHandoff, ended, kFailed"},
                                {"orphan", "orphan_timeout", "its pages are given back, ended"},
                                {"ready", "wait_timeout", "ended, kFailed"},
                                {"decoding", "wait_timeout without a token", "ended, kFailed"},
                                {"ended", "", ""}};
constexpr TransitionRow kTransitions[] = {
    // A sequence that ends with its first token, or whose KV does not fit it, never is ready.
    Move(S::kExpected, S::kOrphan), Move(S::kExpected, S::kReady), Move(S::kExpected, S::kEnded),
    Move(S::kOrphan, S::kReady),    Move(S::kOrphan, S::kEnded),   Move(S::kReady, S::kDecoding),
    Move(S::kReady, S::kEnded),     Move(S::kDecoding, S::kEnded),
};

}  // namespace

const MachineTable& SequenceTable() {
  static const MachineTable table{"sequence", "DecodeBatch, engine thread", kStates, kTransitions};
  return table;
}

absl::Time Sequence::Deadline(const DecodeOptions& options) const {
  switch (S(state)) {
    case S::kExpected:
      return progress + options.kv_timeout;
    case S::kOrphan:
      return progress + options.orphan_timeout;
    case S::kReady:
    case S::kDecoding:
      return progress + options.wait_timeout;
    case S::kEnded:
      break;
  }
  return absl::InfiniteFuture();
}

int Sequence::PagesToEnd(const KvLayout& layout) const {
  // The last token's KV is never written: nothing follows it.
  return layout.PagesFor(n_prompt + request->max_tokens - 1);
}

bool Sequence::IsCovered(const KvLayout& layout) const {
  return static_cast<int>(kv->pages.size()) >= PagesToEnd(layout);
}

int Sequence::RoomLeft(const KvLayout& layout) const {
  return static_cast<int>(kv->pages.size()) * layout.page_tokens - (position + ahead);
}

std::optional<EndReason> Sequence::EndsWithToken() const {
  const std::vector<int32_t>& stops = request->stop_tokens;
  if (std::find(stops.begin(), stops.end(), token) != stops.end()) return EndReason::kStopToken;
  if (TokensLeft() == 0) return EndReason::kLength;
  return std::nullopt;
}

void Sequence::Written(std::span<const int32_t> tokens, PrefixIndex* index, int page_tokens) {
  for (const int32_t written : tokens) {
    tail.push_back(written);
    if (static_cast<int>(tail.size()) < page_tokens) continue;
    index->Enter(tail, kv->pages[static_cast<size_t>(chain.pages)], &chain);
    tail.clear();
  }
}

void Sequence::EnterTail(PrefixIndex* index) {
  if (!tail.empty()) index->Enter(tail, kv->pages[static_cast<size_t>(chain.pages)], &chain);
}

void Sequence::Trim(KvPool* pool) {
  const int passed = pool->layout().PagesPassed(position);
  if (passed <= trimmed) return;
  pool->Trim(std::span(kv->pages).first(passed).subspan(trimmed));
  trimmed = passed;
}

absl::Status CheckRequest(const DecodeRequest& request, int32_t vocab) {
  const auto n = static_cast<int32_t>(request.tokens.size());
  if (n <= 0 || request.max_tokens <= 0 || request.max_tokens > INT32_MAX - n ||
      request.n_generated < 0 || request.n_generated >= n)
    return absl::InvalidArgumentError("a decode request without prompt or tokens to make");
  for (const int32_t token : request.tokens)
    if (token < 0 || token >= vocab)
      return absl::InvalidArgumentError(
          absl::StrFormat("token id %d in the prompt, vocabulary of %d", token, vocab));
  return absl::OkStatus();
}

absl::Status CheckKv(const DecodeRequest& request, const HandoffArrived& kv, int32_t vocab,
                     const KvLayout& layout) {
  const CommitRecord& record = kv.record;
  if (kv.ticket_id != request.ticket_id)
    return absl::InvalidArgumentError("KV came under another ticket");
  if (record.n_tokens != static_cast<int32_t>(request.tokens.size()))
    return absl::InvalidArgumentError(absl::StrFormat("KV of %d tokens came for a prompt of %d",
                                                      record.n_tokens, request.tokens.size()));
  if (record.first_token < 0 || record.first_token >= vocab)
    return absl::InvalidArgumentError(
        absl::StrFormat("first token %d, vocabulary of %d", record.first_token, vocab));
  const int needed = layout.PagesFor(record.n_tokens);
  if (static_cast<int>(kv.pages.size()) < needed)
    return absl::InvalidArgumentError(
        absl::StrFormat("%d pages promised, %d needed", kv.pages.size(), needed));
  return absl::OkStatus();
}

}  // namespace baton
