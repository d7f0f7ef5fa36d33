#include "server/model_folder.h"

#include <pwd.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"

namespace baton {
namespace {

namespace fs = std::filesystem;
constexpr char kRandom[] = "random:";

bool HasConfig(const fs::path& folder) {
  std::error_code ignored;
  return fs::is_regular_file(folder / "config.json", ignored);
}

std::string Absolute(const fs::path& path) {
  std::error_code error;
  const fs::path absolute = fs::canonical(path, error);
  return (error ? path : absolute).string();
}

// The snapshot folder of hub id `owner/name`: refs/main names it, else the only snapshot.
absl::StatusOr<fs::path> HubSnapshot(const fs::path& cache, const std::string& id) {
  const fs::path repo = cache / absl::StrCat("models--", absl::StrReplaceAll(id, {{"/", "--"}}));
  std::error_code error;
  if (!fs::is_directory(repo, error)) {
    return absl::NotFoundError(absl::StrCat(
        "model ", id, ": neither a folder nor in the Hugging Face cache ", cache.string(),
        "; give a folder with config.json, download the model, or set --model.hf_cache"));
  }
  std::string revision;
  std::ifstream(repo / "refs" / "main") >> revision;
  if (!revision.empty() && revision.find('/') == std::string::npos &&
      HasConfig(repo / "snapshots" / revision)) {
    return repo / "snapshots" / revision;
  }
  for (const auto& entry : fs::directory_iterator(repo / "snapshots", error)) {
    if (HasConfig(entry.path())) return entry.path();
  }
  return absl::NotFoundError(absl::StrCat("model ", id, ": ", repo.string(),
                                          " has no snapshot with a config.json; download it anew"));
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
        "no model; give a folder, a hub id or random:<config.json>, or use --demo");
  }
  if (absl::StartsWith(given, kRandom)) {
    const fs::path file(given.substr(sizeof kRandom - 1));
    std::error_code error;
    if (!fs::is_regular_file(file, error)) {
      return absl::NotFoundError(
          absl::StrCat("model ", given, ": no such file; write random:<path of a config.json>"));
    }
    if (model->name.empty()) model->name = file.stem().string();
    model->path = absl::StrCat(kRandom, Absolute(file));
    return absl::OkStatus();
  }
  std::error_code error;
  if (fs::is_directory(given, error)) {
    if (!HasConfig(given)) {
      return absl::NotFoundError(absl::StrCat("model ", given,
                                              ": the folder has no config.json; give a folder in "
                                              "Hugging Face layout"));
    }
    model->path = Absolute(given);
    if (model->name.empty()) model->name = fs::path(model->path).filename().string();
    return absl::OkStatus();
  }
  const fs::path cache = model->hf_cache.empty() ? fs::path(HomeFolder()) / ".cache/huggingface/hub"
                                                 : fs::path(model->hf_cache);
  ASSIGN_OR_RETURN(const fs::path snapshot, HubSnapshot(cache, given));
  model->path = Absolute(snapshot);
  if (model->name.empty()) model->name = given;
  return absl::OkStatus();
}

}  // namespace baton
