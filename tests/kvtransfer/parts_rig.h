// A relay's tail and two heads hand the KV of one prompt to a decode worker, on virtual time: each
// fills a range of one promise, the tail the last one. The decode worker's engine takes pages back
// as soon as possible and reuses them, so that a later write is found.
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

struct PartsRig {
  // The first head sends pages [0, 3), the second page 3, the tail [4, 6).
  static constexpr int32_t kKvPages = 6, kPromised = 8, kTailFrom = 4;
  static constexpr int64_t kKvBytes = kKvPages * 400;
  static constexpr size_t kTail = 0;

  struct Source {
    CoreNode* node;
    Ticket ticket;
    int32_t first_page, n_pages;  // pages of the prompt
    bool open_seen = false;       // the decode worker has read the OPEN
  };

  explicit PartsRig(uint64_t seed, const NodeOptions& sink_options = SinkOptions())
      : cluster(seed), sink(cluster.Add(sink_options, 16, kPlanes)) {
    const Ticket main = MakeMain(1, 2, kKvPages, kPromised, kTailFrom);
    sources = {{&AddSource(1), main, kTailFrom, kKvPages - kTailFrom},
               {&AddSource(3), MakePart(main, 2, 0, 3), 0, 3},
               {&AddSource(4), MakePart(main, 3, 3, 1), 3, 1}};
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
      if (!decoded.ok()) return;
      if (const auto* open = std::get_if<wire::Open>(&*decoded))
        for (Source& source : sources) source.open_seen |= source.ticket.id == open->ticket.id;
    };
  }
  static NodeOptions SinkOptions() { return CorePair::Options(2, 260); }

  CoreNode& AddSource(Incarnation incarnation) {
    CoreNode& node = cluster.Add(CorePair::Options(incarnation, 260), kKvPages, kPlanes);
    for (int32_t page = 0; page < kKvPages; ++page) {
      node.pool.FillPage(page, incarnation);
      node.owned.erase(page);
      node.kept.insert(page);
    }
    return node;
  }
  void Lend() { sink.Lend(kPromised, cluster.now_us); }
  void Open(size_t n) {
    const Incarnation self = sources[n].node->options.facts.incarnation;
    sources[n].node->core->Handle(
        OpenHandoff{From(self, sources[n].ticket), 2, sink.link->address()}, cluster.now_us);
  }
  // Sends all planes of a source's pages; page i of the prompt is page i of the pool.
  void SendAll(size_t n) {
    const Source& source = sources[n];
    for (int32_t plane = 0; plane < 3; ++plane) {
      SendCells cells{.ticket_id = source.ticket.id,
                      .plane = plane,
                      .first_page = source.ticket.first_page,
                      .pages = {}};
      for (int32_t i = 0; i < source.n_pages; ++i) cells.pages.push_back(source.first_page + i);
      source.node->core->Handle(std::move(cells), cluster.now_us);
    }
  }
  void Commit(size_t n) {
    sources[n].node->core->Handle(
        CommitHandoff{sources[n].ticket.id, {.first_token = int32_t(40 + n), .n_tokens = 90}},
        cluster.now_us);
  }
  void OpenSendCommit(size_t n) {
    Open(n);
    SendAll(n);
    Commit(n);
  }
  void Cancel(CoreNode& node, const Ticket& ticket) {
    node.core->Handle(CancelHandoff{ticket.id, ticket.epoch}, cluster.now_us);
    Look();
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
  // Runs until all ends are idle, or `limit_us` have passed.
  void RunUntilIdle(int64_t limit_us) {
    const int64_t end_us = cluster.now_us + limit_us;
    for (;; cluster.now_us += TransferCore::kTickUs) {
      RunUntilQuiet();
      const bool busy = std::any_of(cluster.nodes.begin(), cluster.nodes.end(),
                                    [](const auto& node) { return node->core->busy(); });
      if (!busy || cluster.now_us >= end_us) return;
    }
  }

  // Handles the events of the decode worker's engine.
  void Look() {
    for (const TransferEvent& event : std::exchange(sink.events, {})) {
      REQUIRE_FALSE(std::holds_alternative<InflowArrived>(event));
      REQUIRE_FALSE(std::holds_alternative<InflowFailed>(event));
      if (const auto* e = std::get_if<ReceivePoolChanged>(&event)) promised |= e->promises > 0;
      if (const auto* e = std::get_if<HandoffArrived>(&event)) OnArrived(*e);
      if (const auto* e = std::get_if<HandoffAborted>(&event)) OnAborted(*e);
      if (const auto* e = std::get_if<PagesReturned>(&event))
        for (const int32_t page : e->pages) sink.Own(page);
    }
    if (!sink.PagesAccounted()) FAIL("a page is lost, or written by a handoff that is over");
    for (const auto& [operation, extent] : posted)
      for (const int32_t page : sink.owned) {
        const std::byte* begin = sink.pool.page(page).data();
        if (extent.first + extent.second > begin &&
            extent.first < begin + sink.pool.view().page_stride)
          FAIL("a receive may write a page that has come back");
      }
  }
  bool over() const { return arrived || aborted.has_value(); }
  // Requires that nothing is left of the handoffs.
  void RequireOver() {
    if (promised) REQUIRE(over());
    for (const auto& node : cluster.nodes) {
      REQUIRE_FALSE(node->core->busy());
      REQUIRE(node->core->n_operations() == 0);
      REQUIRE(node->link->idle());
    }
    REQUIRE(sink.core->receive_pool().owed() == 0);
    REQUIRE(sink.core->bound_pages() == 0);
    REQUIRE(posted.empty());
  }
  // Returns the status of a source's only end event; nullopt: the source was killed.
  std::optional<absl::Status> Ended(size_t n) const {
    std::optional<absl::Status> status;
    if (sources[n].node == nullptr) return status;
    for (const TransferEvent& event : sources[n].node->events) {
      const auto* ended = std::get_if<HandoffEnded>(&event);
      if (ended == nullptr) continue;
      REQUIRE_FALSE(status.has_value());
      status = ended->status;
    }
    return status;
  }

  CoreCluster cluster;
  CoreNode& sink;
  std::vector<Source> sources;
  std::map<OperationId, std::pair<const std::byte*, uint64_t>> posted;  // the sink's receives
  bool promised = false, arrived = false;
  std::optional<absl::Status> aborted;

 private:
  void OnArrived(const HandoffArrived& event) {
    REQUIRE_FALSE(over());
    REQUIRE(event.ticket_id == sources[kTail].ticket.id);
    REQUIRE(event.record.first_token == 40);
    REQUIRE(event.pages.size() == size_t{kPromised});
    for (const Source& source : sources) {
      const auto incarnation = source.ticket.id.high == 1 ? 1 : source.ticket.id.high + 1;
      TestPool sent(kKvPages, kPlanes);
      for (int32_t page = source.first_page; page < source.first_page + source.n_pages; ++page) {
        sent.FillPage(page, incarnation);
        REQUIRE(SamePage(sent, page, sink.pool, event.pages[size_t(page)]));
      }
    }
    arrived = true;
    for (const int32_t page : event.pages) sink.Own(page);
  }
  void OnAborted(const HandoffAborted& event) {
    REQUIRE_FALSE(over());
    REQUIRE(event.ticket_id == sources[kTail].ticket.id);
    REQUIRE_FALSE(event.status.ok());
    aborted = event.status;
    // The handoff's pages are in the receive pool now: reuse every page that may be taken.
    sink.core->Handle(ReclaimPages{16}, cluster.now_us);
    Look();
  }
};

}  // namespace baton
