// The key of a request, known by name, as long as the request lives. Front thread.
#pragma once

#include <memory>
#include <string>

#include "absl/time/time.h"
#include "server/access/key_file.h"
#include "server/access/token_bucket.h"

namespace baton {

// The limits of a key and what is left of them. It outlives the line of its key in the file, so
// that a reload gives nobody a full bucket.
struct KeyAccount {
  explicit KeyAccount(const KeyEntry& entry);
  void SetLimits(const KeyEntry& entry, absl::Time now);

  TokenBucket requests, tokens;
};

struct KeyHolder {
  std::string name, tenant;
  ScopeSet scopes = 0;
  std::shared_ptr<KeyAccount> account;

  // Zero: the request may go on, and is counted. Else the time after which it may.
  absl::Duration TakeRequest(absl::Time now) const;
  // Zero: a prompt of so many tokens may be computed; they are not yet taken.
  absl::Duration WaitForTokens(int64_t n, absl::Time now) const;
  void TakeTokens(int64_t n, absl::Time now) const;
};

}  // namespace baton
