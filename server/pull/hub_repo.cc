#include "server/pull/hub_repo.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/statvfs.h>

#include <cerrno>
#include <cstring>
#include <system_error>

#include "absl/strings/str_cat.h"

namespace baton {
namespace {

namespace fs = std::filesystem;

absl::Status MakeFolder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  return error ? FileError(folder, "cannot be made", error.value()) : absl::OkStatus();
}

absl::StatusOr<Descriptor> OpenLock(const fs::path& path) {
  Descriptor file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
  if (!file.is_open()) return FileError(path, "cannot be opened", errno);
  return file;
}

// Puts a file or a link in place of what has its name.
absl::Status MoveInPlace(const fs::path& draft, const fs::path& path) {
  std::error_code error;
  fs::rename(draft, path, error);
  return error ? FileError(path, "cannot be replaced", error.value()) : absl::OkStatus();
}

}  // namespace

absl::Status FileError(const fs::path& path, const char* what, int error) {
  const std::string text = absl::StrCat(path.string(), " ", what, ": ", std::strerror(error));
  if (error == ENOSPC || error == EDQUOT) {
    return absl::ResourceExhaustedError(absl::StrCat(
        text,
        "; make room and run it again, what is there is kept; or give another disk with "
        "--hf-cache"));
  }
  if (error == EACCES || error == EPERM || error == EROFS) {
    return absl::PermissionDeniedError(
        absl::StrCat(text, "; give a folder that this user may write with --hf-cache"));
  }
  return absl::UnavailableError(absl::StrCat(text, "; look at the disk, or give --hf-cache"));
}

absl::StatusOr<HubRepo> HubRepo::Open(const fs::path& cache, const std::string& id) {
  HubRepo repo;
  repo.repo_ = HubRepoFolder(cache, id);
  repo.blobs_ = repo.repo_ / "blobs";
  repo.locks_ = cache / ".locks" / repo.repo_.filename();
  for (const fs::path& folder :
       {repo.blobs_, repo.repo_ / "refs", repo.repo_ / "snapshots", repo.locks_}) {
    RETURN_IF_ERROR(MakeFolder(folder));
  }
  return repo;
}

absl::StatusOr<bool> HubRepo::TryLock() {
  ASSIGN_OR_RETURN(lock_, OpenLock(locks_ / "pull.lock"));
  if (::flock(lock_.get(), LOCK_EX | LOCK_NB) == 0) return true;
  if (errno == EWOULDBLOCK) return false;
  return FileError(locks_ / "pull.lock", "cannot be locked", errno);
}

absl::Status HubRepo::WaitForLock() {
  while (::flock(lock_.get(), LOCK_EX) != 0) {
    if (errno != EINTR) return FileError(locks_ / "pull.lock", "cannot be locked", errno);
  }
  return absl::OkStatus();
}

absl::StatusOr<Descriptor> HubRepo::LockBlob(const HubFile& file) const {
  const fs::path path = locks_ / absl::StrCat(file.digest, ".lock");
  ASSIGN_OR_RETURN(Descriptor lock, OpenLock(path));
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) == 0) return lock;
  if (errno != EWOULDBLOCK) return FileError(path, "cannot be locked", errno);
  return absl::UnavailableError(absl::StrCat(file.path, ": another program downloads it (it holds ",
                                             path.string(),
                                             "); wait until it has ended, and run this again"));
}

fs::path HubRepo::PartPath(const HubFile& file) const {
  return blobs_ / absl::StrCat(file.digest, ".incomplete");
}

fs::path HubRepo::SnapshotPath(const std::string& commit) const {
  return repo_ / "snapshots" / commit;
}

bool HubRepo::HasBlob(const HubFile& file) const {
  std::error_code error;
  const auto size = fs::file_size(BlobPath(file), error);
  if (error) return false;
  if (size == static_cast<uintmax_t>(file.size)) return true;
  fs::remove(BlobPath(file), error);
  return false;
}

int64_t HubRepo::PartBytes(const HubFile& file) const {
  std::error_code error;
  const auto size = fs::file_size(PartPath(file), error);
  return error ? 0 : static_cast<int64_t>(size);
}

int64_t HubRepo::FreeBytes() const {
  struct statvfs about {};
  if (::statvfs(blobs_.c_str(), &about) != 0) return INT64_MAX;  // writing will say
  return static_cast<int64_t>(about.f_bavail) * static_cast<int64_t>(about.f_frsize);
}

absl::Status HubRepo::Link(const std::string& commit, const HubFile& file) const {
  const fs::path link = SnapshotPath(commit) / file.path;
  RETURN_IF_ERROR(MakeFolder(link.parent_path()));
  std::error_code error;
  const fs::path target = fs::relative(blobs_, link.parent_path(), error) / file.digest;
  if (error) return FileError(link, "cannot be linked", error.value());
  if (fs::read_symlink(link, error) == target) return absl::OkStatus();
  const fs::path draft = absl::StrCat(link.string(), ".pull");
  fs::remove(draft, error);
  fs::create_symlink(target, draft, error);
  if (error) return FileError(draft, "cannot be linked", error.value());
  return MoveInPlace(draft, link);
}

absl::Status HubRepo::SetRef(const std::string& revision, const std::string& commit) const {
  if (revision == commit) return absl::OkStatus();
  const fs::path ref = repo_ / "refs" / revision;
  RETURN_IF_ERROR(MakeFolder(ref.parent_path()));
  const fs::path draft = absl::StrCat(ref.string(), ".pull");
  const Descriptor file(::open(draft.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (!file.is_open()) return FileError(draft, "cannot be written", errno);
  const ssize_t n = ::write(file.get(), commit.data(), commit.size());
  if (n != static_cast<ssize_t>(commit.size()))
    return FileError(draft, "cannot be written", n < 0 ? errno : ENOSPC);
  return MoveInPlace(draft, ref);
}

}  // namespace baton
