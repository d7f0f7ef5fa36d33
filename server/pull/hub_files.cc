#include "server/pull/hub_files.h"

#include <fnmatch.h>

#include <algorithm>
#include <array>
#include <boost/json.hpp>
#include <optional>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "server/pull/hub_id.h"

namespace baton {
namespace {

namespace json = boost::json;

constexpr std::array<std::string_view, 12> kServingFiles = {
    "config.json",       "generation_config.json",  "tokenizer.json",  "tokenizer_config.json",
    "added_tokens.json", "special_tokens_map.json", "tokenizer.model", "vocab.json",
    "merges.txt",        "chat_template.json",      kIndexFile,        "chat_template.jinja",
};
constexpr int64_t kMaxFileBytes = int64_t{1} << 50;

bool IsHex(std::string_view text, size_t n) {
  return text.size() == n && std::all_of(text.begin(), text.end(), [](char c) {
           return absl::ascii_isdigit(static_cast<unsigned char>(c)) || (c >= 'a' && c <= 'f');
         });
}

// Whether a path stays in its folder: parts without "", "." and "..", no control characters.
bool IsInside(std::string_view path) {
  for (const std::string& part : std::vector<std::string>(absl::StrSplit(std::string(path), '/'))) {
    if (part.empty() || part == "." || part == "..") return false;
  }
  return std::none_of(path.begin(), path.end(), [](char c) {
    return absl::ascii_iscntrl(static_cast<unsigned char>(c)) || c == '\\';
  });
}

std::string TextOf(const json::object& object, const char* key) {
  const json::value* value = object.if_contains(key);
  return value != nullptr && value->is_string() ? std::string(value->get_string()) : "";
}

int64_t SizeOf(const json::object& object) {
  const json::value* value = object.if_contains("size");
  if (value == nullptr) return -1;
  boost::system::error_code error;
  const auto size = value->to_number<int64_t>(error);
  return error ? -1 : size;
}

std::optional<HubFile> ReadFile(const json::value& value) {
  if (!value.is_object()) return std::nullopt;
  const json::object& object = value.get_object();
  HubFile file;
  file.path = TextOf(object, "rfilename");
  file.size = SizeOf(object);
  file.digest = TextOf(object, "blobId");
  const json::value* lfs = object.if_contains("lfs");
  if (lfs != nullptr && lfs->is_object()) {
    file.kind = DigestKind::kSha256;
    file.digest = TextOf(lfs->get_object(), "sha256");
    file.size = SizeOf(lfs->get_object());
  }
  const size_t digits = file.kind == DigestKind::kSha256 ? 64 : 40;
  if (!IsInside(file.path) || !IsHex(file.digest, digits) || file.size < 0 ||
      file.size > kMaxFileBytes) {
    return std::nullopt;
  }
  return file;
}

const HubFile* Find(const std::vector<HubFile>& files, std::string_view path) {
  const auto found =
      std::find_if(files.begin(), files.end(), [&](const HubFile& f) { return f.path == path; });
  return found == files.end() ? nullptr : &*found;
}

// Names other weights that a model without safetensors has.
std::string OtherWeights(const std::vector<HubFile>& files) {
  std::set<std::string> gguf, other;
  for (const HubFile& file : files) {
    if (absl::EndsWith(file.path, ".gguf")) gguf.insert(file.path);
    for (const char* ending : {".safetensors", ".bin", ".pth", ".pt"}) {
      if (absl::EndsWith(file.path, ending)) other.insert(file.path);
    }
  }
  if (!gguf.empty()) {
    return absl::StrCat("it has GGUF files: take one, --include ", *gguf.begin(), " (of ",
                        gguf.size(), ")");
  }
  if (other.empty()) return "it has no weights that Baton reads";
  return absl::StrCat("it has ", *other.begin(), " (of ", other.size(),
                      "), which is no checkpoint in Hugging Face layout: convert it to "
                      "model.safetensors, or pull another model");
}

}  // namespace

absl::StatusOr<HubRevision> ParseRevision(std::string_view text, const std::string& url) {
  const auto wrong = [&](const std::string& what) {
    return absl::InvalidArgumentError(absl::StrCat(
        url, ": ", what, "; is --hub the address of a hub, and of no page before it?"));
  };
  boost::system::error_code error;
  const json::value value = json::parse({text.data(), text.size()}, error);
  if (error || !value.is_object()) return wrong("the answer is no JSON object");
  const json::object& object = value.get_object();
  HubRevision revision;
  revision.commit = TextOf(object, "sha");
  if (!IsHubName(revision.commit)) return wrong("the answer names no commit (sha)");
  const json::value* siblings = object.if_contains("siblings");
  if (siblings == nullptr || !siblings->is_array()) return wrong("the answer lists no files");
  for (const json::value& each : siblings->get_array()) {
    const std::optional<HubFile> file = ReadFile(each);
    if (!file) {
      return wrong(absl::StrCat("a file without a name, size or digest that can be: ",
                                json::serialize(each).substr(0, 200)));
    }
    revision.files.push_back(*file);
  }
  return revision;
}

absl::StatusOr<std::vector<HubFile>> MatchingFiles(const std::vector<HubFile>& files,
                                                   const std::vector<std::string>& patterns) {
  std::vector<HubFile> chosen;
  for (const std::string& pattern : patterns) {
    bool found = false;
    for (const HubFile& file : files) {
      if (::fnmatch(pattern.c_str(), file.path.c_str(), 0) != 0) continue;
      found = true;
      if (Find(chosen, file.path) == nullptr) chosen.push_back(file);
    }
    if (!found) {
      const std::string names = absl::StrJoin(
          files, ", ", [](std::string* out, const auto& file) { absl::StrAppend(out, file.path); });
      return absl::NotFoundError(absl::StrCat(
          "--include ", pattern, ": no file of that name; there are ", names.substr(0, 500)));
    }
  }
  return chosen;
}

bool IsServingFile(std::string_view path) {
  return std::find(kServingFiles.begin(), kServingFiles.end(), path) != kServingFiles.end();
}

absl::StatusOr<std::vector<HubFile>> WeightFiles(const std::vector<HubFile>& files,
                                                 std::string_view index) {
  if (const HubFile* whole = Find(files, kWeightsFile)) return std::vector<HubFile>{*whole};
  if (index.empty()) {
    return absl::NotFoundError(absl::StrCat("neither ", kWeightsFile, " nor ", kIndexFile,
                                            " is in the repository: ", OtherWeights(files)));
  }
  boost::system::error_code error;
  const json::value value = json::parse({index.data(), index.size()}, error);
  const json::value* map =
      !error && value.is_object() ? value.get_object().if_contains("weight_map") : nullptr;
  if (map == nullptr || !map->is_object()) {
    return absl::InvalidArgumentError(
        absl::StrCat(kIndexFile, ": has no weight_map of tensors and files; tell who uploaded it"));
  }
  std::set<std::string> names;
  for (const json::key_value_pair& entry : map->get_object())
    if (entry.value().is_string()) names.insert(std::string(entry.value().get_string()));
  std::vector<HubFile> weights;
  for (const std::string& name : names) {
    const HubFile* file = Find(files, name);
    if (file == nullptr) {
      return absl::NotFoundError(absl::StrCat(kIndexFile, " names ", name,
                                              ", which is not in the repository: its upload is not "
                                              "complete; give an older revision (@COMMIT)"));
    }
    weights.push_back(*file);
  }
  return weights;
}

}  // namespace baton
