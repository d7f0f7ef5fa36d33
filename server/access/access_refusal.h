// Why a request is refused before anybody looks at what it asks for. Plain data, any thread.
#pragma once

#include <array>
#include <string_view>

namespace baton {

enum class AccessRefusal {
  kNone,
  kHost,        // a name that the server does not have
  kNoKey,       // and one is needed
  kUnknownKey,  // or one that was removed
  kWrongScope,
  kRequestRate,  // the key's requests per second
  kTokenRate     // the key's tokens per minute
};

// Labels in metrics, by AccessRefusal.
inline constexpr std::array<std::string_view, 7> kAccessRefusalNames = {
    "none", "host", "no_key", "unknown_key", "wrong_scope", "request_rate", "token_rate"};

}  // namespace baton
