#include "bench/load/session_run.h"

#include <algorithm>
#include <map>
#include <thread>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "bench/load/run_progress.h"

namespace baton {
namespace {

struct Clock {
  absl::Time start, deadline;
};

// A turn that was due and waited for the answer before until the end.
Outcome NeverBegun(const Conversation& conversation, size_t turn, const Clock& clock) {
  Outcome out;
  out.cut = true;
  out.n_prompt = PromptTokens(conversation, turn);
  out.sent = out.ended = clock.deadline;
  const absl::Time due = clock.start + absl::Seconds(conversation.turns[turn].due_s);
  out.lag_ms = absl::ToDoubleMilliseconds(clock.deadline - due);
  return out;
}

// Waits until the turn should begin; returns that time.
absl::Time AwaitTurn(const ConversationTurn& turn, const Clock& clock) {
  const absl::Time due = turn.due_s >= 0 ? clock.start + absl::Seconds(turn.due_s)
                                         : absl::Now() + absl::Seconds(turn.think_s);
  absl::SleepFor(std::min(due, clock.deadline) - absl::Now());
  return due;
}

SessionOutcome Talk(const HttpUrl& url, const Conversation& conversation, const Clock& clock,
                    const SessionRunOptions& options) {
  SessionOutcome session;
  ConversationText text(conversation, options.vocab, options.seed);
  for (size_t turn = 0; !text.done(); ++turn) {
    const absl::Time due = AwaitTurn(text.next_turn(), clock);
    if (absl::Now() >= clock.deadline) {
      for (; turn < conversation.turns.size() && text.next_turn().due_s >= 0; ++turn)
        session.turns.push_back(NeverBegun(conversation, turn, clock));
      return session;
    }
    const LoadRequest request = text.NextRequest();
    const double lag_ms = absl::ToDoubleMilliseconds(absl::Now() - due);
    Outcome& out = session.turns.emplace_back(RunLoadRequestUntil(url, request, clock.deadline));
    out.lag_ms = lag_ms;
    if (!out.ok && !out.cut) return session;
    if (out.ok && static_cast<int>(out.tokens.size()) != request.max_tokens) {
      out.ok = false;
      out.error = absl::StrFormat("%d token_ids of %d tokens: the server lacks return_token_ids",
                                  out.tokens.size(), request.max_tokens);
      return session;
    }
    text.TakeAnswer(out.tokens);
  }
  session.is_whole = !session.turns.back().cut;
  return session;
}

}  // namespace

std::vector<SessionOutcome> RunConversations(const HttpUrl& url,
                                             const std::vector<Conversation>& conversations,
                                             const SessionRunOptions& options) {
  std::vector<SessionOutcome> outcomes(conversations.size());
  Clock clock{absl::Now(), absl::InfiniteFuture()};
  if (options.seconds > 0) clock.deadline = clock.start + absl::Seconds(options.seconds);
  std::map<int, std::vector<size_t>> of_user;
  for (size_t i = 0; i < conversations.size(); ++i) of_user[conversations[i].user].push_back(i);
  RunProgress progress(conversations.size(), options.seconds);
  std::vector<std::thread> users;
  for (const auto& [user, own] : of_user) {
    users.emplace_back([&, own = &own] {
      for (const size_t i : *own) {
        outcomes[i] = Talk(url, conversations[i], clock, options);
        progress.OneEnded();
      }
    });
  }
  progress.Await(conversations.size(), absl::InfiniteFuture());
  for (std::thread& user : users) user.join();
  return outcomes;
}

}  // namespace baton
