#include "engine/checkpoint/weights_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/check.h"
#include "common/log.h"

namespace baton {
namespace {

constexpr int64_t kPage = 4096;
constexpr uint64_t kMagic = 0x53544757'4e4f5442;  // "BTONWGTS"
constexpr uint32_t kVersion = 1;
constexpr uint32_t kByteOrder = 0x01020304;

struct Header {
  uint64_t magic;
  uint32_t version;
  uint32_t byte_order;
  uint64_t key;
  uint64_t fingerprint;
  uint64_t n_entries;
  uint64_t file_bytes;
  uint64_t checksum;  // hash of header and table, with 0 in this field
  uint64_t reserved;
};
static_assert(sizeof(Header) == 64);

struct Row {  // a row of the table
  uint64_t name_hash;
  int64_t offset;
  int64_t bytes;
  int64_t n;
  int64_t k;
  uint64_t checksum;
};
static_assert(sizeof(Row) == 48);

absl::Status SystemError(const std::string& path, const char* what) {
  return absl::UnavailableError(absl::StrCat(path, ": cannot ", what, ": ", std::strerror(errno)));
}

// Closes the descriptor at the end of the scope, which also releases the lock of a locked file.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

Row ExpectedRow(const WeightsEntry& entry, int64_t offset) {
  return {XXH64(entry.name.data(), entry.name.size(), 0), offset, entry.bytes, entry.n, entry.k, 0};
}

uint64_t HeaderChecksum(const std::byte* file, size_t n_entries) {
  Header header;
  std::memcpy(&header, file, sizeof(header));
  header.checksum = 0;
  const uint64_t hash = XXH64(&header, sizeof(header), 0);
  return XXH64(file + sizeof(header), n_entries * sizeof(Row), hash);
}

}  // namespace

WeightsFile::WeightsFile(std::vector<WeightsEntry> entries, uint64_t key)
    : entries_(std::move(entries)), key_(key) {
  const auto page_up = [](int64_t n) { return (n + kPage - 1) / kPage * kPage; };
  bytes_ = page_up(static_cast<int64_t>(sizeof(Header) + entries_.size() * sizeof(Row)));
  for (const WeightsEntry& entry : entries_) {
    offsets_.push_back(bytes_);
    bytes_ += page_up(entry.bytes);
  }
}

WeightsFile::~WeightsFile() { Unmap(); }

void WeightsFile::Unmap() {
  if (data_ != nullptr) ::munmap(data_, static_cast<size_t>(bytes_));
  data_ = nullptr;
}

uint64_t WeightsFile::fingerprint() const {
  Header header;
  std::memcpy(&header, data_, sizeof(header));
  return header.fingerprint;
}

absl::Status WeightsFile::FillAll(const Fill& fill, ComputePool& pool) {
  std::vector<std::byte*> places;
  for (const int64_t offset : offsets_) places.push_back(data_ + offset);
  const absl::StatusOr<uint64_t> fingerprint = fill(places);
  fill_status_ = fingerprint.status();
  RETURN_IF_ERROR(fill_status_);
  WriteHeader(*fingerprint, pool);
  return absl::OkStatus();
}

void WeightsFile::WriteHeader(uint64_t fingerprint, ComputePool& pool) {
  pool.For(static_cast<int64_t>(entries_.size()), [&](int64_t i, int) {
    Row row = ExpectedRow(entries_[i], offsets_[i]);
    row.checksum = XXH3_64bits(data_ + row.offset, static_cast<size_t>(row.bytes));
    std::memcpy(data_ + sizeof(Header) + i * sizeof(Row), &row, sizeof(row));
  });
  Header header{kMagic,
                kVersion,
                kByteOrder,
                key_,
                fingerprint,
                entries_.size(),
                static_cast<uint64_t>(bytes_),
                0,
                0};
  std::memcpy(data_, &header, sizeof(header));
  header.checksum = HeaderChecksum(data_, entries_.size());
  std::memcpy(data_, &header, sizeof(header));
}

// Reads the whole file, which also brings it into memory before the first request does.
bool WeightsFile::Verify(ComputePool& pool) const {
  Header header;
  std::memcpy(&header, data_, sizeof(header));
  if (header.magic != kMagic || header.version != kVersion || header.byte_order != kByteOrder ||
      header.key != key_ || header.n_entries != entries_.size() ||
      header.file_bytes != static_cast<uint64_t>(bytes_) ||
      header.checksum != HeaderChecksum(data_, entries_.size())) {
    return false;
  }
  std::atomic<bool> is_intact = true;
  pool.For(static_cast<int64_t>(entries_.size()), [&](int64_t i, int) {
    Row row;
    std::memcpy(&row, data_ + sizeof(Header) + i * sizeof(Row), sizeof(row));
    Row expected = ExpectedRow(entries_[i], offsets_[i]);
    expected.checksum = XXH3_64bits(data_ + expected.offset, static_cast<size_t>(expected.bytes));
    if (std::memcmp(&row, &expected, sizeof(row)) != 0) is_intact = false;
  });
  return is_intact;
}

bool WeightsFile::MapExisting(const std::string& path, ComputePool& pool) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat facts {};
  if (file.get() < 0 || ::fstat(file.get(), &facts) != 0) return false;
  if (!S_ISREG(facts.st_mode) || facts.st_size != bytes_) {
    LogWarn("packed weights %s have the wrong size; they are built again", path);
    return false;
  }
  void* data = ::mmap(nullptr, static_cast<size_t>(bytes_), PROT_READ, MAP_SHARED, file.get(), 0);
  if (data == MAP_FAILED) return false;
  data_ = static_cast<std::byte*>(data);
  ::madvise(data_, static_cast<size_t>(bytes_), MADV_WILLNEED);
  is_shared_ = true;
  if (Verify(pool)) return true;
  LogWarn("packed weights %s are damaged; they are built again", path);
  Unmap();
  is_shared_ = false;
  return false;
}

// The caller holds the lock of `path`.
absl::Status WeightsFile::BuildFile(const std::string& path, const Fill& fill, ComputePool& pool) {
  // One temporary name is enough: only the holder of the lock writes it, and the file of a dead
  // process is overwritten.
  const std::string temporary = path + ".tmp";
  const Descriptor file(::open(temporary.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC,
                               S_IRUSR | S_IWUSR | S_IRGRP | S_IROTH));
  if (file.get() < 0) return SystemError(temporary, "create");
  absl::Cleanup remove = [&temporary] { ::unlink(temporary.c_str()); };
  // Reserves the blocks: a full disk must be an error here, not a SIGBUS while packing.
  if (const int error = ::posix_fallocate(file.get(), 0, bytes_); error != 0) {
    errno = error;
    return SystemError(temporary, "reserve space");
  }
  void* data = ::mmap(nullptr, static_cast<size_t>(bytes_), PROT_READ | PROT_WRITE, MAP_SHARED,
                      file.get(), 0);
  if (data == MAP_FAILED) return SystemError(temporary, "map");
  data_ = static_cast<std::byte*>(data);
  const absl::Status filled = FillAll(fill, pool);
  Unmap();
  RETURN_IF_ERROR(filled);
  if (::fsync(file.get()) != 0) return SystemError(temporary, "sync");
  if (::rename(temporary.c_str(), path.c_str()) != 0) return SystemError(temporary, "rename");
  std::move(remove).Cancel();
  const Descriptor folder(
      ::open(std::filesystem::path(path).parent_path().c_str(), O_RDONLY | O_CLOEXEC));
  if (folder.get() >= 0) ::fsync(folder.get());  // best effort: a lost name is built again
  return absl::OkStatus();
}

absl::Status WeightsFile::LoadShared(const std::string& cache_dir, const Fill& fill,
                                     ComputePool& pool) {
  std::error_code error;
  std::filesystem::create_directories(cache_dir, error);  // a failure shows when the lock is opened
  const std::string path = std::filesystem::path(cache_dir) / absl::StrFormat("%016x.btnw", key_);
  if (::access(path.c_str(), R_OK) == 0 && MapExisting(path, pool)) return absl::OkStatus();
  const std::string lock_path = path + ".lock";
  const Descriptor lock(::open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (lock.get() < 0) return SystemError(lock_path, "create");
  while (::flock(lock.get(), LOCK_EX) != 0) {
    if (errno != EINTR) return SystemError(lock_path, "lock");
  }
  // Another worker may have built it while this one waited.
  if (::access(path.c_str(), R_OK) == 0 && MapExisting(path, pool)) return absl::OkStatus();
  RETURN_IF_ERROR(BuildFile(path, fill, pool));
  if (MapExisting(path, pool)) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(path, ": what was written reads back differently"));
}

absl::Status WeightsFile::BuildPrivate(const Fill& fill, ComputePool& pool) {
  void* data = ::mmap(nullptr, static_cast<size_t>(bytes_), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) {
    return absl::ResourceExhaustedError(
        absl::StrFormat("no memory for %d bytes of weights; use a smaller model", bytes_));
  }
  data_ = static_cast<std::byte*>(data);
  ::madvise(data_, static_cast<size_t>(bytes_), MADV_HUGEPAGE);  // a wish
  return FillAll(fill, pool);
}

absl::StatusOr<std::unique_ptr<WeightsFile>> WeightsFile::Load(std::vector<WeightsEntry> entries,
                                                               uint64_t key,
                                                               const std::string& cache_dir,
                                                               ComputePool& pool,
                                                               const Fill& fill) {
  std::unique_ptr<WeightsFile> file(new WeightsFile(std::move(entries), key));
  if (!cache_dir.empty()) {
    const absl::Status shared = file->LoadShared(cache_dir, fill, pool);
    if (shared.ok()) return file;
    RETURN_IF_ERROR(file->fill_status_);
    LogWarn(
        "packed weights stay in private memory, one copy per worker: %s; set cache_dir to a "
        "writable folder with room",
        std::string(shared.message()));
  }
  RETURN_IF_ERROR(file->BuildPrivate(fill, pool));
  return file;
}

}  // namespace baton
