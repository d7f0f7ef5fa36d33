// The file of API keys: what is read, and every way in which a line or the file may be wrong.
#include "server/access/key_file.h"

#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <concepts>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "tests/support/temp_folder.h"

namespace baton {
namespace {

// Equals is the only comparison of digests, so that no other one can creep in.
static_assert(!std::equality_comparable<KeyDigest>);

const std::string kHash = KeyDigest::Of("secret").Hex();

std::string Error(const std::string& text) {
  const auto entries = ParseKeyFile(text, "keys");
  REQUIRE_FALSE(entries.ok());
  return std::string(entries.status().message());
}

TEST_CASE("a digest is SHA-256, and is read from hex of either case") {
  // FIPS 180-2, appendix B.1.
  const std::string abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
  CHECK(KeyDigest::Of("abc").Hex() == abc);
  std::string upper = abc;
  for (char& c : upper) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  REQUIRE(KeyDigest::FromHex(upper).has_value());
  CHECK(KeyDigest::FromHex(upper)->Equals(KeyDigest::Of("abc")));
  CHECK_FALSE(KeyDigest::FromHex(abc)->Equals(KeyDigest::Of("abd")));
  CHECK_FALSE(KeyDigest::FromHex(abc.substr(1)).has_value());
  CHECK_FALSE(KeyDigest::FromHex(abc + "0").has_value());
  CHECK_FALSE(KeyDigest::FromHex("g" + abc.substr(1)).has_value());
}

TEST_CASE("lines of keys are read, with comments, blank lines, tabs and limits") {
  const auto entries = ParseKeyFile(
      absl::StrCat("# keys of the team\n\n", "app ", kHash, " team inference\n", "prom\t",
                   KeyDigest::Of("b").Hex(), "  ops  metrics,admin  # why\r\n", "slow ",
                   KeyDigest::Of("c").Hex(), " team inference 0.5 6000\n", "wordy ",
                   KeyDigest::Of("d").Hex(), " other inference - 100"),
      "keys");
  INFO(entries.status().ToString());
  REQUIRE(entries.ok());
  REQUIRE(entries->size() == 4);
  const KeyEntry& app = (*entries)[0];
  CHECK(app.name == "app");
  CHECK(app.tenant == "team");
  CHECK(app.digest.Equals(KeyDigest::Of("secret")));
  CHECK(app.scopes == SetOf(Scope::kInference));
  CHECK(app.requests_per_second == 0);
  CHECK(app.tokens_per_minute == 0);
  CHECK((*entries)[1].scopes == (SetOf(Scope::kMetrics) | SetOf(Scope::kAdmin)));
  CHECK((*entries)[2].requests_per_second == 0.5);
  CHECK((*entries)[2].tokens_per_minute == 6000);
  CHECK((*entries)[3].requests_per_second == 0);
  CHECK((*entries)[3].tokens_per_minute == 100);
}

TEST_CASE("a line that is written is read again as the same") {
  for (const KeyEntry& entry :
       {KeyEntry{.name = "a", .tenant = "t", .scopes = SetOf(Scope::kInference)},
        KeyEntry{.name = "b",
        .digest = KeyDigest::Of("x"),
        .tenant = "t",
        .scopes = SetOf(Scope::kInference) | SetOf(Scope::kAdmin),
        .requests_per_second = 2.5},
        KeyEntry{.name = "c",
        .tenant = "t",
        .scopes = SetOf(Scope::kMetrics),
        .tokens_per_minute = 123456789}}) {
    const auto again = ParseKeyFile(KeyLine(entry), "keys");
    INFO(KeyLine(entry));
    REQUIRE(again.ok());
    const KeyEntry& read = again->front();
    CHECK(read.name == entry.name);
    CHECK(read.tenant == entry.tenant);
    CHECK(read.digest.Equals(entry.digest));
    CHECK(read.scopes == entry.scopes);
    CHECK(read.requests_per_second == entry.requests_per_second);
    CHECK(read.tokens_per_minute == entry.tokens_per_minute);
  }
}

TEST_CASE("a wrong line is refused by its number, with what to change, and is not repeated") {
  struct Case {
    std::string line, says;
  };
  const std::string hash = KeyDigest::Of("other").Hex();
  const std::vector<Case> kCases = {
      {"sk-secret", "too few columns"},
      {"sk-secret " + hash, "too few columns"},
      {"sk-secret " + hash + " t", "too few columns"},
      {"app " + hash + " t inference 1 1 sk-secret", "a seventh column"},
      {"app sk-secret t inference", "sha256 must be 64 hex digits, and has 9 characters"},
      {"app " + hash.substr(1) + " t inference", "has 63 characters"},
      {"app " + hash + "0 t inference", "has 65 characters"},
      {"app sk-secret" + hash.substr(9) + " t inference", "64 hex digits"},
      {"sk/secret " + hash + " t inference", "the name must be"},
      {std::string(65, 'n') + " " + hash + " t inference", "the name must be"},
      {"- " + hash + " t inference", "the name must be"},
      {"app " + hash + " sk/secret inference", "the tenant must be"},
      {"app " + hash + " t sk-secret", "unknown scope in column 4"},
      {"app " + hash + " t inference,", "unknown scope in column 4"},
      {"app " + hash + " t inference,sk-secret", "unknown scope in column 4"},
      {"app " + hash + " t Inference", "unknown scope in column 4"},
      {"app " + hash + " t inference sk-secret", "requests/s in column 5"},
      {"app " + hash + " t inference 0", "requests/s in column 5"},
      {"app " + hash + " t inference -1", "requests/s in column 5"},
      {"app " + hash + " t inference nan", "requests/s in column 5"},
      {"app " + hash + " t inference inf", "requests/s in column 5"},
      {"app " + hash + " t inference 1e7", "requests/s in column 5"},
      {"app " + hash + " t inference 1 1.5", "tokens/min in column 6"},
      {"app " + hash + " t inference 1 0", "tokens/min in column 6"},
      {"app " + hash + " t inference - sk-secret", "tokens/min in column 6"},
      {"good " + hash + " t inference", "the name of line 2 again"},
      {"twin " + kHash + " t inference", "the key of line 2 again"},
  };
  for (const Case& each : kCases) {
    const std::string error =
        Error(absl::StrCat("# first\ngood ", kHash, " t inference\n\n", each.line, "\n"));
    INFO(each.line);
    INFO(error);
    CHECK(error.starts_with("keys:4: "));
    CHECK(error.find(each.says) != std::string::npos);
    CHECK(error.find("secret") == std::string::npos);
    CHECK(error.find(hash) == std::string::npos);
  }
}

TEST_CASE("a file without a key is refused, and one with too many") {
  for (const char* text : {"", "\n", "# nothing\n \n"}) {
    CHECK(Error(text).starts_with("keys: no key in it"));
    CHECK(Error(text).find("baton key NAME") != std::string::npos);
  }
  std::string many;
  for (size_t i = 0; i < kMaxKeys; ++i)
    absl::StrAppend(&many, "k", i, " ", KeyDigest::Of(absl::StrCat(i)).Hex(), " t inference\n");
  CHECK(ParseKeyFile(many, "keys").ok());
  absl::StrAppend(&many, "more ", KeyDigest::Of("more").Hex(), " t inference\n");
  CHECK(Error(many) == "keys:4097: more than 4096 keys; remove some");
}

TEST_CASE("the file is read with its mode, and what is none is refused") {
  const TempFolder folder;
  const std::string path = folder.file("keys");
  std::ofstream(path) << "app " << kHash << " t inference\n";
  REQUIRE(::chmod(path.c_str(), 0600) == 0);
  CHECK(ReadKeyFile(path).ok());
  REQUIRE(::chmod(path.c_str(), 0644) == 0);
  CHECK(absl::IsPermissionDenied(ReadKeyFile(path).status()));
  REQUIRE(::chmod(path.c_str(), 0600) == 0);
  std::ofstream(path) << "app\n";
  CHECK(ReadKeyFile(path).status().message().find(path + ":1: too few columns") == 0);
  std::ofstream(path) << std::string((1 << 20) + 1, '#');
  CHECK(ReadKeyFile(path).status().message().find("is longer than the 1048576 bytes") !=
        std::string::npos);
  CHECK(ReadKeyFile(folder.path()).status().message().find("is no file") != std::string::npos);
  CHECK(absl::IsNotFound(ReadKeyFile(path + "x").status()));
}

}  // namespace
}  // namespace baton
