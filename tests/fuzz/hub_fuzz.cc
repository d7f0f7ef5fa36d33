// A hub that nobody vouches for: its list of a model's files, and the index of the weights. Every
// file that is accepted has a path inside the snapshot and a digest that is a name.
#include <string>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "server/pull/hub_files.h"
#include "server/pull/hub_id.h"
#include "tests/fuzz/fuzz_target.h"

namespace baton {
namespace {

// The list of files, then the index.
constexpr char kBetween = '\x01';

void CheckFile(const HubFile& file) {
  BATON_CHECK(file.size >= 0 && IsHubName(file.digest));
  const std::string path = absl::StrCat("/", file.path, "/");
  BATON_CHECK(path.find("/../") == std::string::npos && path.find("/./") == std::string::npos);
  BATON_CHECK(path.find("//") == std::string::npos && path.find('\0') == std::string::npos);
}

}  // namespace

void TryInput(std::string_view input) {
  const size_t between = input.find(kBetween);
  const std::string_view index = between == std::string_view::npos ? "" : input.substr(between + 1);
  const auto revision = ParseRevision(input.substr(0, between), "https://hub/list");
  if (!revision.ok()) return;
  BATON_CHECK(IsHubName(revision->commit));
  for (const HubFile& file : revision->files) CheckFile(file);
  const auto weights = WeightFiles(revision->files, index);
  if (weights.ok()) {
    BATON_CHECK(!weights->empty());
    for (const HubFile& file : *weights) CheckFile(file);
  }
  const auto matching = MatchingFiles(revision->files, {"*.safetensors", "a?/*"});
  if (matching.ok()) BATON_CHECK(matching->size() <= revision->files.size());
}

FuzzSeeds MakeSeeds() {
  const std::string sha1(40, 'a'), sha256(64, 'b');
  const auto file = [&](const std::string& name, bool is_large) {
    return absl::StrCat(
        R"({"rfilename":")", name, R"(","size":12,"blobId":")", sha1, "\"",
        is_large ? absl::StrCat(R"(,"lfs":{"sha256":")", sha256, R"(","size":5})") : "", "}");
  };
  const auto list = [](const std::string& files) {
    return absl::StrCat(R"({"sha":"c0ffee","siblings":[)", files, "]}");
  };
  FuzzSeeds seeds;
  seeds.inputs = {
      list(file("config.json", false) + "," + file("model.safetensors", true)),
      absl::StrCat(list(file("model-1.safetensors", true) + "," + file("a/b.gguf", true)),
                   std::string(1, kBetween), R"({"weight_map":{"t":"model-1.safetensors"}})"),
      list(""),
      list(file("../../evil", true)),
  };
  seeds.words = {"rfilename", "blobId", "lfs", "sha256",  "size",       "siblings",
                 "sha",       "../",    "//",  "\\u0000", "weight_map", "model.safetensors"};
  return seeds;
}

}  // namespace baton
