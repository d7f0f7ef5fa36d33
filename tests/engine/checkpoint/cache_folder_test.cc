// The folder of packed weights: whose it is, who writes, what is removed, and a disk that fails.
#include "engine/checkpoint/cache_folder.h"

#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <ctime>
#include <thread>

#include "engine/checkpoint/mapped_file.h"
#include "tests/support/temp_folder.h"

namespace baton {
namespace {

namespace fs = std::filesystem;
using Catch::Contains;

CacheOptions At(const std::string& path) {
  CacheOptions options;
  options.path = path;
  return options;
}

CacheFolder Opened(const CacheOptions& options) {
  auto folder = CacheFolder::Open(options);
  INFO(std::string(folder.status().message()));
  REQUIRE(folder.ok());
  return *std::move(folder);
}

std::string OpenError(const std::string& path) {
  return std::string(CacheFolder::Open(At(path)).status().message());
}

absl::Status Write(const CacheFolder& folder, const std::string& name, int64_t bytes = 4096) {
  ASSIGN_OR_RETURN(CacheFolder::Draft draft, folder.Begin(name));
  RETURN_IF_ERROR(draft.Reserve(bytes));
  return draft.Commit();
}

mode_t ModeOf(const std::string& path) {
  struct stat about {};
  REQUIRE(::stat(path.c_str(), &about) == 0);
  return about.st_mode & 07777u;
}

TEST_CASE("folder and files are ours alone, whatever the umask is") {
  const TempFolder temp;
  const mode_t before = ::umask(0);
  const CacheFolder folder = Opened(At(temp.file("a/b/cache")));
  CHECK(Write(folder, "w").ok());
  ::umask(before);
  CHECK(ModeOf(temp.file("a/b/cache")) == 0700);
  CHECK(ModeOf(temp.file("a/b/cache/w")) == 0600);
  CHECK(folder.Find("w").ok());
  CHECK(absl::IsNotFound(folder.Find("v").status()));
  CHECK_FALSE(fs::exists(temp.file("a/b/cache/w.tmp")));
}

TEST_CASE("a folder of others, open to others, or behind a link is not used") {
  const TempFolder temp;
  for (const mode_t mode : {0755u, 0710u, 0777u, 01777u}) {
    REQUIRE(::chmod(temp.path().c_str(), mode) == 0);
    CHECK_THAT(OpenError(temp.path()), Contains("chmod 700 " + temp.path()));
  }
  REQUIRE(::chmod(temp.path().c_str(), 0700) == 0);
  CHECK(OpenError(temp.path()).empty());
  fs::create_directory(temp.file("real"));
  temp.Link("link", temp.file("real"));
  CHECK_THAT(OpenError(temp.file("link")), Contains("give the folder itself"));
  CHECK_THAT(OpenError(temp.file("link//")), Contains("give the folder itself"));
  CHECK_THAT(OpenError("/proc/none"), Contains("/proc/none: cannot make: "));
  temp.Write("file", "");
  CHECK_THAT(OpenError(temp.file("file")), Contains("is no folder"));
  if (::geteuid() == 0) {
    REQUIRE(::chown(temp.path().c_str(), 1234, 1234) == 0);
    CHECK_THAT(OpenError(temp.path()), Contains("belongs to user 1234"));
  } else {
    CHECK_THAT(OpenError("/"), Contains("belongs to user 0"));
  }
}

TEST_CASE("a file that others may open, a link and a pipe are not used") {
  const TempFolder temp;
  const CacheFolder folder = Opened(At(temp.path()));
  CHECK(Write(folder, "w").ok());
  REQUIRE(::chmod(temp.file("w").c_str(), 0644) == 0);
  CHECK_THAT(std::string(folder.Find("w").status().message()),
             Contains("chmod 600 " + temp.file("w")));
  CHECK(Write(folder, "w").ok());  // replaces it
  CHECK(folder.Find("w").ok());
  temp.Link("link", temp.file("w"));
  CHECK_FALSE(folder.Find("link").ok());
  REQUIRE(::mkfifo(temp.file("pipe").c_str(), 0600) == 0);
  CHECK_FALSE(folder.Find("pipe").ok());
  // A link in the place of a draft leads nowhere else.
  temp.Write("victim", "keep");
  temp.Link("v.tmp", temp.file("victim"));
  CHECK_FALSE(folder.Begin("v").ok());
  CHECK(fs::file_size(temp.file("victim")) == 4);
}

TEST_CASE("drafts of dead processes are removed, others stay") {
  const TempFolder temp;
  const CacheFolder folder = Opened(At(temp.path()));
  auto draft = folder.Begin("alive");
  REQUIRE(draft.ok());
  temp.Write("dead.tmp", "half a file");
  temp.Link("link.tmp", "nowhere");
  Opened(At(temp.path()));
  CHECK_FALSE(fs::exists(temp.file("dead.tmp")));
  CHECK_FALSE(fs::is_symlink(temp.file("link.tmp")));
  CHECK(fs::exists(temp.file("alive.tmp")));
  CHECK(draft->Commit().ok());
  CHECK(fs::exists(temp.file("alive")));
}

TEST_CASE("who waits for a writer for too long gives up, and says for whom") {
  const TempFolder temp;
  CacheOptions options = At(temp.path());
  options.lock_timeout = absl::Milliseconds(50);
  const CacheFolder folder = Opened(options);
  const auto held = folder.Begin("w");
  const auto waiting = folder.Begin("w");
  CHECK(absl::IsDeadlineExceeded(waiting.status()));
  CHECK_THAT(std::string(waiting.status().message()), Contains("fuser " + temp.file("w.tmp")));
  CHECK(folder.Begin("v").ok());  // another file is free
  // Waiting works as well where the system cannot tell of changes, and sleeps meanwhile.
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
  const int next = ::dup(STDERR_FILENO);
  ::close(next);
  const rlimit one_more{static_cast<rlim_t>(next) + 1, before.rlim_max};
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &one_more) == 0);
  const std::clock_t begin = std::clock();
  CHECK(absl::IsDeadlineExceeded(folder.Begin("w").status()));
  CHECK(std::clock() - begin < CLOCKS_PER_SEC / 40);
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &before) == 0);
}

TEST_CASE("who waits goes on when the file is there, and finds it") {
  const TempFolder temp;
  const CacheFolder folder = Opened(At(temp.path()));
  auto held = folder.Begin("w");
  REQUIRE(held.ok());
  bool found = false;
  std::thread waiting([&] { found = folder.Begin("w").ok() && folder.Find("w").ok(); });
  const bool written = held->Reserve(10).ok() && held->Commit().ok();
  waiting.join();
  CHECK(written);
  CHECK(found);
  CHECK_FALSE(fs::exists(temp.file("w.tmp")));
}

TEST_CASE("the least lately used files go when the bound asks for it") {
  const TempFolder temp;
  CacheOptions options = At(temp.path());
  options.max_bytes = 10000;
  const CacheFolder folder = Opened(options);
  for (const char* name : {"a", "b"}) {
    CHECK(Write(folder, name, 4000).ok());
    ::usleep(20000);  // times of files are as coarse as the kernel's ticks
  }
  CHECK(folder.Find("a").ok());  // "b" is older now
  CHECK(Write(folder, "c", 4000).ok());
  CHECK(fs::exists(temp.file("a")));
  CHECK_FALSE(fs::exists(temp.file("b")));
  CHECK(Write(folder, "c", 6000).ok());  // in its own place: nothing else goes
  CHECK(fs::exists(temp.file("a")));
  const absl::Status larger = Write(folder, "d", 10001);
  CHECK(absl::IsResourceExhausted(larger));
  CHECK_THAT(std::string(larger.message()), Contains("model.weight_cache_bytes (10000)"));
  CHECK(fs::exists(temp.file("a")));     // nothing goes in vain
  const auto draft = folder.Begin("e");  // one under way counts and does not go
  REQUIRE((draft.ok() && draft->Reserve(9000).ok()));
  CHECK(absl::IsResourceExhausted(Write(folder, "f", 2000)));
  CHECK(fs::exists(temp.file("e.tmp")));
}

TEST_CASE("files of another kind are neither removed nor counted") {
  const TempFolder temp;
  CacheOptions options = At(temp.path());
  options.max_bytes = 10000;
  options.ending = ".w";
  temp.Write("notes.tmp", "a file of somebody else");
  temp.Write("large", std::string(20000, 'x'));
  const CacheFolder folder = Opened(options);
  for (const char* name : {"a.w", "b.w"}) CHECK(Write(folder, name, 8000).ok());
  CHECK(fs::exists(temp.file("notes.tmp")));
  CHECK(fs::exists(temp.file("large")));
  CHECK_FALSE(fs::exists(temp.file("a.w")));
}

TEST_CASE("a draft that somebody has removed gets no name, and harms no other one") {
  const TempFolder temp;
  const CacheFolder folder = Opened(At(temp.path()));
  auto draft = folder.Begin("w");
  REQUIRE((draft.ok() && draft->Reserve(100).ok()));
  fs::remove(temp.file("w.tmp"));
  {
    const auto other = folder.Begin("w");
    REQUIRE(other.ok());
    CHECK(absl::IsUnavailable(draft->Commit()));
    CHECK_FALSE(fs::exists(temp.file("w")));
    draft = absl::CancelledError();
    CHECK(fs::exists(temp.file("w.tmp")));
  }
  CHECK_FALSE(fs::exists(temp.file("w.tmp")));
}

TEST_CASE("a disk that fails while it writes is an error, and leaves nothing") {
  const TempFolder temp;
  CacheOptions options = At(temp.path());
  options.sync = [](int) {
    errno = EIO;
    return -1;
  };
  const absl::Status status = Write(Opened(options), "w");
  CHECK(absl::IsUnavailable(status));
  CHECK_THAT(std::string(status.message()), Contains("cannot sync: Input/output error"));
  CHECK(fs::is_empty(temp.path()));
}

TEST_CASE("pages that the disk cannot read are noticed before they are touched") {
  const TempFolder temp;
  temp.Write("file", std::string(8192, 'x'));
  const auto file = MappedFile::Open(temp.file("file"));
  REQUIRE(file.ok());
  CHECK(BringIn(file->bytes().data() + 5000, 100));
  fs::resize_file(temp.file("file"), 100);  // the second page ends the process when touched
  CHECK(BringIn(file->bytes().data(), 4096));
  CHECK_FALSE(BringIn(file->bytes().data() + 5000, 100));
}

}  // namespace
}  // namespace baton
