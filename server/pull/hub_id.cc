#include "server/pull/hub_id.h"

#include <algorithm>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"

namespace baton {

std::string HubId::Text() const {
  return revision == "main" ? id : absl::StrCat(id, "@", revision);
}

bool IsHubName(std::string_view name) {
  const auto is_plain = [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_' || c == '.';
  };
  return !name.empty() && name[0] != '.' && std::all_of(name.begin(), name.end(), is_plain);
}

std::optional<HubId> ParseHubId(const std::string& given) {
  HubId hub;
  const size_t at = given.find('@');
  hub.id = given.substr(0, at);
  if (at != std::string::npos) hub.revision = given.substr(at + 1);
  const size_t slash = hub.id.find('/');
  const std::string owner = slash == std::string::npos ? "" : hub.id.substr(0, slash);
  const std::string name = hub.id.substr(slash == std::string::npos ? 0 : slash + 1);
  if ((slash != std::string::npos && !IsHubName(owner)) || !IsHubName(name)) return std::nullopt;
  const std::vector<std::string> parts = absl::StrSplit(hub.revision, '/');
  if (!std::all_of(parts.begin(), parts.end(), IsHubName)) return std::nullopt;
  return hub;
}

std::filesystem::path HubRepoFolder(const std::filesystem::path& cache, const std::string& id) {
  return cache / absl::StrCat("models--", absl::StrReplaceAll(id, {{"/", "--"}}));
}

}  // namespace baton
