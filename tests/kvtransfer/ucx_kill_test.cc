// Either end of a handoff between two processes is killed at some moment, again and again: the
// other end gives it up, hands over with the next process, and nothing stays behind in shared
// memory. Three kills of each; "[thousand]": a thousand of each by shared memory, eight minutes.
#include <chrono>
#include <random>
#include <thread>

#include "kvtransfer/protocol/crc32c.h"
#include "tests/kvtransfer/peer_process.h"
#include "tests/kvtransfer/process_view.h"
#include "tests/kvtransfer/transfer_node.h"
#include "tests/support/child_process.h"

#include <catch2/catch.hpp>

namespace baton {
namespace {

constexpr int32_t kPages = 16;
constexpr int64_t kCell = 1 << 20;
constexpr unsigned kHalf = kPages;  // of the chunks of a handoff

NodeOptions QuickOptions(KvTransport transport, Incarnation incarnation) {
  NodeOptions options = OptionsBy(transport, incarnation);
  options.peer_timeout_ms = 400;  // a killed source is awaited that long
  return options;
}

// One source here, whose sinks are killed.
void KillSinks(KvTransport transport, int n_kills, std::mt19937& random) {
  UcxNode source(QuickOptions(transport, 1), kPages, {kCell, kCell});
  REQUIRE(source.status().ok());
  uint32_t crc = 0;
  for (int32_t page = 0; page < kPages; ++page) {
    source.pool().FillPage(page, 8);
    crc = ExtendCrc32c(crc, source.pool().page(page).data(), source.pool().page(page).size());
  }
  int n_cut = 0;
  for (uint64_t n = 0; n <= static_cast<uint64_t>(n_kills); ++n) {
    const bool is_last = n == static_cast<uint64_t>(n_kills);
    ChildProcess child(SinkCommand(transport, kPages, kCell));
    const Ticket ticket = MakeTicket(n, 2, kPages, kPages);
    const uint64_t sent = source.transfer().counters().chunks_sent;
    source.transfer().Post(OpenHandoff{ticket, 2, child.ReadLine()});
    source.SendAndCommit(ticket, AllPages(kPages));
    if (!is_last) {
      INFO("kill " << n);
      if (!source.Wait<HandoffPromised>().has_value()) {
        const auto ended = source.Wait<HandoffEnded>(0);
        FAIL("no promise: " << (ended ? ended->status.ToString() : "and no end"));
      }
      for (const uint64_t at = sent + random() % kHalf;
           source.transfer().counters().chunks_sent < at;)
        std::this_thread::sleep_for(std::chrono::microseconds(100));
      child.Signal(SIGKILL);
    }
    const auto ended = source.Wait<HandoffEnded>(5'000);
    INFO("kill " << n);
    REQUIRE(ended.has_value());
    n_cut += !ended->status.ok();
    if (!is_last) continue;
    REQUIRE(ended->status.ok());
    CHECK(child.ReadLine() == std::to_string(crc));
  }
  CHECK(n_cut > 0);
}

// One sink here, whose sources are killed.
void KillSources(KvTransport transport, int n_kills, std::mt19937& random) {
  UcxNode sink(QuickOptions(transport, 2), kPages, {kCell, kCell});
  REQUIRE(sink.status().ok());
  sink.LendAll();
  int n_cut = 0;
  for (int n = 0; n <= n_kills; ++n) {
    const bool is_last = n == n_kills;
    const uint64_t received = sink.transfer().counters().chunks_received;
    ChildProcess child(SourceCommand(transport, kPages, kCell, sink.transfer().address(),
                                     static_cast<uint64_t>(n), is_last));
    REQUIRE(child.ReadLine() == "promised");
    INFO("kill " << n);
    if (!is_last) {
      for (const uint64_t at = received + random() % kHalf;
           sink.transfer().counters().chunks_received < at;)
        std::this_thread::sleep_for(std::chrono::microseconds(100));
      child.Signal(SIGKILL);
      const auto aborted = sink.Wait<HandoffAborted>(5'000);
      REQUIRE(aborted.has_value());
      ++n_cut;
      continue;
    }
    const auto arrived = sink.Wait<HandoffArrived>();
    REQUIRE(arrived.has_value());
    TestPool expected(kPages, {kCell, kCell});
    for (int32_t i = 0; i < kPages; ++i) {
      expected.FillPage(i, 8);
      CHECK(SamePage(expected, i, sink.pool(), arrived->pages[size_t(i)]));
    }
  }
  CHECK(n_cut == n_kills);
}

void KillEnds(KvTransport transport, bool is_sink, int n_kills) {
  // UCX opens some descriptors once for a process.
  REQUIRE(UcxNode(QuickOptions(transport, 3), kPages, {kCell, kCell}).status().ok());
  const int files = CountEntries("/dev/shm", "ucx");
  const int descriptors = CountEntries("/proc/self/fd", "");
  std::mt19937 random(is_sink ? 11 : 12);
  (is_sink ? KillSinks : KillSources)(transport, n_kills, random);
  CHECK(CountEntries("/dev/shm", "ucx") == files);
  CHECK(CountEntries("/proc/self/fd", "") == descriptors);
}

TEST_CASE("an end that is killed leaves no shared memory or descriptor, and the next is served") {
  KillEnds(GENERATE(KvTransport::kTcp, KvTransport::kShm), GENERATE(true, false), 3);
}

TEST_CASE("a thousand sinks are killed", "[.][thousand]") {
  KillEnds(KvTransport::kShm, true, 1'000);
}

TEST_CASE("a thousand sources are killed", "[.][thousand]") {
  KillEnds(KvTransport::kShm, false, 1'000);
}

}  // namespace
}  // namespace baton
