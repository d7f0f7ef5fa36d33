// The keys that are valid now. An edge gives it what a client sent and the scope that is wanted,
// and learns who it is, or why not; it knows nothing of HTTP or gRPC. Front thread.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/time/time.h"
#include "server/access/access_refusal.h"
#include "server/access/key_file.h"
#include "server/access/key_holder.h"

namespace baton {

// The values of a client's headers (or metadata); empty: not there.
struct Credentials {
  std::string_view authorization{};  // "Bearer K"
  std::string_view api_key{};        // x-api-key, which counts where there is no bearer
};

struct KeyCheck {
  std::shared_ptr<const KeyHolder> holder;       // null: refused
  AccessRefusal refusal = AccessRefusal::kNone;  // or kNoKey, kUnknownKey, kWrongScope
};

class ApiKeys {
 public:
  explicit ApiKeys(const std::vector<KeyEntry>& entries);

  // Makes these the valid keys. A name that stays keeps what it has used; requests that run go on.
  void Replace(const std::vector<KeyEntry>& entries, absl::Time now);
  // wanted: the route's, never kOpen; nothing: any key will do. Takes as long for a right key as
  // for a wrong one.
  KeyCheck Check(const Credentials& credentials, std::optional<Scope> wanted) const;
  size_t size() const { return keys_.size(); }

 private:
  struct Key {
    KeyDigest digest;
    std::shared_ptr<const KeyHolder> holder;
  };
  std::vector<Key> keys_;
};

}  // namespace baton
