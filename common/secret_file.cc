#include "common/secret_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/descriptor.h"

namespace baton {
namespace {

absl::Status NotReadable(const std::string& path) {
  return absl::NotFoundError(absl::StrCat(path, ": cannot be read (", std::strerror(errno),
                                          "): give the path of a file that this user may read"));
}

}  // namespace

absl::Status CheckSecretMode(const std::string& path, mode_t mode, uid_t owner, uid_t us) {
  if (owner != us && owner != 0) {
    return absl::PermissionDeniedError(
        absl::StrFormat("%s: belongs to user %d; it must be ours (user %d) or root's: chown %d %s",
                        path, owner, us, us, path));
  }
  if ((mode & (S_IWGRP | S_IWOTH | S_IROTH)) != 0) {
    return absl::PermissionDeniedError(absl::StrFormat(
        "%s: its mode %04o lets others %s it: chmod 600 %s (640 for a group that reads it; of a "
        "Secret of Kubernetes set defaultMode 0440)",
        path, mode & 07777u, (mode & (S_IWGRP | S_IWOTH)) != 0 ? "write" : "read", path));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReadSecretFile(const std::string& path, size_t max_bytes) {
  // Without O_NONBLOCK opening a pipe would wait for its writer.
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat about {};
  if (!file.is_open() || ::fstat(file.get(), &about) != 0) return NotReadable(path);
  if (!S_ISREG(about.st_mode))
    return absl::InvalidArgumentError(absl::StrCat(path, ": is no file; give the path of one"));
  RETURN_IF_ERROR(CheckSecretMode(path, about.st_mode, about.st_uid, ::geteuid()));
  std::string text;
  char chunk[16384];
  ssize_t n = 0;
  while (text.size() <= max_bytes && (n = ::read(file.get(), chunk, sizeof chunk)) != 0) {
    if (n < 0 && errno != EINTR) return NotReadable(path);
    if (n > 0) text.append(chunk, static_cast<size_t>(n));
  }
  if (text.size() <= max_bytes) return text;
  return absl::InvalidArgumentError(absl::StrCat(path, ": is longer than the ", max_bytes,
                                                 " bytes such a file may have; shorten it"));
}

}  // namespace baton
