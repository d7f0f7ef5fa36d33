// Two Transfers, each with its own link thread, over a MemNetwork: the threads of this room without
// UCX, so that a race detector sees every access.
#include <atomic>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "common/mailbox_thread.h"
#include "kvtransfer/protocol/host_copier.h"
#include "tests/kvtransfer/transfer_node.h"
#include "tests/support/mem_link.h"
#include "tests/support/tapped_link.h"

#include <catch2/catch.hpp>

namespace baton {
namespace {

// Copies on a thread of its own, as a device does on a stream, and wakes the link thread.
class StreamCopier final : public CellCopier {
 public:
  StreamCopier(const PoolView& pool, std::function<void()> wake)
      : host_(pool),
        wake_(std::move(wake)),
        stream_("copies", 1 << 10, [this](const Copy& copy) { Execute(copy); }) {}

  std::byte* NewSlots(int64_t bytes) override { return host_.NewSlots(bytes); }
  void RegisterPool(Link*) override {}
  std::byte* InPlace(const Cells&) override { return nullptr; }
  bool Gather(OperationId id, const Cells& cells, std::byte* slot, uint32_t*) override {
    return Submit({CellsGathered{id}, cells.rect, {}, slot}, cells);
  }
  bool Scatter(OperationId id, const Cells& cells, const std::byte* slot) override {
    return Submit({CellsScattered{id}, cells.rect, {}, const_cast<std::byte*>(slot)}, cells);
  }
  bool Poll(std::vector<CopyEvent>* events) override { return ended_.Drain(events); }

 private:
  struct Copy {
    CopyEvent end;
    CellRect rect;
    std::vector<int32_t> page_ids;
    std::byte* slot;
  };
  bool Submit(Copy copy, const Cells& cells) {
    copy.page_ids.assign(cells.page_ids.begin(), cells.page_ids.end());
    BATON_CHECK(stream_.TryPost(std::move(copy)));
    return false;
  }
  void Execute(const Copy& copy) {
    const Cells cells{copy.rect, copy.page_ids};
    uint32_t crc = 0;
    if (std::holds_alternative<CellsGathered>(copy.end))
      host_.Gather(0, cells, copy.slot, &crc);
    else
      host_.Scatter(0, cells, copy.slot);
    BATON_CHECK(ended_.TryPost(CopyEvent(copy.end)));
    wake_();
  }

  HostCopier host_;
  const std::function<void()> wake_;
  Mailbox<CopyEvent> ended_{1 << 10};
  MailboxThread<Copy> stream_;
};

// streams: cells are copied on threads of their own; else on return.
TransferStarter StarterOver(MemNetwork* network, bool streams = false) {
  return [=](const NodeOptions& options, const PoolView& pool, auto on_event) {
    CopierMaker make_copier;
    if (streams)
      make_copier = [pool](std::function<void()> wake) {
        return std::make_unique<StreamCopier>(pool, std::move(wake));
      };
    return Transfer::StartOver(
        [network] { return absl::StatusOr<std::unique_ptr<Link>>(network->MakeLink()); }, options,
        options.facts, pool, std::move(on_event), std::move(make_copier));
  };
}

// Starts a Transfer over a tapped link, and stores the tap in *tap.
TransferStarter StarterOver(MemNetwork* network, std::atomic<TappedLink*>* tap) {
  return [network, tap](const NodeOptions& options, const PoolView& pool, auto on_event) {
    return Transfer::StartOver(
        [network, tap]() -> absl::StatusOr<std::unique_ptr<Link>> {
          auto link = std::make_unique<TappedLink>(std::unique_ptr<Link>(network->MakeLink()));
          *tap = link.get();
          return link;
        },
        options, options.facts, pool, std::move(on_event));
  };
}

TEST_CASE("many handoffs between two link threads, with cancels from other threads") {
  const bool streams = GENERATE(false, true);
  MemNetwork network(MemNetwork::Mode::kThreaded, 1);
  const TransferStarter start = StarterOver(&network, streams);
  constexpr int32_t kPages = 24;
  NodeOptions options[2] = {TestOptions(1), TestOptions(2)};
  for (NodeOptions& o : options) o.chunk_bytes = 3'000;
  TransferNode source(start, options[0], kPages, {1'000, 2'500, 700}, 8);
  TransferNode sink(start, options[1], kPages, {1'000, 2'500, 700}, 8);
  for (int32_t page = 0; page < kPages; ++page) source.pool().FillPage(page, 2);
  sink.LendAll();

  constexpr uint64_t kHandoffs = 400;
  std::atomic<uint64_t> opened = 0;
  std::atomic<bool> done = false;
  std::thread canceller([&] {
    std::mt19937 random(5);
    while (!done) {
      const uint64_t n = opened.load();
      if (n > 0 && random() % 4 == 0)
        (random() % 2 ? source : sink).transfer().Post(CancelHandoff{{n, ~n}, 1});
      std::this_thread::yield();
    }
  });
  std::thread watcher([&] {
    while (!done) {
      static_cast<void>(source.transfer().counters());
      static_cast<void>(sink.transfer().counters());
      std::this_thread::yield();
    }
  });
  int n_committed = 0, n_arrived = 0;
  for (uint64_t n = 1; n <= kHandoffs; ++n) {
    const Ticket ticket = MakeTicket(n, 2, int32_t(n % 8), int32_t(n % 8) + 2);
    std::vector<int32_t> pages;
    for (int32_t i = 0; i < ticket.kv_pages; ++i)
      pages.push_back(int32_t(n + uint64_t(i)) % kPages);
    source.Open(ticket, sink);
    if (n % 3 == 0) opened = n;  // for the cancelling thread
    source.SendAndCommit(ticket, pages);
    const auto ended = source.Wait<HandoffEnded>();
    REQUIRE(ended.has_value());
    n_committed += ended->status.ok();
    while (const auto arrived = sink.Wait<HandoffArrived>(0)) {
      ++n_arrived;
      if (arrived->ticket_id.high == n)
        for (size_t i = 0; i < pages.size(); ++i)
          REQUIRE(SamePage(source.pool(), pages[i], sink.pool(), arrived->pages[i]));
      sink.transfer().Post(LendPages{arrived->pages, 0});
    }
  }
  done = true;
  canceller.join();
  watcher.join();
  CHECK(n_committed >= int(kHandoffs / 2));
  CHECK(n_arrived >= n_committed);
  source.Stop();
  sink.Stop();
  size_t back = sink.Wait<PagesReturned>(0)->pages.size();
  while (const auto arrived = sink.Wait<HandoffArrived>(0)) back += arrived->pages.size();
  CHECK(back == kPages);
}

TEST_CASE("connections that another thread breaks: handoffs go on, byte-exact") {
  MemNetwork network(MemNetwork::Mode::kThreaded, 1);
  std::atomic<TappedLink*> tap = nullptr;
  constexpr int32_t kPages = 16;
  NodeOptions options[2] = {TestOptions(1), TestOptions(2)};
  for (NodeOptions& o : options) o.chunk_bytes = 3'000;
  TransferNode source(StarterOver(&network, &tap), options[0], kPages, {1'000, 2'500, 700}, 8);
  TransferNode sink(StarterOver(&network), options[1], kPages, {1'000, 2'500, 700}, 8);
  for (int32_t page = 0; page < kPages; ++page) source.pool().FillPage(page, 2);
  sink.LendAll();
  std::vector<int32_t> pages(8);
  for (int32_t i = 0; i < 8; ++i) pages[size_t(i)] = i;

  std::atomic<bool> done = false;
  std::thread breaker([&] {
    std::mt19937 random(5);
    while (!done) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10 + random() % 30));
      tap.load()->BreakConnections();
    }
  });
  // Runs until ten were resumed. Each handoff comes in two halves, so that a break finds it open.
  uint64_t n = 0;
  while (source.transfer().counters().handoffs_resumed < 10 && n < 2'000) {
    const Ticket ticket = MakeTicket(++n, 2, 8, 8);
    source.Open(ticket, sink);
    source.Send(ticket, pages);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    source.Commit(ticket);
    const auto ended = source.Wait<HandoffEnded>();
    REQUIRE(ended.has_value());
    INFO(ended->status);
    REQUIRE(ended->status.ok());
    const auto arrived = sink.Wait<HandoffArrived>();
    REQUIRE(arrived.has_value());
    for (size_t i = 0; i < pages.size(); ++i)
      REQUIRE(SamePage(source.pool(), pages[i], sink.pool(), arrived->pages[i]));
    sink.transfer().Post(LendPages{arrived->pages, 0});
  }
  done = true;
  breaker.join();
  CHECK(source.transfer().counters().handoffs_resumed >= 10);
  source.Stop();
  sink.Stop();
  CHECK(sink.Wait<PagesReturned>(0)->pages.size() == size_t(kPages));
}

TEST_CASE("the longer nothing comes, the more rarely a link thread looks") {
  MemNetwork network(MemNetwork::Mode::kThreaded, 1);
  std::atomic<TappedLink*> tap = nullptr;
  TransferNode sink(StarterOver(&network, &tap), TestOptions(1), 8, {5'000});
  sink.transfer().Post(AwaitInflow{{1, 1}, 1, {0, 1}});
  REQUIRE_FALSE(sink.Wait<InflowFailed>(200).has_value());
  const uint64_t before = tap.load()->polls();
  CHECK(before >= 3);  // the first polls are frequent, even with other load
  REQUIRE_FALSE(sink.Wait<InflowFailed>(1'000).has_value());
  CHECK(tap.load()->polls() - before <= 110);
  sink.transfer().Post(CancelHandoff{{1, 1}, 1});
  CHECK(sink.Wait<InflowFailed>().has_value());
  sink.Stop();
}

TEST_CASE("a Transfer that is destroyed while handoffs run gives all pages back") {
  for (int round = 0; round < 20; ++round) {
    MemNetwork network(MemNetwork::Mode::kThreaded, 1);
    const TransferStarter start = StarterOver(&network);
    TransferNode source(start, TestOptions(1), 8, {5'000});
    TransferNode sink(start, TestOptions(2), 8, {5'000});
    sink.LendAll();
    for (uint64_t n = 1; n <= 6; ++n) {
      const Ticket ticket = MakeTicket(n, 2, 3, 3);
      source.Open(ticket, sink);
      source.transfer().Post(SendCells{.ticket_id = ticket.id, .pages = {0, 1, 2}});
    }
    (round % 2 == 0 ? source : sink).Stop();
    for (int i = 0; i < 6; ++i) REQUIRE(source.Wait<HandoffEnded>().has_value());
    sink.Stop();
    CHECK(sink.Wait<PagesReturned>(0)->pages.size() == 8);
  }
}

}  // namespace
}  // namespace baton
