#include "server/access/api_keys.h"

#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"

namespace baton {
namespace {

// The key that was sent; empty: none.
std::string_view SentKey(const Credentials& credentials) {
  constexpr std::string_view kScheme = "bearer ";
  const std::string_view text = credentials.authorization;
  const absl::string_view head(text.data(), std::min(text.size(), kScheme.size()));
  if (!absl::EqualsIgnoreCase(head, absl::string_view(kScheme.data(), kScheme.size())))
    return credentials.api_key;
  const absl::string_view key = absl::StripAsciiWhitespace(
      absl::string_view(text.data() + kScheme.size(), text.size() - kScheme.size()));
  return {key.data(), key.size()};
}

}  // namespace

ApiKeys::ApiKeys(const std::vector<KeyEntry>& entries) { Replace(entries, absl::InfinitePast()); }

void ApiKeys::Replace(const std::vector<KeyEntry>& entries, absl::Time now) {
  absl::flat_hash_map<std::string, std::shared_ptr<KeyAccount>> accounts;
  for (const Key& key : keys_) accounts.emplace(key.holder->name, key.holder->account);
  keys_.clear();
  for (const KeyEntry& entry : entries) {
    std::shared_ptr<KeyAccount>& account = accounts[entry.name];
    if (account == nullptr) {
      account = std::make_shared<KeyAccount>(entry);
    } else {
      account->SetLimits(entry, now);
    }
    keys_.push_back({entry.digest, std::make_shared<KeyHolder>(KeyHolder{entry.name, entry.tenant,
                                                                         entry.scopes, account})});
  }
}

KeyCheck ApiKeys::Check(const Credentials& credentials, std::optional<Scope> wanted) const {
  const std::string_view sent = SentKey(credentials);
  if (sent.empty()) return {nullptr, AccessRefusal::kNoKey};
  const KeyDigest digest = KeyDigest::Of(sent);
  const Key* found = nullptr;
  for (const Key& key : keys_)  // to the end, wherever it is
    if (key.digest.Equals(digest)) found = &key;
  if (found == nullptr) return {nullptr, AccessRefusal::kUnknownKey};
  if (wanted && (found->holder->scopes & SetOf(*wanted)) == 0)
    return {nullptr, AccessRefusal::kWrongScope};
  return {found->holder, AccessRefusal::kNone};
}

}  // namespace baton
