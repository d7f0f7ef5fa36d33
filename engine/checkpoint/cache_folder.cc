#include "engine/checkpoint/cache_folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/clock.h"
#include "common/log.h"

namespace baton {
namespace {

constexpr char kDraftEnd[] = ".tmp";
constexpr char kOther[] = ", or set model.weight_cache to another folder";
constexpr absl::Duration kLookAgain = absl::Seconds(1);  // where the system tells of no change

// Whether only we may do anything with it.
absl::Status CheckOurs(const std::string& path, const struct stat& about, mode_t wanted) {
  if (about.st_uid != ::geteuid()) {
    return absl::PermissionDeniedError(
        absl::StrFormat("%s belongs to user %d, we are %d: chown %d %s%s", path, about.st_uid,
                        ::geteuid(), ::geteuid(), path, kOther));
  }
  if ((about.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
    return absl::PermissionDeniedError(
        absl::StrFormat("%s has mode %04o, which is open to others: chmod %o %s%s", path,
                        about.st_mode & 07777u, wanted, path, kOther));
  }
  return absl::OkStatus();
}

// The names in the folder.
std::vector<std::string> NamesIn(int folder) {
  std::vector<std::string> names;
  const int again = ::openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR* const listed = again < 0 ? nullptr : ::fdopendir(again);
  if (listed == nullptr && again >= 0) ::close(again);
  if (listed == nullptr) return names;
  while (const dirent* entry = ::readdir(listed)) names.emplace_back(entry->d_name);
  ::closedir(listed);
  return names;
}

// Returns when something in the folder has changed, or so much time has passed.
void AwaitChange(const Descriptor& changes, absl::Duration limit) {
  pollfd waited{.fd = changes.get(), .events = POLLIN, .revents = 0};  // -1: time alone counts
  ::poll(&waited, 1, static_cast<int>(absl::ToInt64Milliseconds(limit)) + 1);
  char events[4096];
  while (changes.is_open() && ::read(changes.get(), events, sizeof events) > 0) {
  }
}

}  // namespace

absl::Status CacheFolder::Error(const std::string& name, const char* what) const {
  const int error = errno;
  const std::string text =
      absl::StrCat(PathOf(name), ": cannot ", what, ": ", std::strerror(error));
  return error == ENOENT ? absl::NotFoundError(text) : absl::UnavailableError(text);
}

absl::StatusOr<CacheFolder> CacheFolder::Open(const CacheOptions& options) {
  CacheOptions used = options;
  std::string& path = used.path;  // a slash at its end would follow a link
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  std::error_code ignored;  // a failure shows when the folder is opened
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), ignored);
  const bool is_there = ::mkdir(path.c_str(), S_IRWXU) == 0 || errno == EEXIST;
  const int not_made = errno;
  Descriptor opened(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!opened.is_open() && (errno == ENOTDIR || errno == ELOOP)) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, " is no folder, or a link: give the folder itself", kOther));
  }
  struct stat about {};
  if (!opened.is_open() || ::fstat(opened.get(), &about) != 0) {
    const int error = is_there ? errno : not_made;
    return absl::UnavailableError(absl::StrCat(path, ": cannot ", is_there ? "open" : "make", ": ",
                                               std::strerror(error), kOther));
  }
  RETURN_IF_ERROR(CheckOurs(path, about, S_IRWXU));
  CacheFolder folder(std::move(used), std::move(opened));
  folder.RemoveDeadDrafts();
  return folder;
}

// A draft that can be locked has no writer.
void CacheFolder::RemoveDeadDrafts() const {
  for (const std::string& name : NamesIn(folder_.get())) {
    if (!absl::EndsWith(name, options_.ending + kDraftEnd)) continue;
    const Descriptor file(
        ::openat(folder_.get(), name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
    if (!file.is_open() && errno != ELOOP) continue;  // a link is no draft, and has no writer
    if (file.is_open() &&
        (::flock(file.get(), LOCK_EX | LOCK_NB) != 0 || !HasName(file.get(), name)))
      continue;
    if (::unlinkat(folder_.get(), name.c_str(), 0) == 0)
      LogInfo("removed %s, which a process left that ended while it wrote", PathOf(name));
  }
}

absl::StatusOr<Descriptor> CacheFolder::Find(const std::string& name) const {
  Descriptor file(
      ::openat(folder_.get(), name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  struct stat about {};
  if (!file.is_open() || ::fstat(file.get(), &about) != 0) return Error(name, "open");
  if (!S_ISREG(about.st_mode))
    return absl::FailedPreconditionError(
        absl::StrCat(PathOf(name), " is no file: remove it", kOther));
  RETURN_IF_ERROR(CheckOurs(PathOf(name), about, S_IRUSR | S_IWUSR));
  ::futimens(file.get(), nullptr);  // used now
  return file;
}

// Whether the name is that of the open file.
bool CacheFolder::HasName(int descriptor, const std::string& name) const {
  struct stat open {
  }, named{};
  return ::fstat(descriptor, &open) == 0 &&
         ::fstatat(folder_.get(), name.c_str(), &named, AT_SYMLINK_NOFOLLOW) == 0 &&
         open.st_ino == named.st_ino && open.st_dev == named.st_dev;
}

absl::Status CacheFolder::Lock(int descriptor, const std::string& name) const {
  const absl::Time deadline = MonotonicNow() + options_.lock_timeout;
  Descriptor changes;
  bool is_told = false;
  while (::flock(descriptor, LOCK_EX | LOCK_NB) != 0) {
    if (errno == EINTR) continue;
    if (errno != EWOULDBLOCK) return Error(name, "lock");
    const absl::Duration left = deadline - MonotonicNow();
    if (left <= absl::ZeroDuration()) {
      return absl::DeadlineExceededError(
          absl::StrCat(PathOf(name), " is held by another process since ",
                       absl::FormatDuration(options_.lock_timeout),
                       "; end it if it stands still (fuser ", PathOf(name), " names it)"));
    }
    if (!std::exchange(is_told, true)) {
      LogInfo("waiting for another process that writes %s, at most %s", PathOf(name),
              absl::FormatDuration(left));
      changes = Descriptor(::inotify_init1(IN_NONBLOCK | IN_CLOEXEC));
      ::inotify_add_watch(changes.get(), options_.path.c_str(),
                          IN_CLOSE_WRITE | IN_MOVED_TO | IN_DELETE);
      continue;  // it may have changed before the watch was there
    }
    AwaitChange(changes, std::min(left, kLookAgain));
  }
  return absl::OkStatus();
}

absl::StatusOr<CacheFolder::Draft> CacheFolder::Begin(const std::string& name) const {
  const std::string draft = name + kDraftEnd;
  while (true) {
    Descriptor file(::openat(folder_.get(), draft.c_str(),
                             O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, S_IRUSR | S_IWUSR));
    if (!file.is_open()) return Error(draft, "create");
    RETURN_IF_ERROR(Lock(file.get(), draft));
    // The draft may have got its name, or have been removed, while we waited.
    if (HasName(file.get(), draft)) return Draft(this, std::move(file), name);
  }
}

absl::Status CacheFolder::MakeRoom(int64_t bytes, const std::string& name) const {
  if (options_.max_bytes == 0) return absl::OkStatus();
  struct Kept {
    int64_t used = 0, bytes = 0;
    std::string name{};
  };
  std::vector<Kept> files;
  int64_t total = bytes, removable = 0;
  for (const std::string& other : NamesIn(folder_.get())) {
    struct stat about {};
    if (other == name ||
        ::fstatat(folder_.get(), other.c_str(), &about, AT_SYMLINK_NOFOLLOW) != 0 ||
        !S_ISREG(about.st_mode))
      continue;
    const bool is_draft = absl::EndsWith(other, options_.ending + kDraftEnd);
    if (!is_draft && !absl::EndsWith(other, options_.ending)) continue;
    total += about.st_size;
    if (is_draft) continue;
    removable += about.st_size;
    const int64_t used = int64_t{about.st_mtim.tv_sec} * 1'000'000'000 + about.st_mtim.tv_nsec;
    files.push_back({used, about.st_size, other});
  }
  std::sort(files.begin(), files.end(),
            [](const Kept& a, const Kept& b) { return a.used < b.used; });
  if (total - removable > options_.max_bytes) files.clear();  // it would be in vain
  for (const Kept& file : files) {
    if (total <= options_.max_bytes) break;
    if (::unlinkat(folder_.get(), file.name.c_str(), 0) != 0) continue;
    total -= file.bytes;
    LogInfo("removed %s of %d bytes, the least lately used (model.weight_cache_bytes)",
            PathOf(file.name), file.bytes);
  }
  if (total <= options_.max_bytes) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrFormat(
      "%s: %d bytes more are needed than model.weight_cache_bytes (%d) allows; raise it",
      PathOf(name), total - options_.max_bytes, options_.max_bytes));
}

CacheFolder::Draft::Draft(const CacheFolder* folder, Descriptor file, std::string name)
    : folder_(folder), file_(std::move(file)), name_(std::move(name)) {}

CacheFolder::Draft::~Draft() {
  const std::string draft = name_ + kDraftEnd;
  if (file_.is_open() && folder_->HasName(file_.get(), draft))
    ::unlinkat(folder_->folder_.get(), draft.c_str(), 0);
}

absl::Status CacheFolder::Draft::Reserve(int64_t bytes) const {
  // Two that count at once would both find the same room.
  const Descriptor counting(::openat(folder_->folder_.get(), ".", O_RDONLY | O_CLOEXEC));
  if (!counting.is_open()) return folder_->Error("", "open");
  RETURN_IF_ERROR(folder_->Lock(counting.get(), ""));
  RETURN_IF_ERROR(::ftruncate(file_.get(), 0) == 0 ? absl::OkStatus()
                                                   : folder_->Error(name_ + kDraftEnd, "empty"));
  RETURN_IF_ERROR(folder_->MakeRoom(bytes, name_));
  errno = ::posix_fallocate(file_.get(), 0, bytes);
  return errno == 0 ? absl::OkStatus() : folder_->Error(name_, "reserve space");
}

absl::Status CacheFolder::Draft::Commit() {
  const int folder = folder_->folder_.get();
  const std::string draft = name_ + kDraftEnd;
  if (folder_->options_.sync(file_.get()) != 0) return folder_->Error(draft, "sync");
  if (!folder_->HasName(file_.get(), draft))
    return absl::UnavailableError(
        absl::StrCat(folder_->PathOf(draft), " was removed by somebody else", kOther));
  if (::renameat(folder, draft.c_str(), folder, name_.c_str()) != 0)
    return folder_->Error(draft, "rename");
  file_ = Descriptor();
  folder_->options_.sync(folder);  // best effort: a lost name is built again
  return absl::OkStatus();
}

}  // namespace baton
