// A small KV arena for tests: planes of uneven sizes with gaps, and bytes that depend on their
// place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <span>
#include <vector>

#include "common/ids.h"
#include "common/ticket.h"
#include "kvtransfer/protocol/transfer_events.h"

namespace baton {

inline constexpr std::byte kCanary{0xc5};

class TestPool {
 public:
  // gap: unused bytes between planes, so that no two planes are contiguous.
  TestPool(int32_t n_pages, const std::vector<int64_t>& plane_bytes, int64_t gap = 0) {
    int64_t offset = 0;
    for (const int64_t bytes : plane_bytes) {
      view_.planes.push_back({offset, bytes});
      offset += bytes + gap;
    }
    view_.page_stride = offset;
    view_.n_pages = n_pages;
    memory_.resize(static_cast<size_t>(n_pages * offset));
    view_.base = memory_.data();
  }
  TestPool(const TestPool&) = delete;
  TestPool& operator=(const TestPool&) = delete;

  const PoolView& view() const { return view_; }
  int32_t n_planes() const { return static_cast<int32_t>(view_.planes.size()); }

  std::span<std::byte> page(int32_t id) {
    return {view_.base + id * view_.page_stride, static_cast<size_t>(view_.page_stride)};
  }
  std::span<std::byte> cell(int32_t id, int32_t plane) {
    return page(id).subspan(static_cast<size_t>(view_.planes[plane].offset),
                            static_cast<size_t>(view_.planes[plane].bytes));
  }
  // Fills the page with bytes that depend on seed and place.
  void FillPage(int32_t id, uint64_t seed) {
    uint64_t x = seed * 0x9e3779b97f4a7c15u + static_cast<uint64_t>(id) + 1;
    for (std::byte& byte : page(id)) {
      x ^= x << 13, x ^= x >> 7, x ^= x << 17;
      byte = static_cast<std::byte>(x >> 32);
    }
  }
  void FillCanary(int32_t id) { std::memset(page(id).data(), int(kCanary), page(id).size()); }
  bool HasCanary(int32_t id) {
    for (const std::byte byte : page(id))
      if (byte != kCanary) return false;
    return true;
  }

 private:
  PoolView view_;
  std::vector<std::byte> memory_;
};

// Returns whether every plane of both pages is equal.
inline bool SamePage(TestPool& a, int32_t page_a, TestPool& b, int32_t page_b) {
  for (int32_t plane = 0; plane < a.n_planes(); ++plane) {
    const auto cell_a = a.cell(page_a, plane), cell_b = b.cell(page_b, plane);
    if (std::memcmp(cell_a.data(), cell_b.data(), cell_a.size()) != 0) return false;
  }
  return true;
}

inline constexpr Incarnation kTestSource = 1;  // of the tickets below

inline const ClusterKey kTestKey = {1, 2, 3, 4, 5, 6, 7, 8, 9};

inline Ticket MakeTicket(uint64_t n, Incarnation sink, int32_t kv_pages, int32_t promise_pages,
                         Epoch epoch = 1) {
  Ticket ticket{.id = {n, ~n},
                .epoch = epoch,
                .request_id = 1000 + n,
                .source = kTestSource,
                .sink = sink,
                .promise = {n, ~n},
                .kv_pages = kv_pages,
                .promise_pages = promise_pages,
                .n_pages = kv_pages,
                .expires_us = INT64_MAX};
  SignTicket(kTestKey, ticket);
  return ticket;
}

// Returns the same ticket for another source.
inline Ticket From(Incarnation source, Ticket ticket) {
  ticket.source = source;
  SignTicket(kTestKey, ticket);
  return ticket;
}
// Returns the ticket of another source of `last`'s promise: pages [first_page, first_page +
// n_pages).
inline Ticket MakePart(const Ticket& last, uint64_t n, int32_t first_page, int32_t n_pages) {
  Ticket ticket = last;
  ticket.id = {n, ~n};
  ticket.first_page = first_page;
  ticket.n_pages = n_pages;
  SignTicket(kTestKey, ticket);
  return ticket;
}
// Returns the ticket of a promise's last range; others fill the pages before first_page.
inline Ticket MakeMain(uint64_t n, Incarnation sink, int32_t kv_pages, int32_t promise_pages,
                       int32_t first_page, Epoch epoch = 1) {
  Ticket ticket = MakeTicket(n, sink, kv_pages, promise_pages, epoch);
  ticket.first_page = first_page;
  ticket.n_pages = kv_pages - first_page;
  SignTicket(kTestKey, ticket);
  return ticket;
}

// Options of a transfer, and facts about its worker.
struct NodeOptions : TransferOptions {
  TransferFacts facts{};
};
inline NodeOptions TestOptions(Incarnation incarnation) {
  NodeOptions options;
  options.trusted_cidrs = "0.0.0.0/0";  // no MAC
  options.facts = {.incarnation = incarnation,
                   .key = kTestKey,
                   .model_fingerprint = 77,
                   .numerics_id = "cpu-x86",
                   .layout_id = "test"};
  return options;
}

// Refused chunks: for this reason, or all.
inline uint64_t Refused(const TransferCounters& counters, ChunkRefusal why) {
  return counters.refused_chunks[static_cast<size_t>(why)];
}
inline uint64_t Refused(const TransferCounters& counters, PeerRefusal why) {
  return counters.refused_peers[static_cast<size_t>(why)];
}
inline uint64_t Refused(const TransferCounters& counters, TicketRefusal why) {
  return counters.refused_tickets[static_cast<size_t>(why)];
}
inline uint64_t Refused(const TransferCounters& counters) {
  const auto& refused = counters.refused_chunks;
  return std::accumulate(refused.begin(), refused.end(), uint64_t{0});
}

}  // namespace baton
