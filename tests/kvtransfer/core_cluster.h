// Transfer cores on virtual time over a deterministic MemNetwork, each with a model of the engine
// that owns its pages: the model lends pages, takes them back, fills its own pages with a canary,
// and detects a foreign write to them. A node copies on return, or later (LateCopier).
#pragma once

#include <memory>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "kvtransfer/protocol/transfer_core.h"
#include "tests/kvtransfer/test_pool.h"
#include "tests/support/late_copier.h"
#include "tests/support/mem_link.h"
#include "tests/support/tapped_link.h"

namespace baton {

struct CoreNode {
  // late: null, or of a copier that copies later.
  CoreNode(MemNetwork* network, const NodeOptions& node_options, int32_t n_pages,
           const std::vector<int64_t>& planes, int64_t gap = 0,
           const LateCopier::Ports* late = nullptr)
      : options(node_options),
        pool(n_pages, planes, gap),
        link(network->MakeLink()),
        tap(link.get()) {
    std::unique_ptr<LateCopier> made;
    if (late != nullptr) made = std::make_unique<LateCopier>(pool.view(), *late);
    copier = made.get();
    core = std::make_unique<TransferCore>(
        options, options.facts, pool.view(), &tap,
        [this](TransferEvent e) { events.push_back(std::move(e)); }, std::move(made));
    for (int32_t page = 0; page < n_pages; ++page) Own(page);
  }
  ~CoreNode() { link.reset(); }  // destroyed before the memory that its operations may name
  void Own(int32_t page) {
    pool.FillCanary(page);
    owned.insert(page);
  }
  void Lend(int32_t n, int64_t now_us) {
    LendPages lend;
    for (; n > 0 && !owned.empty(); --n) {
      lend.pages.push_back(*owned.begin());
      owned.erase(owned.begin());
    }
    lend.expected_wait_us = 777;
    core->Handle(std::move(lend), now_us);
  }
  // Checks that pages of the engine are unchanged, and that no page is lost or doubled.
  bool PagesAccounted() {
    for (const int32_t page : owned)
      if (!pool.HasCanary(page)) return false;
    int64_t returned = 0;
    for (const TransferEvent& event : events) {
      if (const auto* arrived = std::get_if<HandoffArrived>(&event))
        returned += int64_t(arrived->pages.size());
      if (const auto* pages = std::get_if<PagesReturned>(&event))
        returned += int64_t(pages->pages.size());
    }
    const ReceivePool& receive_pool = core->receive_pool();
    return receive_pool.owed() >= 0 && receive_pool.free_pages() >= 0 &&
           int64_t(owned.size()) + int64_t(kept.size()) + returned + receive_pool.in_pool() +
                   core->bound_pages() ==
               pool.view().n_pages;
  }

  const NodeOptions options;
  TestPool pool;
  std::unique_ptr<MemLink> link;
  TappedLink tap;                     // wraps `link` for the core
  std::vector<TransferEvent> events;  // not yet read by the test
  std::unique_ptr<TransferCore> core;
  LateCopier* copier = nullptr;  // of the core; null: it copies on return
  std::set<int32_t> owned;       // held by the engine, canary inside
  std::set<int32_t> kept;        // held by the engine, KV inside (sources' pages)
};

class CoreCluster {
 public:
  explicit CoreCluster(uint64_t seed)
      : random(seed), network(MemNetwork::Mode::kDeterministic, seed) {}
  ~CoreCluster() { nodes.clear(); }

  CoreNode& Add(const NodeOptions& options, int32_t n_pages, const std::vector<int64_t>& planes,
                int64_t gap = 0, const LateCopier::Ports* late = nullptr) {
    nodes.push_back(std::make_unique<CoreNode>(&network, options, n_pages, planes, gap, late));
    return *nodes.back();
  }
  // Does one random thing. False: nothing can happen without time passing.
  bool Step() {
    now_us += 1 + int64_t(random() % 50);
    const size_t first = random() % (nodes.size() + 1);
    for (size_t i = 0; i <= nodes.size(); ++i) {
      const size_t at = (first + i) % (nodes.size() + 1);
      if (at == nodes.size() ? network.Step() : TurnOrCopy(*nodes[at])) return true;
    }
    return false;
  }
  bool TurnOrCopy(CoreNode& node) {
    if (node.copier != nullptr && random() % 2 == 0 && node.copier->Step(random())) return true;
    return Turn(node) || (node.copier != nullptr && node.copier->Step(random()));
  }
  bool Turn(CoreNode& node) {
    std::vector<LinkEvent> link_events;
    bool moved = node.tap.Poll(&link_events);
    for (LinkEvent& event : link_events) node.core->Handle(std::move(event), now_us);
    moved |= node.core->PollCopier(now_us);
    const auto begun = [&node] {
      return node.core->counters().chunks_sent + node.core->n_operations();
    };
    const uint64_t before = begun();
    node.core->Pump(now_us);
    node.core->Tick(now_us);
    return moved || begun() != before;
  }
  void RunUntilQuiet() {
    while (Step()) {
    }
  }
  // Steps until nothing is open, or `limit_us` have passed.
  void RunUntilIdle(int64_t limit_us) {
    const int64_t end_us = now_us + limit_us;
    while (now_us < end_us) {
      RunUntilQuiet();
      bool busy = false;
      for (const auto& node : nodes) busy |= node->core->busy();
      if (!busy) return;
      now_us += TransferCore::kTickUs;
    }
  }
  // Ends every connection of this node, as a failing network does.
  void CutConnections(CoreNode& node) {
    const std::set<ConnectionId> connections = node.tap.connections();
    for (const ConnectionId id : connections) network.Cut(node.link.get(), id);
  }
  // Kills the process of a node without any last message.
  void Kill(const CoreNode& node) {
    std::erase_if(nodes, [&](const auto& held) { return held.get() == &node; });
  }
  template <typename E>
  static const E* Find(const CoreNode& node) {
    for (const TransferEvent& event : node.events)
      if (const auto* e = std::get_if<E>(&event)) return e;
    return nullptr;
  }

  std::mt19937_64 random;
  int64_t now_us = 1'000'000;
  MemNetwork network;
  std::vector<std::unique_ptr<CoreNode>> nodes;
};

}  // namespace baton
