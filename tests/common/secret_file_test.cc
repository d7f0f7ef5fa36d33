// Files with secrets: who may own, read and write them, and what is read.
#include "common/secret_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "tests/support/temp_folder.h"

namespace baton {
namespace {

using Catch::Contains;

std::string Error(const std::string& path) {
  return std::string(ReadSecretFile(path, 8).status().message());
}

TEST_CASE("a file that others may read or write, or of another user, is refused") {
  constexpr uid_t kUs = 1000, kRoot = 0, kOther = 1001;
  for (const mode_t mode : {0600u, 0400u, 0640u, 0440u, 0700u})
    for (const uid_t owner : {kUs, kRoot})
      CHECK(CheckSecretMode("keys", S_IFREG | mode, owner, kUs).ok());
  for (const mode_t mode : {0644u, 0604u, 0660u, 0620u, 0602u, 0666u, 0777u}) {
    const absl::Status status = CheckSecretMode("keys", S_IFREG | mode, kUs, kUs);
    INFO(mode);
    CHECK(absl::IsPermissionDenied(status));
    CHECK(status.message().find("chmod 600 keys") != std::string::npos);
  }
  const absl::Status foreign = CheckSecretMode("keys", S_IFREG | 0600u, kOther, kUs);
  CHECK(absl::IsPermissionDenied(foreign));
  CHECK(foreign.message().find("belongs to user 1001") != std::string::npos);
  CHECK(foreign.message().find("chown 1000 keys") != std::string::npos);
  CHECK_FALSE(CheckSecretMode("keys", S_IFREG | 0600u, kOther, kRoot).ok());
}

TEST_CASE("a Secret of Kubernetes is read: root's, its group's, behind links") {
  const TempFolder folder;
  std::filesystem::create_directory(folder.file("..data"));
  folder.Write("..data/key", "secret");
  folder.Link("key", "..data/key");
  REQUIRE(::chmod(folder.file("key").c_str(), 0440) == 0);
  CHECK(*ReadSecretFile(folder.file("key"), 8) == "secret");
  REQUIRE(::chmod(folder.file("key").c_str(), 0444) == 0);
  CHECK_THAT(Error(folder.file("key")), Contains("defaultMode 0440"));
}

TEST_CASE("what is no file, too long or not there is named, and its text is not repeated") {
  const TempFolder folder;
  folder.Write("long", "123456789");
  REQUIRE(::chmod(folder.file("long").c_str(), 0600) == 0);
  CHECK_THAT(Error(folder.file("long")), Contains("longer than the 8 bytes"));
  CHECK_THAT(Error(folder.file("long")), !Contains("1234"));
  CHECK(absl::IsNotFound(ReadSecretFile(folder.file("none"), 8).status()));
  CHECK_THAT(Error(folder.file("none")), Contains("No such file"));
  CHECK_THAT(Error(folder.path()), Contains("is no file"));
  REQUIRE(::mkfifo(folder.file("pipe").c_str(), 0600) == 0);
  CHECK_THAT(Error(folder.file("pipe")), Contains("is no file"));
  CHECK_THAT(Error("/proc/self/mem"), Contains("cannot be read (Input/output error)"));
}

}  // namespace
}  // namespace baton
