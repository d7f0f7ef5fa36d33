#include "server/config/model_folder.h"

#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/model/model_path.h"
#include "server/pull/hub_id.h"

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

// The command that downloads the model.
std::string DownloadHint(const HubId& hub) { return absl::StrCat("run: baton pull ", hub.Text()); }

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
  const fs::path repo = HubRepoFolder(cache, hub.id);
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

std::string HubCacheFolder(const ModelConfig& model) {
  return model.hf_cache.empty() ? absl::StrCat(HomeFolder(), "/.cache/huggingface/hub")
                                : model.hf_cache;
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
  ASSIGN_OR_RETURN(const fs::path snapshot, HubSnapshot(HubCacheFolder(*model), *hub));
  model->path = Absolute(snapshot);
  if (model->name.empty()) model->name = hub->id;
  return absl::OkStatus();
}

}  // namespace baton
