// Names of models on a hub, and where the hub's cache keeps them. Pure functions, any thread.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace baton {

// "org/name", "name" or either with "@revision": a branch, a tag or a commit.
struct HubId {
  std::string id, revision = "main";
  std::string Text() const;  // as given: org/name, or org/name@revision
};

// Whether a text is one name of letters, digits, - _ and ., so that no path of it leads elsewhere.
bool IsHubName(std::string_view name);
// Null where `given` can only be a path. Nothing in it may lead out of the cache.
std::optional<HubId> ParseHubId(const std::string& given);

// The cache's folder of a model: CACHE/models--ORG--NAME.
std::filesystem::path HubRepoFolder(const std::filesystem::path& cache, const std::string& id);

}  // namespace baton
