#include "server/access/key_file.h"

#include <algorithm>
#include <cmath>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/secret_file.h"

namespace baton {
namespace {

constexpr size_t kMaxName = 64;
constexpr size_t kMaxFile = 1 << 20;  // bytes
constexpr double kMaxRequestsPerSecond = 1e6;
constexpr const char* kForm =
    "a line is: name sha256 tenant inference|metrics|admin [requests/s [tokens/min]]; baton key "
    "NAME makes one";

absl::string_view View(std::string_view text) { return {text.data(), text.size()}; }

// One line of the file. The errors are reasons, without file and line.
class KeyLineReader {
 public:
  explicit KeyLineReader(std::string_view line)
      : columns_(absl::StrSplit(View(line), absl::ByAnyChar(" \t\r"), absl::SkipEmpty())) {}

  bool empty() const { return columns_.empty(); }

  absl::Status Read(KeyEntry* entry) const {
    if (columns_.size() < 4) return Error("too few columns: ", kForm);
    if (columns_.size() > 6) return Error("a seventh column, which nobody knows: ", kForm);
    entry->name = columns_[0];
    entry->tenant = columns_[2];
    if (!IsKeyName(entry->name)) return Error("the name", kNameForm);
    const auto digest = KeyDigest::FromHex(columns_[1]);
    if (!digest) {
      return Error("sha256 must be 64 hex digits, and has ", columns_[1].size(),
                   " characters: the SHA-256 of the key, not the key; baton key NAME makes both");
    }
    entry->digest = *digest;
    if (!IsKeyName(entry->tenant)) return Error("the tenant", kNameForm);
    entry->scopes = ScopesOf(columns_[3]);
    if (entry->scopes == 0) {
      return Error("unknown scope in column 4: write inference, metrics or admin, several with a ",
                   "comma and no blank between them");
    }
    return ReadLimits(entry);
  }

 private:
  static constexpr const char* kNameForm =
      " must be 1 to 64 letters, digits, dots, underscores or hyphens";

  template <typename... Parts>
  static absl::Status Error(const Parts&... parts) {
    return absl::InvalidArgumentError(absl::StrCat(parts...));
  }

  absl::Status ReadLimits(KeyEntry* entry) const {
    const auto given = [&](size_t n) { return columns_.size() > n && columns_[n] != "-"; };
    double& rate = entry->requests_per_second;
    if (given(4) && (!absl::SimpleAtod(columns_[4], &rate) || !std::isfinite(rate) || rate <= 0 ||
                     rate > kMaxRequestsPerSecond)) {
      return Error(
          "requests/s in column 5 must be a number above 0, at most 1000000, such as 0.5, ",
          "or - for no limit");
    }
    int64_t& tokens = entry->tokens_per_minute;
    if (given(5) && (!absl::SimpleAtoi(columns_[5], &tokens) || tokens <= 0)) {
      return Error("tokens/min in column 6 must be a whole number above 0, or - for no limit");
    }
    return absl::OkStatus();
  }

  const std::vector<std::string> columns_;
};

}  // namespace

bool IsKeyName(std::string_view name) {
  return !name.empty() && name.size() <= kMaxName && name != "-" &&
         std::all_of(name.begin(), name.end(), [](unsigned char c) {
           return absl::ascii_isalnum(c) || c == '.' || c == '_' || c == '-';
         });
}

ScopeSet ScopesOf(std::string_view list) {
  ScopeSet scopes = 0;
  for (const absl::string_view word : absl::StrSplit(View(list), ',')) {
    const auto* const found =
        std::find_if(kKeyScopes.begin(), kKeyScopes.end(),
                     [&](const NamedScope& known) { return View(known.name) == word; });
    if (found == kKeyScopes.end()) return 0;
    scopes |= SetOf(found->scope);
  }
  return scopes;
}

absl::StatusOr<std::vector<KeyEntry>> ParseKeyFile(std::string_view text, const std::string& path) {
  std::vector<KeyEntry> entries;
  absl::flat_hash_map<std::string, size_t> names, digests;  // of the entries, and their lines
  size_t n_line = 0;
  for (const absl::string_view line : absl::StrSplit(View(text), '\n')) {
    ++n_line;
    const KeyLineReader reader(
        std::string_view(line.data(), std::min(line.size(), line.find('#'))));
    if (reader.empty()) continue;
    const auto error = [&](const absl::Status& why) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ":", n_line, ": ", std::string(why.message())));
    };
    KeyEntry entry;
    if (const absl::Status status = reader.Read(&entry); !status.ok()) return error(status);
    if (const auto [twin, is_new] = names.emplace(entry.name, n_line); !is_new) {
      return error(absl::InvalidArgumentError(
          absl::StrCat("the name of line ", twin->second, " again; give each key its own")));
    }
    if (const auto [twin, is_new] = digests.emplace(entry.digest.Hex(), n_line); !is_new) {
      return error(absl::InvalidArgumentError(
          absl::StrCat("the key of line ", twin->second, " again; remove one of the two")));
    }
    if (entries.size() == kMaxKeys) {
      return error(
          absl::InvalidArgumentError(absl::StrCat("more than ", kMaxKeys, " keys; remove some")));
    }
    entries.push_back(std::move(entry));
  }
  if (entries.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": no key in it, so nobody could be served; ", kForm));
  }
  return entries;
}

absl::StatusOr<std::vector<KeyEntry>> ReadKeyFile(const std::string& path) {
  const absl::StatusOr<std::string> text = ReadSecretFile(path, kMaxFile);
  if (text.ok()) return ParseKeyFile(*text, path);
  return absl::Status(text.status().code(),
                      absl::StrCat(text.status().message(), " (--api-key-file)"));
}

std::string KeyLine(const KeyEntry& entry) {
  std::string scopes;
  for (const NamedScope& known : kKeyScopes) {
    if ((entry.scopes & SetOf(known.scope)) == 0) continue;
    absl::StrAppend(&scopes, scopes.empty() ? "" : ",", View(known.name));
  }
  std::string line =
      absl::StrCat(entry.name, " ", entry.digest.Hex(), " ", entry.tenant, " ", scopes);
  const bool has_rate = entry.requests_per_second > 0, has_tokens = entry.tokens_per_minute > 0;
  if (has_rate || has_tokens)
    absl::StrAppend(&line, " ", has_rate ? absl::StrCat(entry.requests_per_second) : "-");
  if (has_tokens) absl::StrAppend(&line, " ", entry.tokens_per_minute);
  return line;
}

}  // namespace baton
