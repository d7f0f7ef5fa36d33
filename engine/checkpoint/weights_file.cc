#include "engine/checkpoint/weights_file.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/cgroup.h"
#include "common/log.h"
#include "engine/checkpoint/mapped_file.h"

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

constexpr char kEnding[] = ".btnw";  // of the files' names

CacheOptions Named(CacheOptions options) {
  options.ending = kEnding;
  return options;
}

}  // namespace

WeightsFile::WeightsFile(std::vector<WeightsEntry> entries, uint64_t key)
    : entries_(std::move(entries)), key_(key), name_(absl::StrFormat("%016x%s", key, kEnding)) {
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
  if (!BringIn(data_, sizeof(Header) + entries_.size() * sizeof(Row))) return false;
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
    if (!BringIn(data_ + expected.offset, static_cast<size_t>(expected.bytes))) {
      is_intact = false;
      return;
    }
    expected.checksum = XXH3_64bits(data_ + expected.offset, static_cast<size_t>(expected.bytes));
    if (std::memcmp(&row, &expected, sizeof(row)) != 0) is_intact = false;
  });
  return is_intact;
}

bool WeightsFile::MapExisting(const CacheFolder& folder, ComputePool& pool) {
  const absl::StatusOr<Descriptor> file = folder.Find(name_);
  if (absl::IsNotFound(file.status())) return false;
  const auto refuse = [&](std::string_view why) {
    LogWarn("packed weights %s; they are built again", why);
    return false;
  };
  struct stat facts {};
  if (!file.ok()) return refuse(std::string(file.status().message()));
  if (::fstat(file->get(), &facts) != 0 || facts.st_size != bytes_)
    return refuse(folder.PathOf(name_) + " have the wrong size");
  void* data = ::mmap(nullptr, static_cast<size_t>(bytes_), PROT_READ, MAP_SHARED, file->get(), 0);
  if (data == MAP_FAILED) return false;
  data_ = static_cast<std::byte*>(data);
  is_shared_ = true;
  if (Verify(pool)) return true;
  Unmap();
  is_shared_ = false;
  return refuse(folder.PathOf(name_) + " are damaged");
}

absl::Status WeightsFile::BuildFile(CacheFolder::Draft* draft, const Fill& fill,
                                    ComputePool& pool) {
  RETURN_IF_ERROR(draft->Reserve(bytes_));
  void* data = ::mmap(nullptr, static_cast<size_t>(bytes_), PROT_READ | PROT_WRITE, MAP_SHARED,
                      draft->get(), 0);
  if (data == MAP_FAILED)
    return absl::ResourceExhaustedError(
        absl::StrCat("no memory to map ", bytes_, " bytes: ", std::strerror(errno)));
  data_ = static_cast<std::byte*>(data);
  const absl::Status filled = FillAll(fill, pool);
  Unmap();
  RETURN_IF_ERROR(filled);
  return draft->Commit();
}

absl::Status WeightsFile::LoadShared(const CacheOptions& cache, const Fill& fill,
                                     ComputePool& pool) {
  if (cache.path.empty()) return absl::FailedPreconditionError("model.weight_cache is not set");
  ASSIGN_OR_RETURN(const CacheFolder folder, CacheFolder::Open(Named(cache)));
  if (MapExisting(folder, pool)) return absl::OkStatus();
  ASSIGN_OR_RETURN(CacheFolder::Draft draft, folder.Begin(name_));
  // Another worker may have built it while this one waited.
  if (MapExisting(folder, pool)) return absl::OkStatus();
  RETURN_IF_ERROR(BuildFile(&draft, fill, pool));
  if (MapExisting(folder, pool)) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat(folder.PathOf(name_), ": what was written reads back differently"));
}

// The kernel promises memory that it does not have, and kills a process when it is used. why: there
// is no shared file.
absl::Status WeightsFile::CheckMemory(int n_processes, std::string_view why) const {
  const int64_t machine = int64_t{::sysconf(_SC_PHYS_PAGES)} * ::sysconf(_SC_PAGESIZE);
  const int64_t all = std::min(machine, OwnMemoryLimit().value_or(machine));
  const int64_t now = AvailableMemory().value_or(all);
  if (bytes_ <= now && bytes_ <= all / n_processes) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrFormat(
      "%d bytes of packed weights, a copy in each of %d processes, do not fit into the memory (%d "
      "bytes, %d of them available), and they share no file: %s. Set model.weight_cache to a "
      "folder "
      "of our own with room, start fewer workers, or use a smaller model or model.dtype",
      bytes_, n_processes, all, now, why));
}

absl::Status WeightsFile::BuildPrivate(const Fill& fill, ComputePool& pool) {
  void* data = ::mmap(nullptr, static_cast<size_t>(bytes_), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) {
    return absl::ResourceExhaustedError(
        absl::StrFormat("no memory for %d bytes of weights (%s): raise the limit of address space "
                        "(ulimit -v), or use a smaller model",
                        bytes_, std::strerror(errno)));
  }
  data_ = static_cast<std::byte*>(data);
  ::madvise(data_, static_cast<size_t>(bytes_), MADV_HUGEPAGE);  // a wish
  return FillAll(fill, pool);
}

absl::StatusOr<std::unique_ptr<WeightsFile>> WeightsFile::Load(std::vector<WeightsEntry> entries,
                                                               uint64_t key,
                                                               const CacheOptions& cache,
                                                               ComputePool& pool,
                                                               const Fill& fill) {
  std::unique_ptr<WeightsFile> file(new WeightsFile(std::move(entries), key));
  const absl::Status shared = file->LoadShared(cache, fill, pool);
  if (shared.ok()) return file;
  RETURN_IF_ERROR(file->fill_status_);
  const std::string why(shared.message());
  RETURN_IF_ERROR(file->CheckMemory(cache.n_processes, why));
  if (!cache.path.empty())
    LogWarn("packed weights stay in private memory, one copy per worker: %s", why);
  RETURN_IF_ERROR(file->BuildPrivate(fill, pool));
  return file;
}

}  // namespace baton
