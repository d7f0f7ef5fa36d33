// Copies cells between the pool and slots of the link thread, by operations that may end later. The
// pool is memory of this process (HostCopier), or of a device, which copies on a stream of its own.
//
// Contract, the same for every copier:
//  - No operation touches a cell before the engine has reached the fence `after` of its cells.
//  - An operation that does not end on return reads its source and writes its target until its
//    event, and never afterwards. Events come from Poll, in any order; nobody waits for one.
//  - Nothing takes an operation back: pages and slot are the copier's until the event, however the
//    handoff ends. Where none can come any more (a device is lost), they stay so.
//  - An operation reads `page_ids`, and the place of the pages, before it returns.
// Operations are numbered by the caller: unique among gathers, and among scatters, under way.
// One thread owns a copier, the link's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <variant>
#include <vector>

#include "kvtransfer/protocol/cells.h"
#include "kvtransfer/protocol/link.h"

namespace baton {

// Cells of the pool, and the point of the engine's timeline from which on they may be read, or
// written (transfer_events.h).
struct Cells {
  CellRect rect;
  std::span<const int32_t> page_ids;  // (rect.n_pages)
  uint64_t after = 0;
};

struct CellsGathered {  // the cells are in the slot
  OperationId operation = 0;
};
struct CellsScattered {  // the slot's bytes are in the cells
  OperationId operation = 0;
};
using CopyEvent = std::variant<CellsGathered, CellsScattered>;

class CellCopier {
 public:
  // Returns when no operation reads or writes any memory.
  virtual ~CellCopier() = default;

  // Memory for slots, aligned to 4 KiB, for as long as the copier lives. CHECKs that there is some.
  virtual std::byte* NewSlots(int64_t bytes) = 0;
  // Registers at the link what InPlace names. Called once, before the first connection.
  virtual void RegisterPool(Link* link) = 0;
  // Place where the link itself reads or writes the cells, in chunk order; nullptr: they go through
  // a slot.
  virtual std::byte* InPlace(const Cells& cells) = 0;

  // Copies the cells into the slot (RectBytes). True: done, and *crc is extended by these bytes
  // (crc32c.h); false: CellsGathered follows, and *crc stays.
  virtual bool Gather(OperationId operation, const Cells& cells, std::byte* slot,
                      uint32_t* crc) = 0;
  // Copies the slot to the cells. True: done; false: CellsScattered follows.
  virtual bool Scatter(OperationId operation, const Cells& cells, const std::byte* slot) = 0;
  // Moves the events since the last call to the end of *events; false: there were none.
  virtual bool Poll(std::vector<CopyEvent>* events) = 0;
};

// Called once, on the thread that will own the copier. The copier may call `wake` on any thread
// when an event has come, until it is destroyed.
using CopierMaker = std::function<std::unique_ptr<CellCopier>(std::function<void()> wake)>;

}  // namespace baton
