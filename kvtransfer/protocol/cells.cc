#include "kvtransfer/protocol/cells.h"

#include <algorithm>
#include <cstring>

#include "common/check.h"
#include "kvtransfer/protocol/crc32c.h"

namespace baton {

bool Overlap(const CellRect& a, const CellRect& b) {
  const auto meet = [](int32_t from_a, int32_t n_a, int32_t from_b, int32_t n_b) {
    return from_a < from_b + n_b && from_b < from_a + n_a;
  };
  return meet(a.plane, a.n_planes, b.plane, b.n_planes) &&
         meet(a.first_page, a.n_pages, b.first_page, b.n_pages);
}

int64_t PlaneBytes(const PoolView& pool, int32_t plane, int32_t n_planes) {
  int64_t bytes = 0;
  for (int32_t i = plane; i < plane + n_planes; ++i) bytes += pool.planes[i].bytes;
  return bytes;
}

int64_t RectBytes(const PoolView& pool, const CellRect& rect) {
  return PlaneBytes(pool, rect.plane, rect.n_planes) * rect.n_pages;
}

int64_t LargestPlane(const PoolView& pool) {
  int64_t largest = 0;
  for (const PoolPlane& plane : pool.planes) largest = std::max(largest, plane.bytes);
  return largest;
}

std::byte* CellAt(const PoolView& pool, int32_t page_id, int32_t plane) {
  BATON_DCHECK(page_id >= 0 && page_id < pool.n_pages);
  if (pool.frames == nullptr)
    return pool.base + page_id * pool.page_stride + pool.planes[plane].offset;
  const int32_t frame = pool.frames[page_id * static_cast<int64_t>(pool.planes.size()) + plane];
  BATON_DCHECK(frame >= 0);
  return pool.base + frame * pool.frame_bytes;
}

std::byte* DirectExtent(const PoolView& pool, const CellRect& rect,
                        std::span<const int32_t> page_ids) {
  if (rect.n_pages != 1) return nullptr;
  for (int32_t i = rect.plane; i + 1 < rect.plane + rect.n_planes; ++i) {
    if (CellAt(pool, page_ids[0], i) + pool.planes[i].bytes != CellAt(pool, page_ids[0], i + 1))
      return nullptr;
  }
  return CellAt(pool, page_ids[0], rect.plane);
}

uint32_t GatherCells(const PoolView& pool, const CellRect& rect, std::span<const int32_t> page_ids,
                     std::byte* chunk, uint32_t crc) {
  for (const int32_t page_id : page_ids) {
    for (int32_t plane = rect.plane; plane < rect.plane + rect.n_planes; ++plane) {
      const auto n_bytes = static_cast<size_t>(pool.planes[plane].bytes);
      std::memcpy(chunk, CellAt(pool, page_id, plane), n_bytes);
      crc = ExtendCrc32c(crc, chunk, n_bytes);  // of the copy: the sent bytes are the summed bytes
      chunk += n_bytes;
    }
  }
  return crc;
}

void ScatterCells(const PoolView& pool, const CellRect& rect, std::span<const int32_t> page_ids,
                  const std::byte* chunk) {
  for (const int32_t page_id : page_ids) {
    for (int32_t plane = rect.plane; plane < rect.plane + rect.n_planes; ++plane) {
      const auto n_bytes = static_cast<size_t>(pool.planes[plane].bytes);
      std::memcpy(CellAt(pool, page_id, plane), chunk, n_bytes);
      chunk += n_bytes;
    }
  }
}

void ChunkCutter::SkipTo(const CellPlace& place) {
  BATON_CHECK(cells_.n_planes == 1);
  const auto n_pages = static_cast<int32_t>(cells_.pages.size());
  if (cells_.plane < place.plane) page_ = n_pages;
  if (cells_.plane == place.plane)
    page_ = std::clamp(place.page - cells_.first_page, page_, n_pages);
}

void ChunkCutter::SkipPages(int32_t page) {
  const auto n = std::clamp<int64_t>(page - cells_.first_page, 0, std::ssize(cells_.pages));
  if (n == 0) return;
  BATON_CHECK(page_ == 0 && plane_ == 0);
  cells_.first_page += static_cast<int32_t>(n);
  cells_.pages.erase(cells_.pages.begin(), cells_.pages.begin() + n);
}

std::optional<ChunkCutter::Cut> ChunkCutter::Next(const PoolView& pool, int64_t chunk_bytes) {
  if (finished()) return std::nullopt;
  const auto n_pages = static_cast<int32_t>(cells_.pages.size());
  Cut cut;
  cut.after = cells_.after;
  cut.rect.plane = cells_.plane + plane_;
  cut.rect.first_page = cells_.first_page + page_;
  const int32_t begin = page_;
  const int64_t row_bytes = PlaneBytes(pool, cells_.plane, cells_.n_planes);
  if (row_bytes <= chunk_bytes) {
    cut.rect.n_planes = cells_.n_planes;
    cut.rect.n_pages = static_cast<int32_t>(
        std::min<int64_t>(n_pages - page_, chunk_bytes / std::max<int64_t>(row_bytes, 1)));
    page_ += cut.rect.n_pages;
  } else {
    int64_t bytes = 0;
    while (plane_ < cells_.n_planes) {
      bytes += pool.planes[cells_.plane + plane_].bytes;
      if (bytes > chunk_bytes) break;
      ++plane_;
      ++cut.rect.n_planes;
    }
    BATON_CHECK(cut.rect.n_planes > 0);
    cut.rect.n_pages = 1;
    if (plane_ == cells_.n_planes) {
      plane_ = 0;
      ++page_;
    }
  }
  cut.page_ids.assign(cells_.pages.begin() + begin,
                      cells_.pages.begin() + begin + cut.rect.n_pages);
  return cut;
}

}  // namespace baton
