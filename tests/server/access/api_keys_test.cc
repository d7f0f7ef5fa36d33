// The check of keys: who it is, or why not.
#include "server/access/api_keys.h"

#include <catch2/catch.hpp>

#include "absl/strings/str_cat.h"

namespace baton {
namespace {

using enum AccessRefusal;

KeyEntry Entry(const std::string& name, ScopeSet scopes, double rate = 0) {
  return {.name = name,
          .digest = KeyDigest::Of("key-of-" + name),
          .tenant = "t-" + name,
          .scopes = scopes,
          .requests_per_second = rate};
}

const ApiKeys& Keys() {
  static const ApiKeys keys({Entry("app", SetOf(Scope::kInference)),
                             Entry("prom", SetOf(Scope::kMetrics)),
                             Entry("boss", SetOf(Scope::kInference) | SetOf(Scope::kAdmin))});
  return keys;
}

std::string Who(const Credentials& credentials, std::optional<Scope> wanted = Scope::kInference) {
  const KeyCheck check = Keys().Check(credentials, wanted);
  if (check.holder != nullptr) {
    CHECK(check.refusal == kNone);
    return check.holder->name;
  }
  return std::string(kAccessRefusalNames[static_cast<size_t>(check.refusal)]);
}

TEST_CASE("a key comes as a bearer or as x-api-key") {
  CHECK(Who({.authorization = "Bearer key-of-app"}) == "app");
  CHECK(Who({.authorization = "bearer key-of-app"}) == "app");
  CHECK(Who({.authorization = "BEARER   key-of-app  "}) == "app");
  CHECK(Who({.api_key = "key-of-app"}) == "app");
  // Other schemes are no key, of a proxy perhaps; the other header counts.
  CHECK(Who({.authorization = "Basic key-of-app"}) == "no_key");
  CHECK(Who({.authorization = "Basic dXNlcg==", .api_key = "key-of-app"}) == "app");
  // A bearer counts alone.
  CHECK(Who({.authorization = "Bearer wrong", .api_key = "key-of-app"}) == "unknown_key");
  CHECK(Who({.authorization = "Bearer key-of-app", .api_key = "wrong"}) == "app");
}

TEST_CASE("no key, and wrong ones") {
  CHECK(Who({}) == "no_key");
  CHECK(Who({.authorization = "Bearer"}) == "no_key");
  CHECK(Who({.authorization = "Bearer "}) == "no_key");
  CHECK(Who({.authorization = "key-of-app"}) == "no_key");
  for (const char* key : {"key-of-ap", "key-of-appp", "Key-of-app", "key-of-nobody", "none"})
    CHECK(Who({.api_key = key}) == "unknown_key");
  // The digest that stands in the file is no key.
  const std::string digest = KeyDigest::Of("key-of-app").Hex();
  CHECK(Who({.api_key = digest}) == "unknown_key");
}

TEST_CASE("no scope stands for another, and any will do where none is wanted") {
  CHECK(Who({.api_key = "key-of-app"}, Scope::kMetrics) == "wrong_scope");
  CHECK(Who({.api_key = "key-of-app"}, Scope::kAdmin) == "wrong_scope");
  CHECK(Who({.api_key = "key-of-prom"}, Scope::kInference) == "wrong_scope");
  CHECK(Who({.api_key = "key-of-prom"}, Scope::kMetrics) == "prom");
  CHECK(Who({.api_key = "key-of-boss"}, Scope::kMetrics) == "wrong_scope");
  CHECK(Who({.api_key = "key-of-boss"}, Scope::kAdmin) == "boss");
  CHECK(Who({.api_key = "key-of-boss"}, Scope::kInference) == "boss");
  for (const char* name : {"app", "prom", "boss"})
    CHECK(Who({.api_key = absl::StrCat("key-of-", name)}, std::nullopt) == name);
  CHECK(Who({.api_key = "wrong"}, std::nullopt) == "unknown_key");
}

TEST_CASE("replaced keys: the removed one is refused, its requests keep what they have") {
  const absl::Time now = absl::UnixEpoch() + absl::Hours(1);
  ApiKeys keys({Entry("a", SetOf(Scope::kInference), 1), Entry("b", SetOf(Scope::kInference))});
  const auto ask = [&](const char* key) { return keys.Check({.api_key = key}, Scope::kInference); };
  const auto running = ask("key-of-b").holder;
  CHECK(ask("key-of-a").holder->TakeRequest(now) == absl::ZeroDuration());
  CHECK(ask("key-of-a").holder->TakeRequest(now) == absl::Seconds(1));
  KeyEntry changed = Entry("a", SetOf(Scope::kInference), 2);
  changed.digest = KeyDigest::Of("new");
  keys.Replace({changed}, now);
  CHECK(keys.size() == 1);
  CHECK(ask("key-of-b").refusal == kUnknownKey);
  CHECK(ask("key-of-a").refusal == kUnknownKey);
  CHECK(running->tenant == "t-b");
  running->TakeTokens(100, now);  // lives on
  // The name is the same: a new key is no new allowance. One of two was used.
  CHECK(ask("new").holder->TakeRequest(now) == absl::ZeroDuration());
  CHECK(ask("new").holder->TakeRequest(now) == absl::Milliseconds(500));
}

}  // namespace
}  // namespace baton
