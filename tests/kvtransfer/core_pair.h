// One source and one sink on virtual time, and one handoff from the first command to the last.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tests/kvtransfer/core_cluster.h"

#include <catch2/catch.hpp>

namespace baton {

inline const std::vector<int64_t> kPlanes = {100, 260, 40};

// One source and one sink with `lent` pages of 16. trusted: no network, and all have MACs; or all.
struct CorePair {
  explicit CorePair(uint64_t seed, int32_t lent = 16, int64_t chunk_bytes = 400,
                    const std::string& trusted = "0.0.0.0/0")
      : cluster(seed),
        source(cluster.Add(Options(1, chunk_bytes, trusted), 16, kPlanes)),
        sink(cluster.Add(Options(2, chunk_bytes, trusted), 16, kPlanes)) {
    for (int32_t page = 0; page < 16; ++page) {
      source.pool.FillPage(page, 5);
      source.owned.erase(page);
      source.kept.insert(page);
    }
    sink.Lend(lent, cluster.now_us);
  }
  static NodeOptions Options(Incarnation incarnation, int64_t chunk_bytes,
                             const std::string& trusted = "0.0.0.0/0") {
    NodeOptions options = TestOptions(incarnation);
    options.trusted_cidrs = trusted;
    options.chunk_bytes = chunk_bytes;
    options.window_bytes = 1'000;
    return options;
  }
  void Open(const Ticket& ticket) {
    source.core->Handle(OpenHandoff{ticket, 2, sink.link->address()}, cluster.now_us);
  }
  // Sends all planes of all pages; page i of the ticket is page i of the pool.
  void SendAll(const Ticket& ticket) {
    for (int32_t plane = 0; plane < 3; ++plane) {
      SendCells cells{.ticket_id = ticket.id, .plane = plane, .pages = {}};
      for (int32_t page = 0; page < ticket.kv_pages; ++page) cells.pages.push_back(page);
      source.core->Handle(std::move(cells), cluster.now_us);
    }
  }
  void Commit(const Ticket& ticket) {
    source.core->Handle(CommitHandoff{ticket.id, {.first_token = 42, .n_tokens = 99}},
                        cluster.now_us);
  }
  void RequireQuiet() {
    for (CoreNode* node : {&source, &sink}) {
      REQUIRE_FALSE(node->core->busy());
      REQUIRE(node->core->n_operations() == 0);
      REQUIRE(node->link->idle());
      REQUIRE(node->core->receive_pool().owed() == 0);
      REQUIRE(node->PagesAccounted());
    }
  }

  CoreCluster cluster;
  CoreNode &source, &sink;
};

}  // namespace baton
