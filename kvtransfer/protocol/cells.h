// Rectangles of cells and the place of their bytes: the geometry of the pool as this room sees it.
// A chunk carries one rectangle: page after page, inside a page plane after plane. Functions: any
// thread, pure but for the bytes they copy; ChunkCutter: link thread. Rectangles lie in the pool's
// planes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "kvtransfer/protocol/transfer_events.h"

namespace baton {

// Planes [plane, plane + n_planes) of a handoff's pages [first_page, first_page + n_pages).
struct CellRect {
  int32_t plane = 0, n_planes = 0, first_page = 0, n_pages = 0;
  bool operator==(const CellRect&) const = default;
};

// One cell of a handoff. The order is that in which the cells of an inflow are sent and reported:
// plane after plane, inside a plane page after page.
struct CellPlace {
  int32_t plane = 0, page = 0;
  auto operator<=>(const CellPlace&) const = default;
};

// True if a cell lies in both rectangles.
bool Overlap(const CellRect& a, const CellRect& b);

// Bytes of planes [plane, plane + n_planes) of one page.
int64_t PlaneBytes(const PoolView& pool, int32_t plane, int32_t n_planes);
int64_t RectBytes(const PoolView& pool, const CellRect& rect);
// Bytes of the largest plane: the minimum of chunk_bytes.
int64_t LargestPlane(const PoolView& pool);

// Address of one cell.
std::byte* CellAt(const PoolView& pool, int32_t page_id, int32_t plane);

// Start of the rectangle's bytes in the pool, if they are contiguous and in chunk order, so that
// they can travel without a copy; nullptr otherwise. page_ids: (rect.n_pages).
std::byte* DirectExtent(const PoolView& pool, const CellRect& rect,
                        std::span<const int32_t> page_ids);
// Copies the rectangle into `chunk` (RectBytes) and returns `crc` extended with these bytes
// (crc32c.h), in one pass over memory. page_ids: (rect.n_pages), here and below.
uint32_t GatherCells(const PoolView& pool, const CellRect& rect, std::span<const int32_t> page_ids,
                     std::byte* chunk, uint32_t crc);
// Copies a chunk's bytes to the rectangle's cells.
void ScatterCells(const PoolView& pool, const CellRect& rect, std::span<const int32_t> page_ids,
                  const std::byte* chunk);

// Cuts the cells of one SendCells into chunks of at most `chunk_bytes`, in order: as many whole
// rows of planes as fit, or, where the planes of one page do not fit, page by page as many as do.
class ChunkCutter {
 public:
  explicit ChunkCutter(SendCells cells) : cells_(std::move(cells)) {}

  struct Cut {
    CellRect rect;
    std::vector<int32_t> page_ids;  // (rect.n_pages)
    uint64_t after = 0;
  };
  // nullopt: all cells are cut. CHECKs that no plane is longer than chunk_bytes.
  std::optional<Cut> Next(const PoolView& pool, int64_t chunk_bytes);
  // Next cell to cut.
  CellPlace place() const { return {cells_.plane + plane_, cells_.first_page + page_}; }
  uint64_t after() const { return cells_.after; }
  // Leaves out the cells before `place`. CHECKs that the cells are of one plane.
  void SkipTo(const CellPlace& place);
  // Leaves out the pages before `page`. CHECKs that nothing of them is cut.
  void SkipPages(int32_t page);
  bool finished() const { return cells_.n_planes == 0 || size_t(page_) == cells_.pages.size(); }

 private:
  SendCells cells_;
  int32_t page_ = 0, plane_ = 0;  // the first cell not cut yet, counted inside cells_
};

}  // namespace baton
