// Revisions as a hub tells them, files that serving needs, names and digests.
#include "server/pull/hub_files.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "server/pull/file_digest.h"
#include "server/pull/hub_id.h"

namespace baton {
namespace {

using Catch::Matchers::Contains;

std::vector<std::string> Names(const std::vector<HubFile>& files) {
  std::vector<std::string> names;
  for (const HubFile& file : files) names.push_back(file.path);
  return names;
}

std::vector<HubFile> Files(const std::vector<std::string>& names) {
  std::vector<HubFile> files;
  for (const std::string& name : names) {
    HubFile file;
    file.path = name;
    files.push_back(file);
  }
  return files;
}

const std::string kSha1(40, 'a'), kSha256(64, 'b');

std::string Listed(const std::string& sibling, const std::string& commit = "abc") {
  return R"({"sha":")" + commit + R"(","siblings":[)" + sibling + "]}";
}

TEST_CASE("a revision's files have a name, a size and the digest that the cache names them by") {
  const auto revision = ParseRevision(
      Listed(R"({"rfilename":"config.json","size":12,"blobId":")" + kSha1 + R"("},)" +
             R"({"rfilename":"a/model.safetensors","size":134,"blobId":")" + kSha1 +
             R"(","lfs":{"sha256":")" + kSha256 + R"(","size":5000000000,"pointerSize":134}})"),
      "https://hub/x");
  REQUIRE(revision.ok());
  CHECK(revision->commit == "abc");
  REQUIRE(revision->files.size() == 2);
  CHECK(revision->files[0].kind == DigestKind::kGitBlob);
  CHECK(revision->files[0].digest == kSha1);
  CHECK(revision->files[0].size == 12);
  CHECK(revision->files[1].kind == DigestKind::kSha256);
  CHECK(revision->files[1].digest == kSha256);
  CHECK(revision->files[1].size == 5000000000);
}

TEST_CASE("what a hub may not say is refused with the address") {
  const std::string good = R"({"rfilename":"a","size":1,"blobId":")" + kSha1 + R"("})";
  REQUIRE(ParseRevision(Listed(good), "u").ok());
  for (const std::string& text : {
           std::string("<html>"),
           std::string("[]"),
           std::string("{}"),
           Listed(good, "../../x"),
           Listed(good, ""),
           std::string(R"({"sha":"abc","siblings":{}})"),
           Listed("1"),
           Listed(R"({"rfilename":"a","size":1})"),
           Listed(R"({"rfilename":"a","size":-1,"blobId":")" + kSha1 + R"("})"),
           Listed(R"({"rfilename":"a","size":1e30,"blobId":")" + kSha1 + R"("})"),
           Listed(R"({"rfilename":"../a","size":1,"blobId":")" + kSha1 + R"("})"),
           Listed(R"({"rfilename":"a/../../b","size":1,"blobId":")" + kSha1 + R"("})"),
           Listed(R"({"rfilename":"/a","size":1,"blobId":")" + kSha1 + R"("})"),
           Listed(R"({"rfilename":"a\nb","size":1,"blobId":")" + kSha1 + R"("})"),
           Listed(R"({"rfilename":"a","size":1,"blobId":"../../evil"})"),
           Listed(R"({"rfilename":"a","size":1,"blobId":")" + kSha1 + R"(","lfs":{"size":1}})"),
       }) {
    INFO(text);
    const auto revision = ParseRevision(text, "https://hub/api");
    REQUIRE_FALSE(revision.ok());
    CHECK_THAT(std::string(revision.status().message()), Contains("https://hub/api: "));
  }
}

TEST_CASE("weights are one file, or those of the index") {
  const auto files =
      Files({"consolidated.safetensors", "model-1.safetensors", "model-2.safetensors"});
  const auto weights =
      WeightFiles(files, R"({"weight_map":{"a":"model-2.safetensors","b":"model-1.safetensors",
                             "c":"model-2.safetensors"}})");
  REQUIRE(weights.ok());
  CHECK(Names(*weights) == std::vector<std::string>{"model-1.safetensors", "model-2.safetensors"});
  const auto whole = WeightFiles(Files({"model.safetensors", "model-1.safetensors"}), "");
  REQUIRE(whole.ok());
  CHECK(Names(*whole) == std::vector<std::string>{"model.safetensors"});
  for (const char* index : {"", "{", "[]", R"({"weight_map":1})", R"({"weight_map":{"a":"x"}})"}) {
    INFO(index);
    CHECK_FALSE(WeightFiles(files, index).ok());
  }
}

TEST_CASE("patterns choose files, each once") {
  const auto files = Files({"a.gguf", "b.gguf", "sub/c.gguf", "config.json"});
  const auto chosen = MatchingFiles(files, {"*.json", "a.*", "*.gguf"});
  REQUIRE(chosen.ok());
  CHECK(Names(*chosen) ==
        std::vector<std::string>{"config.json", "a.gguf", "b.gguf", "sub/c.gguf"});
  CHECK(MatchingFiles(files, {"*.bin"}).status().code() == absl::StatusCode::kNotFound);
}

TEST_CASE("digests are those of sha256sum and of git hash-object") {
  FileDigest sha(DigestKind::kSha256, 6);
  sha.Take("hel");
  sha.Take("lo\n");
  CHECK(sha.Hex() == "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03");
  FileDigest git(DigestKind::kGitBlob, 6);
  git.Take("hello\n");
  CHECK(git.Hex() == "ce013625030ba8dba906f756967f9e9ca394464a");
}

TEST_CASE("a model's name on a hub leads nowhere else") {
  const auto hub = ParseHubId("org/name@refs/pr/7");
  REQUIRE(hub);
  CHECK(hub->id == "org/name");
  CHECK(hub->revision == "refs/pr/7");
  CHECK(hub->Text() == "org/name@refs/pr/7");
  CHECK(ParseHubId("name")->Text() == "name");
  CHECK(HubRepoFolder("/c", "org/name") == "/c/models--org--name");
  for (const char* text : {"", "/a", "a/", "../a", "a/b/c", "a@", "a@../b", "a/..", "a b"}) {
    INFO(text);
    CHECK_FALSE(ParseHubId(text));
  }
}

}  // namespace
}  // namespace baton
