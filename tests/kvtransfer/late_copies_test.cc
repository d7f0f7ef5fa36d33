// Handoffs and inflows between workers whose engine computes later and whose KV is copied later, on
// virtual time: commands name fences that are not reached yet, copies begin and end in a drawn
// order, and a page is written for its next owner as soon as it is given back. LateCopier says
// where a copy was not waited for. At the end every byte that arrived is right, and every page is
// back.
#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "tests/kvtransfer/core_cluster.h"

#include <catch2/catch.hpp>

namespace baton {
namespace {

const std::vector<int64_t> kPlanes = {96, 33, 160};
constexpr int32_t kPages = 14, kSlots = 4;

struct Totals {
  int committed = 0, failed = 0, arrived = 0, aborted = 0, inflows = 0, inflows_failed = 0;
  int cancelled_under_way = 0;  // while a copy was
  uint64_t waited = 0, max_copies = 0;
};

// A worker: its engine writes pages later, in order.
struct LateNode {
  CoreNode* node = nullptr;  // null: it was killed
  uint64_t submitted = 0, done = 0;
  std::deque<std::function<void()>> queue{};
  std::vector<int32_t> free{};

  uint64_t Submit(std::function<void()> operation) {
    queue.push_back(std::move(operation));
    return ++submitted;
  }
  bool Execute() {
    if (queue.empty()) return false;
    queue.front()();
    queue.pop_front();
    ++done;
    return true;
  }
  // Takes pages, which are zeroed in the order of the engine's work.
  std::vector<int32_t> Take(size_t n) {
    std::vector<int32_t> pages(free.end() - static_cast<int64_t>(n), free.end());
    free.resize(free.size() - n);
    for (const int32_t page : pages) Write(page, 0);
    return pages;
  }
  // A page goes back at once, and serves another who writes it.
  void Give(const std::vector<int32_t>& pages) {
    for (const int32_t page : pages) {
      Write(page, 0xee);
      free.insert(free.begin(), page);
    }
  }
  void Write(int32_t page, int byte) {
    Submit([at = node->pool.page(page), byte] { std::memset(at.data(), byte, at.size()); });
  }
};

class Run {
 public:
  Run(uint64_t seed, Totals* totals) : cluster_(seed), totals_(totals) {
    for (size_t i = 0; i < 3; ++i) {
      NodeOptions options = TestOptions(i + 1);
      options.chunk_bytes = 160 + static_cast<int64_t>(Random(500));
      options.window_bytes = 200 + static_cast<int64_t>(Random(2'000));
      options.slab_slots = 1 + static_cast<int32_t>(Random(kSlots));
      LateNode& late = *nodes_.emplace_back(std::make_unique<LateNode>());
      const LateCopier::Ports ports{
          .reached = [&late](uint64_t after) { return after <= late.done; },
          .complain = [](const std::string& what) { FAIL(what); }};
      late.node = &cluster_.Add(options, kPages, kPlanes, static_cast<int64_t>(i % 2) * 16, &ports);
      late.node->owned.clear();
      for (int32_t page = 0; page < kPages; ++page) late.free.push_back(page);
    }
    MemNetwork::Faults faults;
    if (Random(3) == 0) faults.cut_connection = 0.01;
    if (Random(2) == 0) faults.late_landing = 0.5;
    if (Random(3) == 0) faults.corrupt_payload = 0.1;
    is_clean_ = faults.corrupt_payload == 0;
    cluster_.network.set_faults(faults);
  }

  void Play() {
    const auto n_handoffs = 2 + Random(8);
    const bool kills = Random(4) == 0;
    for (int i = 0; i < 600; ++i) {
      if (handoffs_.size() < n_handoffs && Random(8) == 0) OpenOne();
      Feed();
      if (Random(6) == 0) Lend(*nodes_[Random(3)]);
      if (Random(80) == 0) CancelOne();
      if (kills && i == 300) Kill(*nodes_[Random(3)]);
      for (const auto& late : nodes_)
        if (Random(3) == 0) late->Execute();
      if (Random(5) == 0) cluster_.now_us += TransferCore::kTickUs;
      cluster_.Step();
      Look();
    }
    cluster_.network.set_faults({});
    for (int i = 0; i < 6'000 && IsOpen(); ++i) {
      Feed();
      if (i % 8 == 0)
        for (const auto& late : nodes_) Lend(*late);
      if (i > 3'000 && i % 50 == 0) CancelOne();
      for (const auto& late : nodes_) late->Execute();
      if (Random(4) == 0) cluster_.now_us += TransferCore::kTickUs;
      cluster_.Step();
      Look();
    }
    End();
  }

 private:
  struct Handoff {
    Ticket ticket;
    size_t source, sink;
    std::vector<int32_t> pages{}, named{};  // at the source; of an inflow at the sink
    int32_t next_plane = 0;
    uint64_t last = 0;  // fence of its last cells
    bool committed = false;
    std::optional<absl::Status> ended{};
    bool arrived = false, failed = false;  // at the sink
  };

  uint64_t Random(uint64_t n) { return cluster_.random() % n; }
  static void Fill(std::span<std::byte> cell, const TicketId& id, int32_t plane, size_t index) {
    uint64_t x = id.high * 1'000'003 + static_cast<uint64_t>(plane) * 1'009 + index + 1;
    for (std::byte& byte : cell) {
      x ^= x << 13, x ^= x >> 7, x ^= x << 17;
      byte = static_cast<std::byte>(x >> 32);
    }
  }
  void RequireCell(CoreNode& node, int32_t page, const Handoff& handoff, int32_t plane,
                   size_t index) {
    const std::span<std::byte> cell = node.pool.cell(page, plane);
    std::vector<std::byte> expected(cell.size());
    Fill(expected, handoff.ticket.id, plane, index);
    REQUIRE(std::equal(cell.begin(), cell.end(), expected.begin()));
  }
  bool IsOpen() {
    for (const auto& [n, handoff] : handoffs_)
      if (!handoff.ended && nodes_[handoff.source]->node != nullptr) return true;
    return std::any_of(nodes_.begin(), nodes_.end(), [](const auto& late) {
      return late->node != nullptr && (late->node->core->busy() || !late->queue.empty());
    });
  }

  void OpenOne() {
    const size_t source = Random(3), sink = (source + 1 + Random(2)) % 3;
    LateNode &from = *nodes_[source], &to = *nodes_[sink];
    const size_t n = 1 + Random(4);
    if (from.node == nullptr || to.node == nullptr || from.free.size() < n) return;
    const bool to_named = Random(3) == 0;
    if (to_named && to.free.size() < n) return;
    const auto n_pages = static_cast<int32_t>(n);
    const uint64_t number = handoffs_.size() + 1;
    const Ticket ticket =
        From(source + 1, MakeTicket(number, sink + 1, n_pages,
                                    to_named ? 0 : n_pages + static_cast<int32_t>(Random(2))));
    Handoff handoff{.ticket = ticket, .source = source, .sink = sink};
    handoff.pages = from.Take(n);
    if (to_named) {
      handoff.named = to.Take(n);
      to.node->core->Handle(
          AwaitInflow{
              .ticket_id = ticket.id, .epoch = 1, .pages = handoff.named, .after = to.submitted},
          cluster_.now_us);
    }
    from.node->core->Handle(OpenHandoff{ticket, sink + 1, to.node->link->address()},
                            cluster_.now_us);
    handoffs_.emplace(number, std::move(handoff));
  }

  // Submits a plane of each handoff now and then, and tells of it at once; commits at the end.
  void Feed() {
    for (auto& [n, handoff] : handoffs_) {
      LateNode& from = *nodes_[handoff.source];
      if (from.node == nullptr || handoff.ended || handoff.committed || Random(6) != 0) continue;
      if (handoff.next_plane == std::ssize(kPlanes)) {
        if (handoff.last > from.done) continue;  // the token is not known yet
        handoff.committed = true;
        from.node->core->Handle(CommitHandoff{handoff.ticket.id, {.first_token = 7, .n_tokens = 9}},
                                cluster_.now_us);
        continue;
      }
      const int32_t plane = handoff.next_plane++;
      handoff.last = from.Submit([&pool = from.node->pool, &handoff, pages = handoff.pages, plane] {
        for (size_t i = 0; i < pages.size(); ++i)
          Fill(pool.cell(pages[i], plane), handoff.ticket.id, plane, i);
      });
      from.node->core->Handle(SendCells{.ticket_id = handoff.ticket.id,
                                        .plane = plane,
                                        .pages = handoff.pages,
                                        .after = handoff.last},
                              cluster_.now_us);
    }
  }
  // A row that ends writes its pages once more; they are zeroed behind it and lent at once.
  void Lend(LateNode& late) {
    if (late.node == nullptr) return;
    if (Random(3) == 0)
      return late.node->core->Handle(ReclaimPages{static_cast<int32_t>(Random(4))},
                                     cluster_.now_us);
    LendPages lend{.pages = late.Take(std::min<size_t>(Random(5), late.free.size()))};
    lend.after = late.submitted;
    late.node->core->Handle(std::move(lend), cluster_.now_us);
  }
  void CancelOne() {
    if (handoffs_.empty()) return;
    const Handoff& handoff =
        std::next(handoffs_.begin(), static_cast<int64_t>(Random(handoffs_.size())))->second;
    LateNode& late = *nodes_[Random(2) == 0 ? handoff.source : handoff.sink];
    if (late.node == nullptr || handoff.ended) return;
    totals_->cancelled_under_way += late.node->copier->n_under_way() > 0;
    late.node->core->Handle(CancelHandoff{handoff.ticket.id, 1}, cluster_.now_us);
  }
  // The process is gone, with all of its memory.
  void Kill(LateNode& late) {
    late.queue.clear();
    cluster_.Kill(*std::exchange(late.node, nullptr));
  }

  void Look() {
    for (const auto& held : nodes_) {
      LateNode& late = *held;
      if (late.node == nullptr) continue;
      for (TransferEvent& event : std::exchange(late.node->events, {})) {
        if (auto* ended = std::get_if<HandoffEnded>(&event)) {
          Handoff& handoff = handoffs_.at(ended->ticket_id.high);
          REQUIRE_FALSE(handoff.ended.has_value());
          handoff.ended = ended->status;
          ++(ended->status.ok() ? totals_->committed : totals_->failed);
          late.Give(handoff.pages);
        }
        if (auto* arrived = std::get_if<HandoffArrived>(&event)) {
          Handoff& handoff = handoffs_.at(arrived->ticket_id.high);
          REQUIRE_FALSE((handoff.arrived || handoff.failed));
          handoff.arrived = true;
          ++totals_->arrived;
          for (int32_t plane = 0; plane < std::ssize(kPlanes); ++plane)
            for (size_t i = 0; i < handoff.pages.size(); ++i)
              RequireCell(*late.node, arrived->pages[i], handoff, plane, i);
          late.Give(arrived->pages);
        }
        if (auto* aborted = std::get_if<HandoffAborted>(&event)) {
          Handoff& handoff = handoffs_.at(aborted->ticket_id.high);
          REQUIRE_FALSE((handoff.arrived || handoff.failed));
          handoff.failed = true;
          ++totals_->aborted;
        }
        if (auto* returned = std::get_if<PagesReturned>(&event)) late.Give(returned->pages);
        if (auto* arrived = std::get_if<InflowArrived>(&event)) OnInflow(late, *arrived);
        if (auto* failed = std::get_if<InflowFailed>(&event)) {
          Handoff& handoff = handoffs_.at(failed->ticket_id.high);
          REQUIRE_FALSE((handoff.arrived || handoff.failed));
          handoff.failed = true;
          ++totals_->inflows_failed;
          late.Give(handoff.named);
        }
      }
    }
  }
  void OnInflow(LateNode& late, const InflowArrived& arrived) {
    Handoff& handoff = handoffs_.at(arrived.ticket_id.high);
    REQUIRE_FALSE((handoff.arrived || handoff.failed));
    for (int32_t plane = 0; plane < std::ssize(kPlanes); ++plane)
      for (size_t i = 0; i < handoff.named.size(); ++i)
        if (plane < arrived.n_planes ||
            (plane == arrived.n_planes && i < static_cast<size_t>(arrived.n_pages)))
          RequireCell(*late.node, handoff.named[i], handoff, plane, i);
    if (arrived.n_planes < std::ssize(kPlanes)) return;
    handoff.arrived = true;
    ++totals_->inflows;
    late.Give(handoff.named);
  }

  void End() {
    // Only the engine ends a wait for an inflow whose source is gone.
    for (const auto& [n, handoff] : handoffs_)
      if (!handoff.named.empty() && !handoff.arrived && !handoff.failed &&
          nodes_[handoff.sink]->node != nullptr)
        nodes_[handoff.sink]->node->core->Handle(CancelHandoff{handoff.ticket.id, 1},
                                                 cluster_.now_us);
    for (const auto& late : nodes_)
      while (late->Execute()) {
      }
    cluster_.RunUntilIdle(30'000'000);
    for (const auto& late : nodes_)
      if (late->node != nullptr) late->node->core->Handle(ReclaimPages{kPages}, cluster_.now_us);
    Look();
    for (const auto& late : nodes_) {
      if (late->node == nullptr) continue;
      CoreNode& node = *late->node;
      REQUIRE_FALSE(node.core->busy());
      REQUIRE(node.core->n_operations() == 0);
      REQUIRE(node.copier->n_under_way() == 0);
      REQUIRE(node.link->idle());
      REQUIRE(late->free.size() == size_t{kPages});
      REQUIRE(std::set<int32_t>(late->free.begin(), late->free.end()).size() == size_t{kPages});
      REQUIRE(node.copier->max_under_way() <= static_cast<size_t>(node.options.slab_slots));
      totals_->waited += node.copier->n_waited();
      totals_->max_copies = std::max<uint64_t>(totals_->max_copies, node.copier->max_under_way());
      // Bytes that nothing damaged arrive as they were summed.
      if (is_clean_) REQUIRE(Refused(node.core->counters(), ChunkRefusal::kPayload) == 0);
    }
    for (const auto& [n, handoff] : handoffs_)
      if (nodes_[handoff.source]->node != nullptr) REQUIRE(handoff.ended.has_value());
  }

  std::vector<std::unique_ptr<LateNode>> nodes_;
  CoreCluster cluster_;  // after the nodes, whose engines its copiers ask
  Totals* const totals_;
  std::map<uint64_t, Handoff> handoffs_;
  bool is_clean_ = true;
};

TEST_CASE("copies that end later: every byte is right, and no page is used under a copy") {
  Totals totals;
  for (uint64_t seed = 1; seed <= 600; ++seed) {
    INFO("seed " << seed);
    Run(seed, &totals).Play();
  }
  INFO("committed " << totals.committed << " failed " << totals.failed << " arrived "
                    << totals.arrived << " aborted " << totals.aborted << " inflows "
                    << totals.inflows << " failed " << totals.inflows_failed << " cancelled "
                    << totals.cancelled_under_way << " waited " << totals.waited);
  // The runs met the events that they are for.
  CHECK(totals.committed > 1'000);
  CHECK(totals.failed > 300);
  CHECK(totals.arrived > 500);
  CHECK(totals.aborted > 100);
  CHECK(totals.inflows > 300);
  CHECK(totals.inflows_failed > 50);
  CHECK(totals.cancelled_under_way > 100);
  CHECK(totals.waited > 1'000);
  CHECK(totals.max_copies == kSlots);
}

// One source and one sink that copy later; the test is the engines, too.
struct LatePair {
  explicit LatePair(int32_t n_slots = 8) : cluster(1) {
    const LateCopier::Ports ports{.reached = [this](uint64_t after) { return after <= done; },
                                  .complain = [](const std::string& what) { FAIL(what); }};
    for (const Incarnation incarnation : {1, 2}) {
      NodeOptions options = TestOptions(incarnation);
      options.chunk_bytes = 200;
      options.window_bytes = 2'000;
      options.slab_slots = n_slots;
      cluster.Add(options, 16, {100, 100}, 8, &ports);
    }
    for (int32_t page = 0; page < 16; ++page) source().pool.FillPage(page, 5);
    sink().Lend(16, cluster.now_us);
    source().core->Handle(OpenHandoff{ticket, 2, sink().link->address()}, cluster.now_us);
    Settle();
  }
  CoreNode& source() { return *cluster.nodes[0]; }
  CoreNode& sink() { return *cluster.nodes[1]; }
  // All happens but copies.
  void Settle() {
    bool moved = true;
    while (moved) {
      cluster.now_us += 1;
      moved = cluster.network.Step();
      moved |= cluster.Turn(source());
      moved |= cluster.Turn(sink());
    }
  }
  void Send(int32_t plane, std::vector<int32_t> pages, uint64_t after, int32_t first_page = 0) {
    source().core->Handle(SendCells{.ticket_id = ticket.id,
                                    .plane = plane,
                                    .first_page = first_page,
                                    .pages = std::move(pages),
                                    .after = after},
                          cluster.now_us);
    Settle();
  }
  void SendAllAndCommit() {
    for (const int32_t plane : {0, 1}) Send(plane, {0, 1, 2}, 0);
    source().core->Handle(CommitHandoff{ticket.id, {.first_token = 1, .n_tokens = 2}},
                          cluster.now_us);
    Settle();
  }
  // Copies until nothing is under way there.
  void Copy(CoreNode& node) {
    while (node.copier->Step(0)) {
    }
    Settle();
  }

  uint64_t done = 0;  // of both engines
  CoreCluster cluster;
  const Ticket ticket = MakeTicket(1, 2, 3, 3);
};

TEST_CASE("a chunk is announced when it is gathered, and gathered when the engine has written it") {
  LatePair pair;
  pair.Send(0, {0, 1}, 3);
  CHECK(pair.source().copier->n_under_way() == 1);
  CHECK_FALSE(pair.source().copier->Step(0));
  pair.done = 3;
  CHECK(pair.source().core->counters().chunks_sent == 0);
  pair.Copy(pair.source());
  CHECK(pair.source().core->counters().chunks_sent == 1);
}

TEST_CASE("what the engine writes first is gathered first") {
  LatePair pair(/*n_slots=*/1);
  pair.Send(1, {0}, 3);  // has the slot
  pair.Send(1, {1}, 5, 1);
  pair.Send(1, {2}, 6, 2);
  pair.Send(0, {0, 1}, 9);  // the next step's: before the others by plane
  CHECK(pair.source().copier->n_under_way() == 1);
  for (const auto& [reached, sent] :
       {std::pair(3, 1), std::pair(5, 2), std::pair(6, 3), std::pair(9, 4)}) {
    pair.done = static_cast<uint64_t>(reached);
    pair.Copy(pair.source());
    pair.Copy(pair.sink());
    CHECK(pair.source().core->counters().chunks_sent == static_cast<uint64_t>(sent));
  }
}

TEST_CASE("a handoff that is cancelled ends when its gather has, not by closing the connection") {
  LatePair pair;
  pair.Send(0, {0, 1}, 3);
  pair.source().core->Handle(CancelHandoff{pair.ticket.id, 1}, pair.cluster.now_us);
  pair.Settle();
  for (int i = 0; i < 300; ++i) {
    pair.cluster.now_us += TransferCore::kTickUs;
    pair.Settle();
  }
  CHECK(CoreCluster::Find<HandoffEnded>(pair.source()) == nullptr);
  CHECK(pair.source().tap.connections().size() == 1);
  pair.done = 3;
  pair.Copy(pair.source());
  REQUIRE(CoreCluster::Find<HandoffEnded>(pair.source()) != nullptr);
  CHECK(pair.source().core->counters().chunks_sent == 0);
  CHECK_FALSE(pair.source().core->busy());
}

TEST_CASE("KV has arrived, and is acknowledged, when it is scattered") {
  LatePair pair;
  pair.SendAllAndCommit();
  pair.Copy(pair.source());
  CHECK(pair.sink().copier->n_under_way() == 4);
  CHECK(pair.source().core->counters().chunks_sent == 4);
  CHECK(CoreCluster::Find<HandoffArrived>(pair.sink()) == nullptr);
  CHECK(CoreCluster::Find<HandoffEnded>(pair.source()) == nullptr);
  pair.Copy(pair.sink());
  const auto* arrived = CoreCluster::Find<HandoffArrived>(pair.sink());
  REQUIRE(arrived != nullptr);
  for (const size_t i : {0, 1, 2})
    CHECK(
        SamePage(pair.source().pool, static_cast<int32_t>(i), pair.sink().pool, arrived->pages[i]));
  REQUIRE(CoreCluster::Find<HandoffEnded>(pair.source()) != nullptr);
  CHECK(CoreCluster::Find<HandoffEnded>(pair.source())->status.ok());
}

TEST_CASE("pages of an aborted handoff are the pool's again when their scatters have ended") {
  LatePair pair;
  pair.SendAllAndCommit();
  pair.Copy(pair.source());
  pair.sink().core->Handle(CancelHandoff{pair.ticket.id, 1}, pair.cluster.now_us);
  for (int i = 0; i < 300; ++i) {
    pair.cluster.now_us += TransferCore::kTickUs;
    pair.Settle();
  }
  CHECK(pair.sink().core->receive_pool().in_pool() == 13);
  CHECK(CoreCluster::Find<HandoffAborted>(pair.sink()) == nullptr);
  CHECK(pair.sink().tap.connections().size() == pair.source().tap.connections().size());
  pair.Copy(pair.sink());
  CHECK(pair.sink().core->receive_pool().in_pool() == 16);
  CHECK(CoreCluster::Find<HandoffAborted>(pair.sink()) != nullptr);
}

TEST_CASE("a worker that shuts down waits for its copies") {
  LatePair pair;
  pair.SendAllAndCommit();
  for (CoreNode* node : {&pair.source(), &pair.sink()}) {
    node->core->ShutDown(pair.cluster.now_us);
    node->core->CloseConnections(pair.cluster.now_us);
  }
  pair.Settle();
  CHECK(pair.source().core->busy());
  CHECK_FALSE(pair.sink().core->busy());  // nothing had reached it
  pair.Copy(pair.source());
  CHECK_FALSE(pair.source().core->busy());
  CHECK(pair.source().core->n_operations() == 0);
}

}  // namespace
}  // namespace baton
