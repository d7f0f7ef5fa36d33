#include "server/config/model_folder.h"

#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "engine/model/model_path.h"

namespace baton {
namespace {

namespace fs = std::filesystem;

bool HasConfig(const fs::path& folder) {
  std::error_code ignored;
  return fs::is_regular_file(folder / "config.json", ignored);
}

// The GGUF files of a folder without config.json; empty: there are none.
std::string GgufHint(const fs::path& folder) {
  std::vector<std::string> found;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (entry.path().extension() == ".gguf") found.push_back(entry.path().string());
  }
  if (found.empty()) return "";
  return absl::StrCat("; it has GGUF files: give one, such as ",
                      *std::min_element(found.begin(), found.end()));
}

std::string Absolute(const fs::path& path) {
  std::error_code error;
  const fs::path absolute = fs::canonical(path, error);
  return (error ? path : absolute).string();
}

// "org/name", "name" or either with "@revision": a branch, a tag or a commit.
struct HubId {
  std::string id, revision = "main";
};

bool IsHubName(std::string_view name) {
  const auto is_plain = [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_' || c == '.';
  };
  return !name.empty() && name[0] != '.' && std::all_of(name.begin(), name.end(), is_plain);
}

// Null where `given` can only be a path. Nothing in it may lead out of the cache.
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

// The command that downloads the model.
std::string DownloadHint(const HubId& hub) {
  return absl::StrCat("run: hf download ", hub.id,
                      hub.revision == "main" ? "" : " --revision " + hub.revision);
}

// The only snapshot there is, or an empty path.
fs::path OnlySnapshot(const fs::path& snapshots) {
  std::vector<fs::path> found;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(snapshots, error)) found.push_back(entry.path());
  return found.size() == 1 ? found[0] : fs::path();
}

// The cache has models--OWNER--NAME/refs/REVISION with the commit, and snapshots/COMMIT
// (huggingface_hub, "Understand caching").
absl::StatusOr<fs::path> HubSnapshot(const fs::path& cache, const HubId& hub) {
  const fs::path repo =
      cache / absl::StrCat("models--", absl::StrReplaceAll(hub.id, {{"/", "--"}}));
  std::error_code error;
  if (!fs::is_directory(repo, error)) {
    return absl::NotFoundError(absl::StrCat(
        "model ", hub.id, ": neither a folder nor in the Hugging Face cache ", cache.string(), "; ",
        DownloadHint(hub), ", give a folder with config.json, or set --model.hf_cache"));
  }
  const fs::path snapshots = repo / "snapshots";
  std::string commit;
  std::ifstream(repo / "refs" / hub.revision) >> commit;
  fs::path snapshot;
  if (IsHubName(commit)) {
    snapshot = snapshots / commit;
  } else if (IsHubName(hub.revision) && fs::is_directory(snapshots / hub.revision, error)) {
    snapshot = snapshots / hub.revision;  // a commit by its own name
  } else if (hub.revision == "main") {
    snapshot = OnlySnapshot(snapshots);  // downloaded by commit: no name points to it
  }
  if (snapshot.empty()) {
    return absl::NotFoundError(absl::StrCat("model ", hub.id, ": ", repo.string(),
                                            " has no revision ", hub.revision, "; ",
                                            DownloadHint(hub)));
  }
  if (HasConfig(snapshot)) return snapshot;
  return absl::NotFoundError(absl::StrCat("model ", hub.id, ": ", snapshot.string(),
                                          " has no config.json, so the download is not complete; ",
                                          DownloadHint(hub), GgufHint(snapshot)));
}

}  // namespace

std::string HomeFolder() {
  const passwd* entry = getpwuid(getuid());
  return entry == nullptr || entry->pw_dir == nullptr ? "" : entry->pw_dir;
}

absl::StatusOr<std::string> DemoFolder() {
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  const fs::path installed = program.parent_path().parent_path() / "share/baton/models/demo";
  for (const fs::path& folder : {installed, fs::path(BATON_SOURCE_DIR) / "models/demo"}) {
    if (HasConfig(folder)) return Absolute(folder);
  }
  return absl::NotFoundError(absl::StrCat("the demo model is neither in ", installed.string(),
                                          " nor in ", BATON_SOURCE_DIR,
                                          "/models/demo; give a model folder instead of --demo"));
}

absl::Status ResolveModel(ModelConfig* model) {
  const std::string given = model->path;
  if (given.empty()) {
    return absl::InvalidArgumentError(
        "no model; give a folder, a .gguf file, a hub id or random:<config.json>, or use --demo");
  }
  const ModelPath parsed = ParseModelPath(given);
  if (parsed.form == ModelForm::kRandom) {
    const fs::path file(parsed.path);
    std::error_code error;
    if (!fs::is_regular_file(file, error)) {
      return absl::NotFoundError(
          absl::StrCat("model ", given, ": no such file; write random:<path of a config.json>"));
    }
    if (model->name.empty()) model->name = file.stem().string();
    model->path = RandomModelName(Absolute(file));
    return absl::OkStatus();
  }
  std::error_code error;
  if (fs::is_directory(given, error)) {
    if (!HasConfig(given)) {
      return absl::NotFoundError(absl::StrCat("model ", given,
                                              ": the folder has no config.json; give a folder in "
                                              "Hugging Face layout",
                                              GgufHint(given)));
    }
    model->path = Absolute(given);
    if (model->name.empty()) model->name = fs::path(model->path).filename().string();
    return absl::OkStatus();
  }
  if (parsed.form == ModelForm::kGgufFile) {  // what is none is refused when it is opened
    model->path = Absolute(given);
    if (model->name.empty()) model->name = fs::path(given).stem().string();
    return absl::OkStatus();
  }
  const std::optional<HubId> hub = ParseHubId(given);
  if (!hub) {
    return absl::NotFoundError(absl::StrCat(
        "model ", given,
        ": no such folder or file; give a folder with config.json, a .gguf file or a hub id "
        "org/name"));
  }
  const fs::path cache = model->hf_cache.empty() ? fs::path(HomeFolder()) / ".cache/huggingface/hub"
                                                 : fs::path(model->hf_cache);
  ASSIGN_OR_RETURN(const fs::path snapshot, HubSnapshot(cache, *hub));
  model->path = Absolute(snapshot);
  if (model->name.empty()) model->name = hub->id;
  return absl::OkStatus();
}

}  // namespace baton
