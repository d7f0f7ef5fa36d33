// The file of packed weights that all workers of a host map, so that n workers hold one copy. One
// file per (model, format): <folder>/<key>.btnw = header, table, entries at 4 KiB boundaries,
// each with an XXH3 checksum. The file is a draft of the folder (cache_folder.h) until it is
// complete and on disk; a file that is damaged in any way is built again. Nothing read from the
// file is used as an offset or size: header and table must equal what the caller's entries give.
// Built or mapped by the thread that loads the model, read-only afterwards.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/status.h"
#include "engine/checkpoint/cache_folder.h"
#include "engine/threads/compute_pool.h"

namespace baton {

struct WeightsEntry {
  std::string name;  // "layers.0.qkv"
  int64_t n = 0;     // outputs
  int64_t k = 0;     // inputs; 0 for a vector
  int64_t bytes = 0;
};

class WeightsFile {
 public:
  // Writes every byte of every entry (entry i at data[i]) and returns the model's fingerprint, or
  // the error of the model.
  using Fill = std::function<absl::StatusOr<uint64_t>(std::span<std::byte* const> data)>;

  // Maps the file of `key`, building it first if it is missing or damaged; waits while another
  // process builds it. Without a folder, or with one that cannot be used (one warning), the weights
  // live in private memory. Errors: the error of `fill`; ResourceExhausted: not enough memory for
  // the weights, or for a copy in each process.
  static absl::StatusOr<std::unique_ptr<WeightsFile>> Load(std::vector<WeightsEntry> entries,
                                                           uint64_t key, const CacheOptions& cache,
                                                           ComputePool& pool, const Fill& fill);
  ~WeightsFile();
  WeightsFile(const WeightsFile&) = delete;
  WeightsFile& operator=(const WeightsFile&) = delete;

  // Valid as long as this object; aligned to 4 KiB.
  const std::byte* entry(int index) const { return data_ + offsets_[index]; }
  // Hash that `fill` returned when the weights were built.
  uint64_t fingerprint() const;
  int64_t bytes() const { return bytes_; }       // of the whole file
  bool is_shared() const { return is_shared_; }  // mapped from the cache, not private memory

 private:
  WeightsFile(std::vector<WeightsEntry> entries, uint64_t key);
  void WriteHeader(uint64_t fingerprint, ComputePool& pool);
  bool Verify(ComputePool& pool) const;
  absl::Status FillAll(const Fill& fill, ComputePool& pool);
  bool MapExisting(const CacheFolder& folder, ComputePool& pool);
  absl::Status BuildFile(CacheFolder::Draft* draft, const Fill& fill, ComputePool& pool);
  absl::Status LoadShared(const CacheOptions& cache, const Fill& fill, ComputePool& pool);
  absl::Status CheckMemory(int n_processes, std::string_view why) const;
  absl::Status BuildPrivate(const Fill& fill, ComputePool& pool);
  void Unmap();

  std::vector<WeightsEntry> entries_;
  std::vector<int64_t> offsets_;  // (entries)
  uint64_t key_;
  std::string name_;  // of the file in the folder
  int64_t bytes_ = 0;
  std::byte* data_ = nullptr;
  bool is_shared_ = false;
  absl::Status fill_status_;  // error of the model, not of the cache folder
};

}  // namespace baton
