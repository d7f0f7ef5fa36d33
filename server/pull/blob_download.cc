#include "server/pull/blob_download.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace baton {
namespace {

constexpr size_t kReadBytes = size_t{4} << 20;

}  // namespace

absl::StatusOr<std::unique_ptr<BlobDownload>> BlobDownload::Open(const HubRepo* repo,
                                                                 HubFile file) {
  std::unique_ptr<BlobDownload> blob(new BlobDownload(repo, std::move(file)));
  ASSIGN_OR_RETURN(blob->lock_, repo->LockBlob(blob->file_));
  const auto path = repo->PartPath(blob->file_);
  blob->part_ = Descriptor(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
  if (!blob->part_.is_open()) return FileError(path, "cannot be written", errno);
  RETURN_IF_ERROR(blob->ReadPart());
  return blob;
}

absl::Status BlobDownload::ReadPart() {
  std::vector<char> bytes(kReadBytes);
  while (have_ <= file_.size) {
    const ssize_t n = ::pread(part_.get(), bytes.data(), bytes.size(), have_);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return FileError(repo_.PartPath(file_), "cannot be read", errno);
    if (n == 0) break;
    digest_.Take({bytes.data(), static_cast<size_t>(n)});
    have_ += n;
  }
  if (have_ > file_.size) return Restart();  // of another program, or damaged
  is_resumed_ = have_ > 0;
  return absl::OkStatus();
}

absl::Status BlobDownload::Restart() {
  if (::ftruncate(part_.get(), 0) != 0)
    return FileError(repo_.PartPath(file_), "cannot be cut", errno);
  digest_ = FileDigest(file_.kind, file_.size);
  have_ = 0;
  is_resumed_ = false;
  return absl::OkStatus();
}

absl::Status BlobDownload::Begin(int64_t from) {
  if (from == have_) {
    is_resumed_ |= have_ > 0;
    return absl::OkStatus();
  }
  if (from == 0) return Restart();  // the host does not answer ranges
  return absl::DataLossError(
      absl::StrFormat("%s: asked for the bytes from %d on, the hub sent those from %d; a proxy "
                      "before it may be broken: give another --hub",
                      file_.path, have_, from));
}

absl::Status BlobDownload::Take(std::string_view bytes) {
  if (have_ + static_cast<int64_t>(bytes.size()) > file_.size) {
    RETURN_IF_ERROR(Restart());
    return absl::DataLossError(absl::StrFormat(
        "%s: more bytes came than the %d that the hub tells; it may have changed: run this again",
        file_.path, file_.size));
  }
  digest_.Take(bytes);
  while (!bytes.empty()) {
    const ssize_t n = ::pwrite(part_.get(), bytes.data(), bytes.size(), have_);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return FileError(repo_.PartPath(file_), "cannot be written", errno);
    have_ += n;
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return absl::OkStatus();
}

absl::Status BlobDownload::Finish() {
  const std::string digest = digest_.Hex();
  if (digest != file_.digest) {
    RETURN_IF_ERROR(Restart());
    return absl::DataLossError(absl::StrCat(
        file_.path, ": its ", file_.kind == DigestKind::kSha256 ? "SHA-256" : "git blob id", " is ",
        digest, ", the hub tells ", file_.digest,
        "; what came is thrown away: run this again, and if it repeats, look for a proxy or a "
        "mirror that changes files, and give another --hub"));
  }
  const auto path = repo_.PartPath(file_);
  if (::fdatasync(part_.get()) != 0) return FileError(path, "cannot be written", errno);
  if (::rename(path.c_str(), repo_.BlobPath(file_).c_str()) != 0)
    return FileError(path, "cannot be renamed", errno);
  return absl::OkStatus();
}

}  // namespace baton
