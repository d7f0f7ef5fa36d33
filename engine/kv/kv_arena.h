// The bytes behind a KvPool. Zeroing and copying of pages are submissions to the backend that made
// the arena (Backend::NewArena), in one order with its steps: a page may be given to another owner
// while an earlier step still writes it. This class has memory of the host and does both at once.
// Engine thread; the link thread reads and writes pages that were lent to it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "common/status.h"

namespace baton {

class KvArena {
 public:
  // Maps anonymous, pre-faulted memory (huge pages where the system gives them). ResourceExhausted:
  // not enough memory.
  static absl::StatusOr<std::unique_ptr<KvArena>> Map(int64_t bytes);
  virtual ~KvArena();
  KvArena(const KvArena&) = delete;
  KvArena& operator=(const KvArena&) = delete;

  std::byte* base() const { return base_; }
  // n_bytes from `at` on; both ranges of a copy lie in the arena.
  virtual void Zero(std::byte* at, int64_t n_bytes);
  virtual void Copy(std::byte* to, const std::byte* from, int64_t n_bytes);

 protected:
  // Takes over what `mapped` maps.
  explicit KvArena(std::unique_ptr<KvArena> mapped);
  // Memory that somebody else owns, until this object is gone.
  explicit KvArena(std::byte* base) : base_(base) {}

 private:
  KvArena(std::byte* base, int64_t bytes) : base_(base), bytes_(bytes) {}

  std::byte* base_ = nullptr;
  int64_t bytes_ = 0;  // to unmap
};

}  // namespace baton
