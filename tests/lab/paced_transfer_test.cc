// Two Transfers with their link threads over an emulated link.
#include <chrono>
#include <memory>
#include <vector>

#include "lab/paced_link.h"
#include "tests/kvtransfer/transfer_node.h"
#include "tests/support/mem_link.h"

#include <catch2/catch.hpp>

namespace baton {
namespace {

TEST_CASE("a paced link: byte-exact, and as slow as it is told") {
  MemNetwork network(MemNetwork::Mode::kThreaded, 1);
  constexpr int32_t kPages = 16;
  NodeOptions options[2] = {TestOptions(1), TestOptions(2)};
  for (NodeOptions& o : options) o.chunk_bytes = 3'000;
  const auto make_link = [&network] {
    return absl::StatusOr<std::unique_ptr<Link>>(network.MakeLink());
  };
  const TransferStarter start = [&](const NodeOptions& o, const PoolView& pool, auto on_event) {
    return Transfer::StartOver(Paced(make_link, {.bytes_per_second = 1e6, .latency_us = 200}), o,
                               o.facts, pool, std::move(on_event));
  };
  TransferNode source(start, options[0], kPages, {1'000, 2'500, 700}, 8);
  TransferNode sink(start, options[1], kPages, {1'000, 2'500, 700}, 8);
  std::vector<int32_t> pages(kPages);
  for (int32_t page = 0; page < kPages; ++page) {
    source.pool().FillPage(page, 2);
    pages[size_t(page)] = page;
  }
  sink.LendAll();
  const Ticket ticket = MakeTicket(1, 2, kPages, kPages);
  const auto begun = std::chrono::steady_clock::now();
  source.Open(ticket, sink);
  source.SendAndCommit(ticket, pages);
  const auto arrived = sink.Wait<HandoffArrived>();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begun;
  REQUIRE(arrived.has_value());
  for (size_t i = 0; i < pages.size(); ++i)
    CHECK(SamePage(source.pool(), pages[i], sink.pool(), arrived->pages[i]));
  CHECK(took.count() >= kPages * 4'200 / 1e6);  // never faster; the machine may be slower
  REQUIRE(source.Wait<HandoffEnded>().has_value());
  source.Stop();
  sink.Stop();
}

}  // namespace
}  // namespace baton
