// Scopes: the uses that a key allows. Plain data, any thread.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace baton {

// A route has one scope, a key any number of them; none stands for another. kOpen: of a route that
// goes without a key.
enum class Scope : uint8_t { kOpen, kInference, kMetrics, kAdmin };

struct NamedScope {
  Scope scope;
  std::string_view name;  // in the file of keys
};
inline constexpr std::array<NamedScope, 3> kKeyScopes = {
    {{Scope::kInference, "inference"}, {Scope::kMetrics, "metrics"}, {Scope::kAdmin, "admin"}}};

constexpr std::string_view NameOf(Scope scope) {  // empty: kOpen
  for (const NamedScope& known : kKeyScopes)
    if (known.scope == scope) return known.name;
  return "";
}

using ScopeSet = uint32_t;  // scopes as bits
constexpr ScopeSet SetOf(Scope scope) { return 1u << static_cast<unsigned>(scope); }

}  // namespace baton
