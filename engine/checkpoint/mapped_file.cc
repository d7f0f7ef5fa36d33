#include "engine/checkpoint/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

namespace baton {
namespace {

absl::Status FileError(const std::string& path, const char* what) {
  const int error = errno;
  const std::string text = absl::StrCat(path, ": ", what, ": ", std::strerror(error));
  return error == ENOENT ? absl::NotFoundError(text) : absl::UnavailableError(text);
}

}  // namespace

// Linux before 5.14 does not know this advice (EINVAL): then touching the pages reads them.
bool BringIn(const std::byte* begin, size_t size) {
  const auto address = reinterpret_cast<uintptr_t>(begin);
  const uintptr_t page = address & ~(static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE)) - 1);
  void* const first = reinterpret_cast<void*>(page);
  return ::madvise(first, size + (address - page), MADV_POPULATE_READ) == 0 || errno == EINVAL;
}

absl::StatusOr<MappedFile> MappedFile::Open(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return FileError(path, "cannot open");
  absl::StatusOr<MappedFile> mapped = Map(descriptor, path);
  ::close(descriptor);
  return mapped;
}

absl::StatusOr<MappedFile> MappedFile::Map(int descriptor, const std::string& path) {
  struct stat facts {};
  if (::fstat(descriptor, &facts) != 0) return FileError(path, "cannot stat");
  if (!S_ISREG(facts.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": not a regular file"));
  }
  MappedFile file;
  file.modified_ns_ = int64_t{facts.st_mtim.tv_sec} * 1'000'000'000 + facts.st_mtim.tv_nsec;
  if (facts.st_size == 0) return file;
  const size_t size = static_cast<size_t>(facts.st_size);
  void* data = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, descriptor, 0);
  if (data == MAP_FAILED) return FileError(path, "cannot map");
  file.data_ = static_cast<const std::byte*>(data);
  file.size_ = size;
  return file;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      modified_ns_(other.modified_ns_) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  modified_ns_ = other.modified_ns_;
  return *this;
}

}  // namespace baton
