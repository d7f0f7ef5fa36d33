// Packed weights where the folder, the disk, descriptors or memory fail: private, or refused.
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>

#include "tests/engine/checkpoint/weights_file_rig.h"
#include "tests/support/temp_folder.h"

namespace baton {
namespace {

namespace fs = std::filesystem;

// The error of weights of so many bytes, which are not filled.
std::string ErrorOf(int64_t bytes, const CacheOptions& cache) {
  ComputePool pool(1, 0);
  const auto file = WeightsFile::Load({{"huge", bytes, 0, bytes}}, kKey, cache, pool,
                                      [](std::span<std::byte* const>) { return kFingerprint; });
  CHECK(absl::IsResourceExhausted(file.status()));
  return std::string(file.status().message());
}

// Checks what the rest of the process must not feel. Returns 0: it holds; 77: this user may not
// try.
int InChild(const std::function<bool()>& check) {
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) ::_exit(check() ? 0 : errno == EPERM ? 77 : 1);
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE(WIFEXITED(status));
  return WEXITSTATUS(status);
}

bool IsPrivateAndIntact(const CacheOptions& cache) {
  const Loaded loaded = Load(cache);
  return loaded.fills >= 1 && !loaded.file->is_shared() && IsIntact(*loaded.file);
}

TEST_CASE("without a usable cache folder the weights are private") {
  const TempFolder folder;
  folder.Write("file", "");
  for (const std::string& cache_dir :
       {std::string(), folder.file("file"), std::string("/proc/none")}) {
    INFO(cache_dir);
    const Loaded loaded = Load(cache_dir);
    CHECK(loaded.fills == 1);
    CHECK_FALSE(loaded.file->is_shared());
    CHECK(IsIntact(*loaded.file));
  }
}

TEST_CASE("a build that cannot get its name leaves nothing behind") {
  const TempFolder folder;
  fs::create_directories(CacheFile(folder.path()) + "/occupied");
  const Loaded loaded = Load(folder.path());
  CHECK_FALSE(loaded.file->is_shared());
  CHECK(IsIntact(*loaded.file));
  CHECK_FALSE(fs::exists(CacheFile(folder.path()) + ".tmp"));
}

TEST_CASE("a full disk, a read-only one and one that fails leave the weights private") {
  const TempFolder folder;
  CacheOptions cache;
  cache.path = folder.file("disk/cache");
  fs::create_directory(folder.file("disk"));
  const auto mount = [&](unsigned long flags, const char* options) {
    return ::unshare(CLONE_NEWNS) == 0 &&
           ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
           ::mount("none", folder.file("disk").c_str(), "tmpfs", flags, options) == 0;
  };
  const int full = InChild([&] { return mount(0, "size=16k") && IsPrivateAndIntact(cache); });
  const int read_only = InChild([&] { return mount(MS_RDONLY, "") && IsPrivateAndIntact(cache); });
  if (full == 77 || read_only == 77) {
    WARN("only root may mount: no full and no read-only disk was tried");
  } else {
    CHECK(full == 0);
    CHECK(read_only == 0);
  }
  cache.sync = [](int) {
    errno = EIO;
    return -1;
  };
  CHECK(IsPrivateAndIntact(cache));
  CHECK(fs::is_empty(cache.path));
  cache.sync = ::fsync;
  CHECK(Load(cache).file->is_shared());
}

TEST_CASE("without descriptors or memory the weights are private, or refused") {
  const TempFolder folder;
  CacheOptions cache;
  cache.path = folder.path();
  CHECK(InChild([&] {
          const rlimit none{0, 0};
          return ::setrlimit(RLIMIT_NOFILE, &none) == 0 && IsPrivateAndIntact(cache);
        }) == 0);
  CHECK(InChild([] {
          int64_t pages = 0;
          std::ifstream("/proc/self/statm") >> pages;
          const rlimit more{static_cast<rlim_t>(pages * ::getpagesize()) + (256u << 20),
                            RLIM_INFINITY};
          return ::setrlimit(RLIMIT_AS, &more) == 0 &&
                 ErrorOf(768 << 20, {}).find("(Cannot allocate memory)") != std::string::npos;
        }) == 0);
}

TEST_CASE("private copies that the memory cannot hold are refused") {
  using Catch::Matchers::Contains;
  CHECK_THAT(ErrorOf(int64_t{1} << 45, {}), Contains("do not fit into the memory"));
  CHECK_THAT(ErrorOf(int64_t{1} << 45, {}), Contains("model.weight_cache is not set"));
  CacheOptions many;
  many.n_processes = 1'000'000;
  CHECK_THAT(ErrorOf(64 << 20, many), Contains("a copy in each of 1000000 processes"));
  const TempFolder folder;
  REQUIRE(::chmod(folder.path().c_str(), 0755) == 0);
  many.path = folder.path();
  CHECK_THAT(ErrorOf(64 << 20, many), Contains("chmod 700 " + folder.path()));
}

}  // namespace
}  // namespace baton
