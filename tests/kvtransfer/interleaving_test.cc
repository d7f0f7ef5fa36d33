// Thousands of random runs of two sources and two sinks over a network that delays, duplicates,
// damages and cuts, with cancels and pages lent or reclaimed at any moment. Some handoffs are
// inflows, awaited at any moment; some promises are filled by several sources, opened in any order.
// Invariant after every event: no page is lost, doubled, or written without a promise or a name. At
// the end: every handoff ended exactly once at each end, arrived KV is byte-exact, nothing is left
// open.
#include <map>

#include "tests/kvtransfer/core_cluster.h"

#include <catch2/catch.hpp>

namespace baton {
namespace {

const std::vector<int64_t> kPlanes = {96, 33, 160, 64};
constexpr int32_t kPages = 12;

struct Totals {
  int committed = 0, failed = 0, arrived = 0, aborted = 0, no_room = 0;
  int parts_arrived = 0, parts_failed = 0;  // handoffs with parts
  int inflows_arrived = 0, inflows_failed = 0, planes_reported = 0, pages_reported = 0;
  uint64_t crc_errors = 0, resent = 0, refused = 0, resumed = 0, kept = 0;
};

class Run {
 public:
  Run(uint64_t seed, Totals* totals) : cluster_(seed), totals_(totals) {
    for (Incarnation incarnation = 1; incarnation <= 4; ++incarnation) {
      NodeOptions options = TestOptions(incarnation);
      options.chunk_bytes = 160 + int64_t(Random(900));
      options.window_bytes = 200 + int64_t(Random(2'000));
      options.slab_slots = 1 + int32_t(Random(8));
      cluster_.Add(options, kPages, kPlanes, incarnation % 2 == 0 ? 16 : 0);
    }
    for (const size_t n : {0, 1}) {
      for (int32_t page = 0; page < kPages; ++page) {
        Source(n).pool.FillPage(page, 100 + n);
        Source(n).owned.erase(page);
        Source(n).kept.insert(page);
      }
    }
    MemNetwork::Faults faults;
    if (Random(2) == 0) faults.corrupt_payload = 0.15;
    if (Random(2) == 0) faults.duplicate_message = 0.3;
    if (Random(3) == 0) faults.cut_connection = 0.01;
    if (Random(2) == 0) faults.late_landing = 0.5;
    cluster_.network.set_faults(faults);
  }

  void Play() {
    const int n_handoffs = 1 + int(Random(6));
    for (int i = 0; i < 400; ++i) {
      if (int(handoffs_.size()) < n_handoffs && Random(10) == 0) PlanOne();
      if (Random(10) == 0) OpenOne();
      if (Random(6) == 0) Feed();
      if (Random(8) == 0) ChangeReceivePool();
      if (Random(10) == 0) AwaitOne();
      if (Random(60) == 0) CancelOne();
      if (Random(5) == 0) cluster_.now_us += TransferCore::kTickUs;
      cluster_.Step();
      Look();
    }
    // Then every handoff gets what it needs, or a cancel.
    cluster_.network.set_faults({});
    for (int i = 0; i < 3'000 && Open(); ++i) {
      OpenOne();
      Feed();
      if (i % 20 == 0) ChangeReceivePool();
      if (i % 10 == 0) AwaitOne();
      if (i > 1'500 && i % 50 == 0) CancelOne();
      if (Random(4) == 0) cluster_.now_us += TransferCore::kTickUs;
      cluster_.Step();
      Look();
    }
    // Only the engine ends a wait for an inflow or a source that never came.
    for (const auto& [n, handoff] : handoffs_)
      if (!handoff.part() && !handoff.over())
        Sink(handoff.sink).core->Handle(CancelHandoff{handoff.ticket.id, 1}, cluster_.now_us);
    cluster_.RunUntilIdle(30'000'000);
    Look();
    for (const auto& node : cluster_.nodes) {
      REQUIRE_FALSE(node->core->busy());
      REQUIRE(node->core->n_operations() == 0);
      REQUIRE(node->link->idle());
      REQUIRE(node->core->receive_pool().owed() == 0);
      const TransferCounters& counters = node->core->counters();
      totals_->crc_errors += Refused(counters, ChunkRefusal::kPayload);
      totals_->resent += counters.resent_chunks;
      totals_->refused += Refused(counters);
      totals_->resumed += counters.handoffs_resumed;
      totals_->kept += counters.kept_chunks;
    }
    for (const auto& [n, handoff] : handoffs_) {
      REQUIRE(handoff.ended.has_value());
      if (handoff.ended->ok() && !handoff.part() && !handoff.has_parts()) REQUIRE(handoff.arrived);
      if (handoff.opened_at_sink && !handoff.part()) REQUIRE(handoff.arrived != handoff.aborted);
      if (handoff.inflow()) {
        REQUIRE(handoff.over() == !handoff.named.empty());
        totals_->inflows_arrived += handoff.arrived;
        totals_->inflows_failed += handoff.aborted;
      }
      if (handoff.has_parts()) {
        totals_->parts_arrived += handoff.arrived;
        totals_->parts_failed += handoff.aborted;
      }
      if (!handoff.part() && !handoff.has_parts())
        ++(handoff.ended->ok() ? totals_->committed : totals_->failed);
      totals_->arrived += handoff.arrived;
      totals_->aborted += handoff.aborted;
    }
  }

 private:
  struct Handoff {
    Ticket ticket;
    size_t source, sink;
    std::vector<int32_t> pages;                           // at the source
    std::vector<std::pair<int32_t, int32_t>> cells_left;  // (plane, page), in sending order
    bool opened = false, committed = false;
    std::optional<absl::Status> ended;
    bool opened_at_sink = false, arrived = false, aborted = false;
    std::vector<int32_t> named;        // inflow: pages at the sink, once awaited
    std::pair<int32_t, int32_t> told;  // planes, pages of the next plane

    bool inflow() const { return ticket.is_named(); }
    bool part() const { return ticket.id != ticket.promise; }
    bool has_parts() const { return !part() && ticket.first_page > 0; }
    bool over() const { return arrived || aborted; }
  };

  uint64_t Random(uint64_t n) { return cluster_.random() % n; }
  CoreNode& Source(size_t n) { return *cluster_.nodes[2 * n]; }
  CoreNode& Sink(size_t n) { return *cluster_.nodes[2 * n + 1]; }
  bool Open() {
    for (const auto& [n, handoff] : handoffs_)
      if (!handoff.ended) return true;
    for (const auto& node : cluster_.nodes)
      if (node->core->busy()) return true;
    return false;
  }

  void PlanOne() {
    const size_t sink = Random(2);
    const Incarnation incarnation = Sink(sink).options.facts.incarnation;
    const auto kv_pages = int32_t(Random(6));
    const bool inflow = kv_pages > 0 && Random(4) == 0;
    const int32_t in_parts =
        inflow || kv_pages == 0 || Random(2) == 0 ? 0 : int32_t(Random(uint64_t(kv_pages)));
    const Ticket main = MakeMain(handoffs_.size() + 1, incarnation, kv_pages,
                                 inflow ? 0 : std::max(kv_pages, 1) + int32_t(Random(3)), in_parts);
    Handoff& handoff = Plan(main, sink);
    if (inflow && Random(3) == 0) Await(handoff);  // before its OPEN
    for (int32_t page = 0; page < in_parts;) {
      const auto n_pages = 1 + int32_t(Random(uint64_t(in_parts - page)));
      Plan(MakePart(main, handoffs_.size() + 1, page, n_pages), sink);
      page += n_pages;
    }
  }
  Handoff& Plan(const Ticket& ticket, size_t sink) {
    Handoff& handoff = handoffs_[ticket.id.high];
    handoff.source = Random(2);
    handoff.ticket = From(Source(handoff.source).options.facts.incarnation, ticket);
    handoff.sink = sink;
    for (int32_t i = 0; i < ticket.n_pages; ++i) handoff.pages.push_back(int32_t(Random(kPages)));
    // Plane after plane as prefill does; the pages of a plane come in one to three pieces.
    for (int32_t plane = 0; plane < int32_t(kPlanes.size()); ++plane)
      for (int32_t page = 0; page < ticket.n_pages; ++page)
        handoff.cells_left.emplace_back(plane, page);
    return handoff;
  }
  void OpenOne() {
    std::vector<Handoff*> planned;
    for (auto& [n, handoff] : handoffs_)
      if (!handoff.opened) planned.push_back(&handoff);
    if (planned.empty()) return;
    Handoff& handoff = *planned[Random(planned.size())];
    handoff.opened = true;
    Source(handoff.source)
        .core->Handle(OpenHandoff{handoff.ticket, Sink(handoff.sink).options.facts.incarnation,
                                  Sink(handoff.sink).link->address()},
                      cluster_.now_us);
  }

  // Makes the next cells of some handoff final, or commits it.
  void Feed() {
    if (handoffs_.empty()) return;
    Handoff& handoff = std::next(handoffs_.begin(), int64_t(Random(handoffs_.size())))->second;
    if (!handoff.opened) return;
    TransferCore& core = *Source(handoff.source).core;
    auto& left = handoff.cells_left;
    if (!left.empty()) {
      const auto [plane, first_page] = left.front();
      SendCells cells{.ticket_id = handoff.ticket.id,
                      .plane = plane,
                      .first_page = handoff.ticket.first_page + first_page,
                      .pages = {}};
      for (size_t n = Random(4) + 1; n > 0 && !left.empty() && left.front().first == plane; --n) {
        cells.pages.push_back(handoff.pages[size_t(left.front().second)]);
        left.erase(left.begin());
      }
      core.Handle(std::move(cells), cluster_.now_us);
    } else if (!handoff.committed) {
      handoff.committed = true;
      core.Handle(CommitHandoff{handoff.ticket.id,
                                {.first_token = int32_t(handoff.ticket.request_id), .n_tokens = 5}},
                  cluster_.now_us);
    }
  }

  void AwaitOne() {
    if (handoffs_.empty()) return;
    Handoff& handoff = std::next(handoffs_.begin(), int64_t(Random(handoffs_.size())))->second;
    if (handoff.inflow() && handoff.named.empty()) Await(handoff);
  }
  // Awaits if the sink's engine has the pages; else asks for some of its lent pages.
  void Await(Handoff& handoff) {
    CoreNode& sink = Sink(handoff.sink);
    const auto n_pages = size_t(handoff.ticket.kv_pages);
    if (sink.owned.size() < n_pages)
      return sink.core->Handle(ReclaimPages{handoff.ticket.kv_pages}, cluster_.now_us);
    for (size_t i = 0; i < n_pages; ++i) {
      const int32_t page = *std::next(sink.owned.begin(), int64_t(Random(sink.owned.size())));
      sink.owned.erase(page);
      sink.kept.insert(page);
      handoff.named.push_back(page);
    }
    sink.core->Handle(AwaitInflow{handoff.ticket.id, 1, handoff.named}, cluster_.now_us);
  }

  void ChangeReceivePool() {
    CoreNode& sink = Sink(Random(2));
    if (Random(3) == 0) {
      sink.core->Handle(ReclaimPages{int32_t(Random(4))}, cluster_.now_us);
    } else {
      sink.Lend(int32_t(Random(6)), cluster_.now_us);
    }
  }

  void CancelOne() {
    if (handoffs_.empty()) return;
    const Handoff& handoff =
        std::next(handoffs_.begin(), int64_t(Random(handoffs_.size())))->second;
    CoreNode& node = Random(2) == 0 ? Source(handoff.source) : Sink(handoff.sink);
    node.core->Handle(CancelHandoff{handoff.ticket.id, 1}, cluster_.now_us);
  }

  void Look() {
    for (size_t i = 0; i < cluster_.nodes.size(); ++i) {
      CoreNode& node = *cluster_.nodes[i];
      if (!node.PagesAccounted()) FAIL("pages lost, doubled or written without a promise");
      for (TransferEvent& event : std::exchange(node.events, {})) {
        if (auto* ended = std::get_if<HandoffEnded>(&event)) OnEnded(*ended);
        if (auto* arrived = std::get_if<HandoffArrived>(&event)) OnArrived(node, *arrived);
        if (auto* arrived = std::get_if<InflowArrived>(&event)) OnInflow(node, *arrived);
        if (auto* failed = std::get_if<InflowFailed>(&event)) OnInflow(node, *failed);
        if (auto* aborted = std::get_if<HandoffAborted>(&event)) {
          Handoff& handoff = handoffs_.at(aborted->ticket_id.high);
          REQUIRE(handoff.ticket.promise_pages > 0);
          REQUIRE_FALSE(handoff.arrived);
          REQUIRE_FALSE(handoff.aborted);
          REQUIRE_FALSE(aborted->status.ok());
          handoff.aborted = handoff.opened_at_sink = true;
        }
        if (auto* returned = std::get_if<PagesReturned>(&event))
          for (const int32_t page : returned->pages) node.Own(page);
        if (std::holds_alternative<HandoffNoRoom>(event)) ++totals_->no_room;
        if (auto* promised = std::get_if<HandoffPromised>(&event)) {
          Handoff& handoff = handoffs_.at(promised->ticket_id.high);
          REQUIRE_FALSE(handoff.ended.has_value());
          handoff.opened_at_sink = true;
        }
      }
      if (!node.PagesAccounted()) FAIL("pages lost, doubled or written without a promise");
    }
  }

  void OnEnded(const HandoffEnded& ended) {
    Handoff& handoff = handoffs_.at(ended.ticket_id.high);
    REQUIRE_FALSE(handoff.ended.has_value());
    handoff.ended = ended.status;
  }

  void OnInflow(CoreNode& node, const InflowArrived& arrived) {
    Handoff& handoff = handoffs_.at(arrived.ticket_id.high);
    REQUIRE(&node == &Sink(handoff.sink));
    REQUIRE_FALSE(handoff.named.empty());
    REQUIRE_FALSE(handoff.over());
    const std::pair told(arrived.n_planes, arrived.n_pages);
    REQUIRE(told > handoff.told);
    totals_->planes_reported += arrived.n_planes - handoff.told.first;
    totals_->pages_reported += arrived.n_pages > 0;
    handoff.told = told;
    TestPool& source = Source(handoff.source).pool;
    const auto n_planes = int32_t(kPlanes.size());
    for (int32_t plane = 0; plane < std::min(arrived.n_planes + 1, n_planes); ++plane)
      for (size_t i = 0;
           i < (plane < arrived.n_planes ? handoff.named.size() : size_t(arrived.n_pages)); ++i) {
        const auto sent = source.cell(handoff.pages[i], plane);
        REQUIRE(
            std::equal(sent.begin(), sent.end(), node.pool.cell(handoff.named[i], plane).begin()));
      }
    if (arrived.n_planes < n_planes) return;
    handoff.arrived = true;
    TakeBack(node, handoff);
  }
  void OnInflow(CoreNode& node, const InflowFailed& failed) {
    Handoff& handoff = handoffs_.at(failed.ticket_id.high);
    REQUIRE(&node == &Sink(handoff.sink));
    REQUIRE_FALSE(handoff.named.empty());
    REQUIRE_FALSE(handoff.over());
    REQUIRE_FALSE(failed.status.ok());
    handoff.aborted = true;
    TakeBack(node, handoff);
  }
  // After the last event the engine reuses the pages at once.
  static void TakeBack(CoreNode& node, const Handoff& handoff) {
    for (const int32_t page : handoff.named) {
      node.kept.erase(page);
      node.Own(page);
    }
  }

  void OnArrived(CoreNode& node, const HandoffArrived& arrived) {
    Handoff& handoff = handoffs_.at(arrived.ticket_id.high);
    REQUIRE(handoff.ticket.promise_pages > 0);
    REQUIRE_FALSE(handoff.arrived);
    REQUIRE_FALSE(handoff.aborted);
    REQUIRE(&node == &Sink(handoff.sink));
    REQUIRE(arrived.request_id == handoff.ticket.request_id);
    REQUIRE(arrived.record.first_token == int32_t(handoff.ticket.request_id));
    REQUIRE(arrived.pages.size() == size_t(handoff.ticket.promise_pages));
    for (const auto& [n, piece] : handoffs_) {
      if (piece.ticket.promise != handoff.ticket.promise) continue;
      REQUIRE(piece.committed);
      for (size_t i = 0; i < piece.pages.size(); ++i)
        REQUIRE(SamePage(Source(piece.source).pool, piece.pages[i], node.pool,
                         arrived.pages[size_t(piece.ticket.first_page) + i]));
    }
    handoff.arrived = handoff.opened_at_sink = true;
    // The request ends at once, so the engine owns its pages again.
    for (const int32_t page : arrived.pages) node.Own(page);
  }

  CoreCluster cluster_;
  Totals* const totals_;
  std::map<uint64_t, Handoff> handoffs_;
};

TEST_CASE("random interleavings keep every promise") {
  Totals totals;
  for (uint64_t seed = 1; seed <= 1000; ++seed) {
    INFO("seed " << seed);
    Run(seed, &totals).Play();
  }
  WARN("committed " << totals.committed << " failed " << totals.failed << " arrived "
                    << totals.arrived << " aborted " << totals.aborted << " no room "
                    << totals.no_room << " crc errors " << totals.crc_errors << " resent "
                    << totals.resent << " refused " << totals.refused << " resumed "
                    << totals.resumed << " kept " << totals.kept << " inflows arrived "
                    << totals.inflows_arrived << " failed " << totals.inflows_failed

                    << " in parts arrived " << totals.parts_arrived << " failed "
                    << totals.parts_failed << " planes told " << totals.planes_reported
                    << " pages told " << totals.pages_reported);
  // The runs met the events that they are for.
  CHECK(totals.committed > 1'000);
  CHECK(totals.failed > 1'000);
  CHECK(totals.arrived >= totals.committed);
  CHECK(totals.aborted > 500);
  CHECK(totals.no_room > 500);
  CHECK(totals.crc_errors > 500);
  CHECK(totals.resent > 500);
  CHECK(totals.refused > 500);
  CHECK(totals.resumed > 100);
  CHECK(totals.kept > 100);
  CHECK(totals.parts_arrived > 50);
  CHECK(totals.parts_failed > 100);
  CHECK(totals.inflows_arrived > 100);
  CHECK(totals.inflows_failed > 100);
  CHECK(totals.planes_reported > totals.inflows_arrived);
  CHECK(totals.pages_reported > 100);
}

}  // namespace
}  // namespace baton
