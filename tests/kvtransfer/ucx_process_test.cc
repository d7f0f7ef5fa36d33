// Transfers over UCX, by tcp and by shared memory, between two processes, and the state after one
// of them dies or hangs.
#include <chrono>
#include <memory>
#include <thread>

#include "kvtransfer/links/ucx_link.h"
#include "kvtransfer/protocol/crc32c.h"
#include "tests/kvtransfer/peer_process.h"
#include "tests/kvtransfer/transfer_node.h"
#include "tests/support/child_process.h"
#include "tests/support/tapped_link.h"

#include <catch2/catch.hpp>

namespace baton {
namespace {

constexpr int32_t kPages = 64;
constexpr int64_t kCell = 1 << 20;  // 128 MiB in total: long enough to be interrupted

struct SourceHere {
  explicit SourceHere(KvTransport transport)
      : by(transport),
        child(SinkCommand(transport, kPages, kCell)),
        node(
            [this](const NodeOptions& options, const PoolView& pool, auto on_event) {
              return Transfer::StartOver([this] { return MakeTappedUcxLink(); }, options,
                                         options.facts, pool, std::move(on_event));
            },
            Options(), kPages, {kCell, kCell}) {
    REQUIRE(node.status().ok());
    address = child.ReadLine();
    for (int32_t page = 0; page < kPages; ++page) node.pool().FillPage(page, 8);
  }
  static NodeOptions Options() {
    NodeOptions options = TestOptions(1);
    options.peer_timeout_ms = 2'000;
    return options;
  }
  void Start() {
    Send();
    node.Commit(ticket);
  }
  void Send() {
    node.transfer().Post(OpenHandoff{ticket, 2, address});
    REQUIRE(node.Wait<HandoffPromised>().has_value());
    node.Send(ticket, AllPages(kPages));
    while (node.transfer().counters().chunks_sent < 12)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  absl::StatusOr<std::unique_ptr<Link>> MakeTappedUcxLink() {
    ASSIGN_OR_RETURN(auto link, MakeUcxLink("127.0.0.1", {.transport = by}));
    auto tapped = std::make_unique<TappedLink>(std::move(link));
    tap = tapped.get();
    return tapped;
  }

  const KvTransport by;
  ChildProcess child;
  TappedLink* tap = nullptr;
  TransferNode node;
  std::string address;
  const Ticket ticket = MakeTicket(1, 2, kPages, kPages);
};

// Starts another process whose handoff to `sink` has begun and cannot end without COMMIT.
std::unique_ptr<ChildProcess> SourceInTheMiddle(KvTransport transport, UcxNode& sink) {
  REQUIRE(sink.status().ok());
  sink.LendAll();
  auto child = std::make_unique<ChildProcess>(
      SourceCommand(transport, kPages, kCell, sink.transfer().address(), 1, false));
  REQUIRE(child->ReadLine() == "promised");
  while (sink.transfer().counters().chunks_received < 3)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return child;
}

double SecondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Returns the CRC that the sink's process prints for its pages.
std::string CrcOf(TestPool& pool) {
  uint32_t crc = 0;
  for (int32_t page = 0; page < kPages; ++page)
    crc = ExtendCrc32c(crc, pool.page(page).data(), pool.page(page).size());
  return std::to_string(crc);
}

TEST_CASE("a handoff to another process arrives whole") {
  SourceHere source(GENERATE(KvTransport::kTcp, KvTransport::kShm));
  source.Start();
  const auto ended = source.node.Wait<HandoffEnded>();
  REQUIRE(ended.has_value());
  CHECK(ended->status.ok());
  CHECK(source.child.ReadLine() == CrcOf(source.node.pool()));
  CHECK(source.child.Finish() == 0);
}

TEST_CASE("a handoff whose connections break in the middle goes on with what is missing") {
  SourceHere source(GENERATE(KvTransport::kTcp, KvTransport::kShm));
  source.Send();  // without COMMIT it cannot end before the last break
  Transfer& transfer = source.node.transfer();
  uint64_t n_breaks = 0;
  for (const uint64_t at : {12, 40, 80}) {
    while (transfer.counters().chunks_sent < at)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    source.tap->BreakConnections();
    ++n_breaks;
    const auto start = std::chrono::steady_clock::now();
    while (transfer.counters().handoffs_resumed < n_breaks && SecondsSince(start) < 5)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  source.node.Commit(source.ticket);
  const auto ended = source.node.Wait<HandoffEnded>();
  REQUIRE(ended.has_value());
  INFO(ended->status);
  CHECK(ended->status.ok());
  CHECK(source.child.ReadLine() == CrcOf(source.node.pool()));
  const TransferCounters counters = transfer.counters();
  CHECK(counters.connections_lost == n_breaks);
  CHECK(counters.handoffs_resumed == n_breaks);
  CHECK(counters.kept_chunks > 12);
  // At most a window is sent again per break.
  const auto window = static_cast<uint64_t>(TransferOptions().window_bytes);
  CHECK(counters.bytes_sent <= uint64_t{kPages} * 2 * kCell + n_breaks * window);
}

TEST_CASE("a sink killed in the middle ends the handoff at once, and a new one can follow") {
  SourceHere source(GENERATE(KvTransport::kTcp, KvTransport::kShm));
  source.Start();
  const auto start = std::chrono::steady_clock::now();
  source.child.Signal(SIGKILL);
  const auto ended = source.node.Wait<HandoffEnded>();
  REQUIRE(ended.has_value());
  CHECK(ended->status.code() == absl::StatusCode::kUnavailable);
  CHECK(SecondsSince(start) < 1.5);

  ChildProcess next(SinkCommand(source.by, kPages, kCell));
  source.node.transfer().Post(OpenHandoff{source.ticket, 2, next.ReadLine()});
  source.node.SendAndCommit(source.ticket, AllPages(kPages));
  CHECK(source.node.Wait<HandoffEnded>()->status.ok());
}

TEST_CASE("a sink that hangs is given up after the timeout") {
  SourceHere source(GENERATE(KvTransport::kTcp, KvTransport::kShm));
  source.Start();
  source.child.Signal(SIGSTOP);
  const auto start = std::chrono::steady_clock::now();
  const auto ended = source.node.Wait<HandoffEnded>();
  REQUIRE(ended.has_value());
  CHECK(ended->status.code() == absl::StatusCode::kUnavailable);
  CHECK(SecondsSince(start) < 4);
}

TEST_CASE("a source killed in the middle gives the sink its pages back when it does not return") {
  const KvTransport transport = GENERATE(KvTransport::kTcp, KvTransport::kShm);
  NodeOptions options = OptionsBy(transport, 2);
  options.peer_timeout_ms = 1'000;
  UcxNode sink(options, kPages, {kCell, kCell});
  const std::unique_ptr<ChildProcess> child = SourceInTheMiddle(transport, sink);
  const auto start = std::chrono::steady_clock::now();
  child->Signal(SIGKILL);
  const auto aborted = sink.Wait<HandoffAborted>();
  REQUIRE(aborted.has_value());
  CHECK(aborted->status.code() == absl::StatusCode::kUnavailable);
  CHECK(SecondsSince(start) < 2);
  sink.transfer().Post(ReclaimPages{kPages});
  CHECK(sink.Wait<PagesReturned>()->pages.size() == kPages);
}

TEST_CASE("a sink that cancels in the middle ends the source in the other process") {
  const KvTransport transport = GENERATE(KvTransport::kTcp, KvTransport::kShm);
  UcxNode sink(OptionsBy(transport, 2), kPages, {kCell, kCell});
  const std::unique_ptr<ChildProcess> child = SourceInTheMiddle(transport, sink);
  sink.transfer().Post(CancelHandoff{{1, ~uint64_t{1}}, 1});
  CHECK(sink.Wait<HandoffAborted>()->status.code() == absl::StatusCode::kCancelled);
  CHECK(child->ReadLine() == "CANCELLED: cancelled");
  CHECK(child->Finish() == 0);
  sink.transfer().Post(ReclaimPages{kPages});
  CHECK(sink.Wait<PagesReturned>()->pages.size() == kPages);
}

#ifndef __SANITIZE_ADDRESS__  // the sanitizer's own handler counts there
// An operator must see the signal; UCX's own handlers would print a backtrace and hide it.
TEST_CASE("a crash is a plain crash") {
  ChildProcess child({TRANSFER_PEER, "sink", "tcp", "4", "64"});
  REQUIRE_FALSE(child.ReadLine().empty());
  child.Signal(SIGSEGV);
  CHECK(child.ReadLine().empty());
  CHECK(child.WaitForSignal() == SIGSEGV);
}
#endif

TEST_CASE("UCX says nothing where its handlers are off from the start, as in serve") {
  const std::string transport = GENERATE("tcp", "shm");
  ChildProcess child(
      {"/usr/bin/env", "UCX_HANDLE_ERRORS=none", TRANSFER_PEER, "sink", transport, "4", "64"});
  CHECK(child.ReadLine().starts_with("127.0.0.1:"));  // its own first line, no warning
}

}  // namespace
}  // namespace baton
