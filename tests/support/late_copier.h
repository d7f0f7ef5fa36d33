// A copier that copies later, as a device does: every operation is queued, and begun and executed
// when the test says so, in an order that the test draws among those whose fence is reached. Says
// what a device would copy wrongly, also where nothing came of it: a slot that two operations have,
// a source that changes under a copy, a target that another writes meanwhile. Until an operation is
// executed its target holds poison. The pool has memory of the test.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/check.h"
#include "kvtransfer/protocol/cell_copier.h"
#include "kvtransfer/protocol/crc32c.h"

namespace baton {

class LateCopier final : public CellCopier {
 public:
  struct Ports {
    // True if the engine has reached this fence. Null: it always has.
    std::function<bool(uint64_t)> reached = nullptr;
    // Told what is wrong; it does not return to an operation that is under way.
    std::function<void(const std::string&)> complain;
    // Called when a scatter is submitted, and before it writes the pages. May be null.
    std::function<void(OperationId, const std::byte* at, int64_t n_bytes)> submitted = nullptr;
    std::function<void(OperationId)> writes = nullptr;
  };
  LateCopier(const PoolView& pool, Ports ports) : pool_(pool), ports_(std::move(ports)) {}

  // --- for the test
  // Begins or executes the pick-th of the operations that can go on. False: there is none.
  bool Step(uint64_t pick) {
    std::vector<size_t> ready;
    for (size_t i = 0; i < under_way_.size(); ++i)
      if (IsReached(under_way_[i].after)) ready.push_back(i);
    if (ready.empty()) return false;
    const size_t i = ready[pick % ready.size()];
    if (!under_way_[i].begun) {
      Begin(&under_way_[i]);
    } else {
      const Operation operation = std::move(under_way_[i]);
      under_way_.erase(under_way_.begin() + static_cast<int64_t>(i));
      Execute(operation);
    }
    return true;
  }
  bool can_step() const {
    return std::any_of(under_way_.begin(), under_way_.end(),
                       [this](const Operation& operation) { return IsReached(operation.after); });
  }
  bool has_events() const { return !events_.empty(); }
  size_t n_under_way() const { return under_way_.size(); }
  size_t max_under_way() const { return max_under_way_; }  // gathers, or scatters
  uint64_t n_waited() const { return n_waited_; }  // operations submitted before their fence

  // --- CellCopier
  std::byte* NewSlots(int64_t bytes) override {
    slots_.emplace_back(static_cast<std::byte*>(std::aligned_alloc(4096, size_t(bytes))),
                        &std::free);
    return slots_.back().get();
  }
  void RegisterPool(Link*) override {}
  std::byte* InPlace(const Cells&) override { return nullptr; }
  bool Gather(OperationId id, const Cells& cells, std::byte* slot, uint32_t*) override {
    Submit({.is_gather = true, .id = id, .slot = slot}, cells);
    std::memset(slot, kPoison, size_t(under_way_.back().n_bytes));
    return false;
  }
  bool Scatter(OperationId id, const Cells& cells, const std::byte* slot) override {
    Submit({.is_gather = false, .id = id, .slot = const_cast<std::byte*>(slot)}, cells);
    Operation& operation = under_way_.back();
    operation.source = SumOfSlot(operation);
    if (ports_.submitted)
      for (const Cell& cell : operation.cells) ports_.submitted(id, cell.at, cell.n_bytes);
    return false;
  }
  bool Poll(std::vector<CopyEvent>* events) override {
    const bool any = !events_.empty();
    events->insert(events->end(), events_.begin(), events_.end());
    events_.clear();
    return any;
  }

 private:
  static constexpr int kPoison = 0xa5;
  struct Cell {
    std::byte* at;
    int64_t n_bytes;
  };
  struct Operation {
    bool is_gather;
    OperationId id;
    std::byte* slot;
    std::vector<Cell> cells{};
    int64_t n_bytes = 0;
    uint64_t after = 0;
    bool begun = false;
    uint32_t source = 0;  // its checksum
  };

  bool IsReached(uint64_t after) const {
    return after == 0 || !ports_.reached || ports_.reached(after);
  }
  void Submit(Operation operation, const Cells& cells) {
    operation.after = cells.after;
    for (const int32_t page : cells.page_ids)
      for (int32_t i = 0; i < cells.rect.n_planes; ++i)
        operation.cells.push_back({CellAt(pool_, page, cells.rect.plane + i),
                                   PlaneBytes(pool_, cells.rect.plane + i, 1)});
    for (const Cell& cell : operation.cells) operation.n_bytes += cell.n_bytes;
    size_t n_alike = 1;
    for (const Operation& other : under_way_) {
      n_alike += other.is_gather == operation.is_gather;
      if (operation.slot < other.slot + other.n_bytes &&
          other.slot < operation.slot + operation.n_bytes)
        ports_.complain("two copies under way have one slot");
    }
    max_under_way_ = std::max(max_under_way_, n_alike);
    n_waited_ += !IsReached(operation.after);
    under_way_.push_back(std::move(operation));
  }
  void Begin(Operation* operation) {
    operation->begun = true;
    if (operation->is_gather) {
      operation->source = SumOfCells(*operation);
    } else {
      for (const Cell& cell : operation->cells) std::memset(cell.at, kPoison, size_t(cell.n_bytes));
    }
  }
  void Execute(const Operation& operation) {
    std::byte* slot = operation.slot;
    if (operation.is_gather) {
      if (SumOfCells(operation) != operation.source)
        ports_.complain("cells change while they are gathered");
      if (!IsPoison({slot, operation.n_bytes}))
        ports_.complain("a slot is written while cells are gathered in it");
      for (const Cell& cell : operation.cells) {
        std::memcpy(slot, cell.at, size_t(cell.n_bytes));
        slot += cell.n_bytes;
      }
      events_.push_back(CellsGathered{operation.id});
      return;
    }
    if (SumOfSlot(operation) != operation.source)
      ports_.complain("a slot changes while it is scattered");
    if (ports_.writes) ports_.writes(operation.id);
    for (const Cell& cell : operation.cells) {
      if (!IsPoison(cell)) ports_.complain("cells are written while a slot is scattered to them");
      std::memcpy(cell.at, slot, size_t(cell.n_bytes));
      slot += cell.n_bytes;
    }
    events_.push_back(CellsScattered{operation.id});
  }
  static bool IsPoison(const Cell& memory) {
    return std::all_of(memory.at, memory.at + memory.n_bytes,
                       [](std::byte byte) { return byte == std::byte{kPoison}; });
  }
  static uint32_t SumOfCells(const Operation& operation) {
    uint32_t crc = 0;
    for (const Cell& cell : operation.cells) crc = ExtendCrc32c(crc, cell.at, size_t(cell.n_bytes));
    return crc;
  }
  static uint32_t SumOfSlot(const Operation& operation) {
    return ExtendCrc32c(0, operation.slot, size_t(operation.n_bytes));
  }

  const PoolView pool_;
  const Ports ports_;
  std::vector<std::unique_ptr<std::byte, decltype(&std::free)>> slots_;
  std::vector<Operation> under_way_;
  std::vector<CopyEvent> events_;
  size_t max_under_way_ = 0;
  uint64_t n_waited_ = 0;
};

}  // namespace baton
