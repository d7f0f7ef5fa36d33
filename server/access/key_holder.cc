#include "server/access/key_holder.h"

#include <algorithm>

namespace baton {
namespace {

// Requests of one second may come at once, and one always.
double RequestCapacity(const KeyEntry& entry) { return std::max(1.0, entry.requests_per_second); }
double TokenCapacity(const KeyEntry& entry) { return static_cast<double>(entry.tokens_per_minute); }
double TokensPerSecond(const KeyEntry& entry) { return TokenCapacity(entry) / 60; }

}  // namespace

KeyAccount::KeyAccount(const KeyEntry& entry)
    : requests(entry.requests_per_second, RequestCapacity(entry)),
      tokens(TokensPerSecond(entry), TokenCapacity(entry)) {}

void KeyAccount::SetLimits(const KeyEntry& entry, absl::Time now) {
  requests.SetLimit(entry.requests_per_second, RequestCapacity(entry), now);
  tokens.SetLimit(TokensPerSecond(entry), TokenCapacity(entry), now);
}

absl::Duration KeyHolder::TakeRequest(absl::Time now) const {
  const absl::Duration wait = account->requests.WaitFor(1, now);
  if (wait == absl::ZeroDuration()) account->requests.Take(1, now);
  return wait;
}

absl::Duration KeyHolder::WaitForTokens(int64_t n, absl::Time now) const {
  return account->tokens.WaitFor(static_cast<double>(n), now);
}

void KeyHolder::TakeTokens(int64_t n, absl::Time now) const {
  account->tokens.Take(static_cast<double>(n), now);
}

}  // namespace baton
