// A relay's head and tail on virtual time and one inflow. The tail's engine names pages that it
// holds, compares each plane with the head's when its event arrives, and reuses the pages right
// after the last event, so that a later write is found.
#pragma once

#include <algorithm>
#include <map>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "tests/kvtransfer/core_pair.h"

#include <catch2/catch.hpp>

namespace baton {

struct InflowPair : CorePair {
  static constexpr int32_t kKvPages = 5, kLent = 4, kPlanesInAll = 3;
  static constexpr int64_t kKvBytes = kKvPages * 400;

  explicit InflowPair(uint64_t seed, int64_t chunk_bytes = 260)
      : CorePair(seed, kLent, chunk_bytes), sent(16, kPlanes) {
    for (int32_t page = 0; page < 16; ++page) sent.FillPage(page, 5);  // as CorePair's source
    for (const int32_t page : named) {
      sink.owned.erase(page);
      sink.kept.insert(page);
    }
    cluster.network.set_watch({.posted =
                                   [this](const MemLink* receiver, OperationId operation,
                                          const std::byte* at, uint64_t n_bytes) {
                                     if (receiver == sink.link.get())
                                       posted[operation] = {at, n_bytes};
                                   },
                               .landing = nullptr});
    sink.tap.on_event = [this](LinkEvent* event) {
      if (const auto* landed = std::get_if<ChunkLanded>(event)) posted.erase(landed->operation);
      const auto* message = std::get_if<MessageArrived>(event);
      if (message == nullptr) return;
      const auto decoded = wire::Decode(message->bytes);
      open_seen |= decoded.ok() && std::holds_alternative<wire::Open>(*decoded);
    };
  }

  void Await(Epoch epoch = 1) {
    awaited = true;
    sink.core->Handle(AwaitInflow{ticket.id, epoch, named, n_planes, n_pages}, cluster.now_us);
    Look();
  }
  // Fills the pages that Await names as an earlier inflow would have. Returns the bytes.
  int64_t BringBefore(int32_t planes, int32_t pages) {
    n_planes = planes;
    n_pages = pages;
    int64_t bytes = 0;
    for (int32_t plane = 0; plane <= planes; ++plane)
      for (int32_t i = 0; i < (plane < planes ? kKvPages : pages); ++i) {
        const auto from = sent.cell(i, plane), to = sink.pool.cell(named[size_t(i)], plane);
        std::copy(from.begin(), from.end(), to.begin());
        bytes += static_cast<int64_t>(from.size());
      }
    return bytes;
  }
  void CancelAtSink() {
    sink.core->Handle(CancelHandoff{ticket.id, 1}, cluster.now_us);
    Look();
  }
  void OpenSendCommit() {
    Open(ticket);
    SendAll(ticket);
    Commit(ticket);
  }
  bool Step() {
    const bool moved = cluster.Step();
    Look();
    return moved;
  }
  void RunUntilQuiet() {
    while (Step()) {
    }
  }
  // Runs until both ends are idle, or `limit_us` have passed.
  void RunUntilIdle(int64_t limit_us) {
    const int64_t end_us = cluster.now_us + limit_us;
    for (;; cluster.now_us += TransferCore::kTickUs) {
      RunUntilQuiet();
      bool busy = false;
      for (const auto& node : cluster.nodes) busy |= node->core->busy();
      if (!busy || cluster.now_us >= end_us) return;
    }
  }

  // Handles the events of the tail's engine.
  void Look() {
    for (const TransferEvent& event : std::exchange(sink.events, {})) {
      REQUIRE_FALSE(std::holds_alternative<HandoffArrived>(event));
      REQUIRE_FALSE(std::holds_alternative<HandoffAborted>(event));
      if (const auto* changed = std::get_if<ReceivePoolChanged>(&event))
        REQUIRE(*changed == ReceivePoolChanged{.free_pages = kLent});
      if (const auto* arrived = std::get_if<InflowArrived>(&event)) OnArrived(*arrived);
      if (const auto* ended = std::get_if<InflowFailed>(&event)) OnFailed(*ended);
    }
    if (!sink.PagesAccounted()) FAIL("a page is lost, or one outside the named pages was written");
    if (sink.core->bound_pages() != 0 || sink.core->receive_pool().in_pool() != kLent)
      FAIL("the receive pool was touched");
    if (!over()) return;
    for (const auto& [operation, extent] : posted)
      for (const int32_t page : named) {
        const std::byte* begin = sink.pool.page(page).data();
        if (extent.first + extent.second > begin &&
            extent.first < begin + sink.pool.view().page_stride)
          FAIL("a receive may write a page after the last word");
      }
  }
  bool over() const { return n_planes == kPlanesInAll || failed.has_value(); }
  bool arrived() const { return n_planes == kPlanesInAll; }
  // Requires that every AwaitInflow had its last event, and that nothing is left of the handoff.
  void RequireOver() {
    REQUIRE(over() == awaited);
    for (const auto& node : cluster.nodes) {
      REQUIRE_FALSE(node->core->busy());
      REQUIRE(node->core->n_operations() == 0);
      REQUIRE(node->link->idle());
    }
    REQUIRE(sink.core->receive_pool().owed() == 0);
    REQUIRE(sink.core->receive_pool().promises() == 0);
    REQUIRE(posted.empty());
  }
  // Returns the status of the head's only end event.
  absl::Status Ended() const {
    std::optional<absl::Status> status;
    for (const TransferEvent& event : source.events) {
      const auto* ended = std::get_if<HandoffEnded>(&event);
      if (ended == nullptr) continue;
      REQUIRE_FALSE(status.has_value());
      status = ended->status;
    }
    REQUIRE(status.has_value());
    return *status;
  }

  const Ticket ticket = MakeTicket(1, 2, kKvPages, 0);
  const std::vector<int32_t> named = {9, 4, 15, 6, 11};  // none of them lent
  TestPool sent;                                         // the bytes of the head's pages
  std::map<OperationId, std::pair<const std::byte*, uint64_t>> posted;  // the tail's receives
  bool awaited = false, open_seen = false;
  int32_t n_planes = 0, n_pages = 0;
  std::vector<int32_t> told;  // n_planes each
  std::optional<absl::Status> failed;

 private:
  void OnArrived(const InflowArrived& event) {
    REQUIRE(awaited);
    REQUIRE_FALSE(over());
    REQUIRE(event.ticket_id == ticket.id);
    REQUIRE(event.epoch == 1);
    REQUIRE(std::pair(event.n_planes, event.n_pages) > std::pair(n_planes, n_pages));
    REQUIRE(event.n_planes <= kPlanesInAll);
    REQUIRE(event.n_pages < (event.n_planes < kPlanesInAll ? kKvPages : 1));
    if (event.n_planes > n_planes) told.push_back(event.n_planes);
    n_planes = event.n_planes;
    n_pages = event.n_pages;
    for (int32_t plane = 0; plane < std::min(n_planes + 1, kPlanesInAll); ++plane)
      for (int32_t i = 0; i < (plane < n_planes ? kKvPages : n_pages); ++i) {
        const auto want = sent.cell(i, plane), is = sink.pool.cell(named[size_t(i)], plane);
        if (!std::equal(want.begin(), want.end(), is.begin())) FAIL("other bytes than were sent");
      }
    if (arrived()) UseForSomethingElse();
  }
  void OnFailed(const InflowFailed& event) {
    REQUIRE(awaited);
    REQUIRE_FALSE(over());
    REQUIRE(event.ticket_id == ticket.id);
    REQUIRE_FALSE(event.status.ok());
    failed = event.status;
    UseForSomethingElse();
  }
  void UseForSomethingElse() {
    for (const int32_t page : named) {
      sink.kept.erase(page);
      sink.Own(page);
    }
  }
};

}  // namespace baton
