// CellCopier of a pool in memory of this process, whose engine computes on return: every operation
// is done on return, and where the bytes of a chunk lie in one piece, the link reads and writes the
// pool itself. Link thread.
#pragma once

#include <cstdlib>
#include <memory>
#include <vector>

#include "common/check.h"
#include "kvtransfer/protocol/cell_copier.h"

namespace baton {

class HostCopier final : public CellCopier {
 public:
  explicit HostCopier(const PoolView& pool) : pool_(pool) {}

  std::byte* NewSlots(int64_t bytes) override {
    slots_.emplace_back(
        static_cast<std::byte*>(std::aligned_alloc(kAlign, static_cast<size_t>(bytes))),
        &std::free);
    BATON_CHECK(slots_.back() != nullptr);
    return slots_.back().get();
  }
  void RegisterPool(Link* link) override {
    link->Register(pool_.base,
                   pool_.arena_bytes > 0 ? pool_.arena_bytes : pool_.page_stride * pool_.n_pages);
  }
  std::byte* InPlace(const Cells& cells) override {
    BATON_CHECK(cells.after == 0);
    return DirectExtent(pool_, cells.rect, cells.page_ids);
  }
  bool Gather(OperationId, const Cells& cells, std::byte* slot, uint32_t* crc) override {
    *crc = GatherCells(pool_, cells.rect, cells.page_ids, slot, *crc);
    return true;
  }
  bool Scatter(OperationId, const Cells& cells, const std::byte* slot) override {
    ScatterCells(pool_, cells.rect, cells.page_ids, slot);
    return true;
  }
  bool Poll(std::vector<CopyEvent>*) override { return false; }

 private:
  static constexpr size_t kAlign = 4096;
  const PoolView pool_;
  std::vector<std::unique_ptr<std::byte, decltype(&std::free)>> slots_;
};

}  // namespace baton
