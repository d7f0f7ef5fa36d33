// Two Transfers over UCX in one process: by tcp, by shared memory, and by one each.
#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <random>
#include <thread>

#include "kvtransfer/links/socket_filter.h"
#include "kvtransfer/links/ucx_link.h"
#include "lab/paced_link.h"
#include "tests/kvtransfer/process_view.h"
#include "tests/kvtransfer/transfer_node.h"

#include <catch2/catch.hpp>

namespace baton {
namespace {

std::vector<int32_t> Pages(int32_t n) {
  std::vector<int32_t> pages;
  for (int32_t i = 0; i < n; ++i) pages.push_back(i);
  return pages;
}

TEST_CASE("a handoff over UCX moves every byte") {
  const int64_t cell = GENERATE(int64_t{48}, int64_t{4'000}, int64_t{200'000}, int64_t{1'500'000});
  const int64_t gap = GENERATE(int64_t{0}, int64_t{64});
  const KvTransport at_source = GENERATE(KvTransport::kTcp, KvTransport::kShm);
  const KvTransport at_sink = GENERATE(KvTransport::kTcp, KvTransport::kShm, KvTransport::kAuto);
  UcxNode source(OptionsBy(at_source, 1), 9, {cell, cell, cell / 2}, gap);
  UcxNode sink(OptionsBy(at_sink, 2), 12, {cell, cell, cell / 2}, gap);
  REQUIRE(source.status().ok());
  REQUIRE(sink.status().ok());
  for (int32_t page = 0; page < 9; ++page) source.pool().FillPage(page, 3);
  sink.LendAll();
  const Ticket ticket = MakeTicket(1, 2, 9, 11);
  source.Open(ticket, sink);
  REQUIRE(source.Wait<HandoffPromised>().has_value());
  source.SendAndCommit(ticket, Pages(9));
  const auto arrived = sink.Wait<HandoffArrived>();
  REQUIRE(arrived.has_value());
  REQUIRE(arrived->pages.size() == 11);
  for (int32_t i = 0; i < 9; ++i)
    CHECK(SamePage(source.pool(), i, sink.pool(), arrived->pages[size_t(i)]));
  const auto ended = source.Wait<HandoffEnded>();
  REQUIRE(ended.has_value());
  CHECK(ended->status.ok());
  sink.Stop();
  CHECK(sink.Wait<PagesReturned>(0)->pages.size() == 1);
}

TEST_CASE("a promise that two sources fill over UCX is whole, whoever opens first") {
  const std::vector<int64_t> planes = {4'000, 200'000, 48};
  UcxNode tail(TestOptions(1), 7, planes), sink(TestOptions(2), 12, planes);
  UcxNode head(TestOptions(3), 7, planes);
  for (int32_t page = 0; page < 7; ++page) {
    tail.pool().FillPage(page, 3);
    head.pool().FillPage(page, 4);
  }
  sink.LendAll();
  const Ticket main = MakeMain(1, 2, 7, 8, 4), part = From(3, MakePart(main, 2, 0, 4));
  const bool part_first = GENERATE(true, false);
  if (part_first) {
    head.Open(part, sink);
    REQUIRE(head.Wait<HandoffPromised>().has_value());
  }
  tail.Open(main, sink);
  REQUIRE(tail.Wait<HandoffPromised>().has_value());
  if (!part_first) {
    head.Open(part, sink);
    REQUIRE(head.Wait<HandoffPromised>().has_value());
  }
  for (int32_t plane = 0; plane < 3; ++plane)
    tail.transfer().Post(
        SendCells{.ticket_id = main.id, .plane = plane, .first_page = 4, .pages = {4, 5, 6}});
  tail.Commit(main);
  head.SendAndCommit(part, Pages(4));
  const auto arrived = sink.Wait<HandoffArrived>();
  REQUIRE(arrived.has_value());
  CHECK(arrived->ticket_id == main.id);
  REQUIRE(arrived->pages.size() == 8);
  for (int32_t i = 0; i < 7; ++i)
    CHECK(SamePage((i < 4 ? head : tail).pool(), i, sink.pool(), arrived->pages[size_t(i)]));
  CHECK(head.Wait<HandoffEnded>()->status.ok());
  CHECK(tail.Wait<HandoffEnded>()->status.ok());
}

TEST_CASE("a slow link's rate and latency are known after a handoff and a silence") {
  NodeOptions options = TestOptions(1);
  options.chunk_bytes = 100'000;
  const auto start_paced = [](const NodeOptions& o, const PoolView& pool, auto on_event) {
    const auto make_link = [] { return MakeUcxLink("127.0.0.1"); };
    return Transfer::StartOver(Paced(make_link, {.bytes_per_second = 2e7, .latency_us = 5'000}), o,
                               o.facts, pool, std::move(on_event));
  };
  TransferNode source(start_paced, options, 16, {500'000, 500'000});
  UcxNode sink(TestOptions(2), 16, {500'000, 500'000});
  sink.LendAll();
  const Ticket ticket = MakeTicket(1, 2, 16, 16);
  source.Open(ticket, sink);
  source.SendAndCommit(ticket, Pages(16));
  REQUIRE(source.Wait<HandoffEnded>()->status.ok());
  LinkReport link;
  for (int i = 0; i < 2'000 && link.rate.round_trip_us == 0; ++i) {  // a PING comes after a second
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    link = source.transfer().links().at(0);
  }
  CHECK(link.rate.peer == 2);
  CHECK(link.address == sink.transfer().address());
  CHECK(link.bytes == std::array<uint64_t, kTraffics>{0, 16'000'000});
  CHECK(link.rate.bytes_per_second < 2.5e7);
  CHECK(link.rate.bytes_per_second > 1e7);
  CHECK(link.rate.round_trip_us >= 5'000);
  CHECK(link.rate.round_trip_us < 1'000'000);
}

TEST_CASE("an inflow over UCX lands in the pages named for it, which are told plane by plane") {
  const bool await_first = GENERATE(true, false);
  UcxNode head(TestOptions(1), 3, {4'000, 200'000, 48});
  UcxNode tail(TestOptions(2), 12, {4'000, 200'000, 48});
  for (int32_t page = 0; page < 3; ++page) head.pool().FillPage(page, 3);
  for (int32_t page = 0; page < 12; ++page) tail.pool().FillCanary(page);
  const Ticket ticket = MakeTicket(1, 2, 3, 0);
  const std::vector<int32_t> named = {7, 2, 10};
  if (await_first) tail.transfer().Post(AwaitInflow{ticket.id, 1, named});
  head.Open(ticket, tail);
  if (!await_first) {
    REQUIRE(head.Wait<HandoffNoRoom>().has_value());
    tail.transfer().Post(AwaitInflow{ticket.id, 1, named});
  }
  REQUIRE(head.Wait<HandoffPromised>().has_value());
  head.SendAndCommit(ticket, Pages(3));
  for (std::pair told(0, 0); told.first < 3;) {
    const auto arrived = tail.Wait<InflowArrived>();
    REQUIRE(arrived.has_value());
    const std::pair now(arrived->n_planes, arrived->n_pages);
    CHECK(now > told);
    told = now;
  }
  for (size_t i = 0; i < named.size(); ++i)
    CHECK(SamePage(head.pool(), int32_t(i), tail.pool(), named[i]));
  for (int32_t page = 0; page < 12; ++page)
    if (std::find(named.begin(), named.end(), page) == named.end())
      CHECK(tail.pool().HasCanary(page));
  CHECK(head.Wait<HandoffEnded>()->status.ok());
  // An awaited inflow ends with the worker.
  tail.transfer().Post(AwaitInflow{MakeTicket(2, 2, 1, 0).id, 1, {0}});
  tail.Stop();
  CHECK(tail.Wait<InflowFailed>(0)->status.code() == absl::StatusCode::kUnavailable);
}

TEST_CASE("the address is where it listens; a taken port and a foreign address are named") {
  UcxNode node(TestOptions(1), 2, {64});
  REQUIRE(node.status().ok());
  NodeOptions options = TestOptions(2);
  const std::string address = node.transfer().address();
  const int port = std::stoi(address.substr(address.rfind(':') + 1));
  options.ports = absl::StrCat(port, "-", port + 1);  // two ports, and one is taken
  UcxNode same_port(options, 2, {64});
  INFO(same_port.status());
  CHECK_FALSE(same_port.status().ok());
  CHECK(same_port.status().message().find(options.ports) != absl::string_view::npos);
  options.ports = absl::StrCat(port - 300, "-", port - 1);  // some are free
  UcxNode in_range(options, 2, {64});
  INFO(in_range.status());
  REQUIRE(in_range.status().ok());
  const std::string other = in_range.transfer().address();
  const int picked = std::stoi(other.substr(other.rfind(':') + 1));
  CHECK(picked >= port - 300);
  CHECK(picked < port);
  for (const char* host : {"203.0.113.9", "0.0.0.0", "localhost"}) {
    options.listen_host = host;
    UcxNode foreign(options, 2, {64});
    INFO(foreign.status());
    CHECK(foreign.status().code() == absl::StatusCode::kInvalidArgument);
  }
}

// A worker's own address is trusted without being named; either end's wish is enough.
TEST_CASE("KV between two ends that do not trust the network has MACs, and arrives as without") {
  const auto signs = [](const char* of_source, const char* of_sink) {
    NodeOptions options[2] = {TestOptions(1), TestOptions(2)};
    options[0].trusted_cidrs = of_source;
    options[1].trusted_cidrs = of_sink;
    UcxNode source(options[0], 4, {300'000}), sink(options[1], 4, {300'000});
    for (int32_t page = 0; page < 4; ++page) source.pool().FillPage(page, 8);
    sink.LendAll();
    const Ticket ticket = MakeTicket(1, 2, 4, 4);
    source.Open(ticket, sink);
    source.SendAndCommit(ticket, Pages(4));
    const auto arrived = sink.Wait<HandoffArrived>();
    REQUIRE(arrived.has_value());
    for (int32_t i = 0; i < 4; ++i)
      CHECK(SamePage(source.pool(), i, sink.pool(), arrived->pages[size_t(i)]));
    CHECK(source.Wait<HandoffEnded>()->status.ok());
    const TransferCounters counters = source.transfer().counters();
    CHECK((counters.signed_chunks == 0 || counters.signed_chunks == counters.chunks_sent));
    return counters.signed_chunks > 0;
  };
  CHECK_FALSE(signs("10.0.0.0/8", "10.0.0.0/8"));
  CHECK(signs("", "127.0.0.0/8"));
  CHECK(signs("127.0.0.0/8", ""));
}

// Whether a TCP connection from this address of the machine to `port` of 127.0.0.1 comes about.
bool Reaches(const char* from, int port) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  ::inet_pton(AF_INET, from, &address.sin_addr);
  REQUIRE(::bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
  ::inet_pton(AF_INET, "127.0.0.1", &address.sin_addr);
  address.sin_port = htons(static_cast<uint16_t>(port));
  ::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address));
  pollfd ready{fd, POLLOUT, 0};
  const bool reached = ::poll(&ready, 1, 300) == 1 && (ready.revents & POLLERR) == 0;
  ::close(fd);
  return reached;
}

int PortOf(int socket) {
  sockaddr_in address{};
  socklen_t length = sizeof(address);
  REQUIRE(::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &length) == 0);
  return ntohs(address.sin_port);
}

// A few bytes of a stranger would end a process with UCX 1.13.
TEST_CASE("packets of hosts that are not allowed do not reach UCX, those of workers do") {
  in_addr host{};
  ::inet_pton(AF_INET, "127.0.0.1", &host);
  const KvTransport transport = GENERATE(KvTransport::kTcp, KvTransport::kShm);
  NodeOptions options[2] = {OptionsBy(transport, 1), OptionsBy(transport, 2)};
  const size_t before = ListenersAt(host).size();
  UcxNode open(options[0], 2, {64});
  REQUIRE(ListenersAt(host).size() == before + 2);
  for (const int socket : ListenersAt(host)) CHECK(Reaches("127.0.0.9", PortOf(socket)));
  options[1].allowed_cidrs = "10.0.0.0/8,127.0.0.7";
  UcxNode guarded(options[1], 2, {64});
  guarded.LendAll();
  int n_guarded = 0;
  for (const int socket : ListenersAt(host)) {
    n_guarded += !Reaches("127.0.0.9", PortOf(socket));
    CHECK(Reaches("127.0.0.7", PortOf(socket)));
  }
  CHECK(n_guarded == 2);
  const Ticket ticket = MakeTicket(1, 2, 2, 2);
  open.Open(ticket, guarded);
  open.SendAndCommit(ticket, Pages(2));
  CHECK(open.Wait<HandoffEnded>()->status.ok());
}

// Loopback is not enough: two workers on two hosts use a real device.
TEST_CASE("a handoff works at every address of this machine") {
  ifaddrs* list = nullptr;
  REQUIRE(::getifaddrs(&list) == 0);
  int n_tried = 0;
  for (const ifaddrs* at = list; at != nullptr; at = at->ifa_next) {
    if (at->ifa_addr == nullptr || at->ifa_addr->sa_family != AF_INET ||
        (at->ifa_flags & IFF_UP) == 0 || (at->ifa_flags & IFF_RUNNING) == 0)
      continue;
    char host[INET_ADDRSTRLEN];
    ::inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(at->ifa_addr)->sin_addr, host,
                sizeof(host));
    INFO(at->ifa_name << " " << host);
    NodeOptions options[2] = {TestOptions(1), TestOptions(2)};
    for (NodeOptions& o : options) o.listen_host = host;
    UcxNode source(options[0], 4, {300'000}), sink(options[1], 4, {300'000});
    INFO(source.status());
    REQUIRE(source.status().ok());
    sink.LendAll();
    const Ticket ticket = MakeTicket(1, 2, 4, 4);
    source.Open(ticket, sink);
    source.SendAndCommit(ticket, Pages(4));
    const auto ended = source.Wait<HandoffEnded>();
    REQUIRE(ended.has_value());
    CHECK(ended->status.ok());
    ++n_tried;
  }
  ::freeifaddrs(list);
  CHECK(n_tried > 0);
}

TEST_CASE("an address without a listener ends the handoff soon") {
  UcxNode source(TestOptions(1), 2, {64});
  const Ticket ticket = MakeTicket(1, 2, 1, 1);
  source.transfer().Post(OpenHandoff{ticket, 2, "127.0.0.1:1"});
  const auto ended = source.Wait<HandoffEnded>(10'000);
  REQUIRE(ended.has_value());
  CHECK(ended->status.code() == absl::StatusCode::kUnavailable);
  source.transfer().Post(OpenHandoff{ticket, 2, "no address"});
  CHECK(source.Wait<HandoffEnded>(10'000)->status.code() == absl::StatusCode::kUnavailable);
}

TEST_CASE("both workers can be source and sink of each other at once") {
  const KvTransport transport = GENERATE(KvTransport::kTcp, KvTransport::kShm);
  UcxNode a(OptionsBy(transport, 1), 32, {30'000, 50'000});
  UcxNode b(OptionsBy(transport, 2), 32, {30'000, 50'000});
  for (TransferNode* node : {&a, &b}) {
    LendPages lend;
    for (int32_t page = 0; page < 32; ++page) {
      if (page < 16)
        node->pool().FillPage(page, 9);
      else
        lend.pages.push_back(page);
    }
    node->transfer().Post(std::move(lend));
  }
  const Ticket to_b = MakeTicket(1, 2, 16, 16), to_a = From(2, MakeTicket(2, 1, 16, 16));
  a.Open(to_b, b);
  b.Open(to_a, a);
  a.SendAndCommit(to_b, Pages(16));
  b.SendAndCommit(to_a, Pages(16));
  const auto at_b = b.Wait<HandoffArrived>();
  const auto at_a = a.Wait<HandoffArrived>();
  REQUIRE(at_b.has_value());
  REQUIRE(at_a.has_value());
  for (int32_t i = 0; i < 16; ++i) {
    CHECK(SamePage(a.pool(), i, b.pool(), at_b->pages[size_t(i)]));
    CHECK(SamePage(b.pool(), i, a.pool(), at_a->pages[size_t(i)]));
  }
  CHECK(a.Wait<HandoffEnded>()->status.ok());
  CHECK(b.Wait<HandoffEnded>()->status.ok());
}

TEST_CASE("many handoffs through a small receive pool: all arrive, in the order they asked") {
  constexpr int kHandoffs = 60;
  UcxNode source(TestOptions(1), 16, {10'000, 20'000});
  UcxNode sink(TestOptions(2), 10, {10'000, 20'000});
  for (int32_t page = 0; page < 16; ++page) source.pool().FillPage(page, 4);
  sink.LendAll();
  std::map<uint64_t, Ticket> tickets;
  for (uint64_t n = 0; n < kHandoffs; ++n) {
    const auto kv_pages = static_cast<int32_t>(n % 5);
    tickets[n] = MakeTicket(n, 2, kv_pages, kv_pages + 1 + int32_t(n % 3));
    source.Open(tickets[n], sink);
  }
  std::vector<uint64_t> promised;
  for (int n = 0; n < kHandoffs; ++n) {
    const auto promise = source.Wait<HandoffPromised>();
    REQUIRE(promise.has_value());
    promised.push_back(promise->ticket_id.high);
    const Ticket& ticket = tickets[promise->ticket_id.high];
    source.SendAndCommit(ticket, Pages(ticket.kv_pages));
    const auto arrived = sink.Wait<HandoffArrived>();
    REQUIRE(arrived.has_value());
    const Ticket& landed = tickets[arrived->ticket_id.high];
    REQUIRE(arrived->pages.size() == size_t(landed.promise_pages));
    for (int32_t i = 0; i < landed.kv_pages; ++i)
      REQUIRE(SamePage(source.pool(), i, sink.pool(), arrived->pages[size_t(i)]));
    sink.transfer().Post(LendPages{arrived->pages, 0});
    REQUIRE(source.Wait<HandoffEnded>()->status.ok());
  }
  CHECK(std::is_sorted(promised.begin(), promised.end()));
  CHECK(source.Wait<HandoffNoRoom>(0).has_value());
  sink.Stop();
  CHECK(sink.Wait<PagesReturned>(0)->pages.size() == 10);
}

TEST_CASE("cancels from both ends at random moments leave nothing behind") {
  const KvTransport transport = GENERATE(KvTransport::kTcp, KvTransport::kShm);
  UcxNode source(OptionsBy(transport, 1), 16, {100'000, 200'000}, 64);
  UcxNode sink(OptionsBy(transport, 2), 16, {100'000, 200'000}, 64);
  for (int32_t page = 0; page < 16; ++page) source.pool().FillPage(page, 4);
  sink.LendAll();
  std::mt19937 random(7);
  int n_committed = 0;
  constexpr int kHandoffs = 150;
  for (uint64_t n = 0; n < kHandoffs; ++n) {
    const Ticket ticket = MakeTicket(n, 2, 8, 8);
    source.Open(ticket, sink);
    source.SendAndCommit(ticket, Pages(8));
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 4'000));
    (random() % 2 ? source : sink).transfer().Post(CancelHandoff{ticket.id, 1});
    const auto ended = source.Wait<HandoffEnded>();
    REQUIRE(ended.has_value());
    n_committed += ended->status.ok();
    while (const auto arrived = sink.Wait<HandoffArrived>(0))
      sink.transfer().Post(LendPages{arrived->pages, 0});
  }
  CHECK(n_committed > 0);
  CHECK(n_committed < kHandoffs);
  source.Stop();
  sink.Stop();
  size_t back = sink.Wait<PagesReturned>(0)->pages.size();
  while (const auto arrived = sink.Wait<HandoffArrived>(0)) back += arrived->pages.size();
  CHECK(back == 16);
}

TEST_CASE("starting and stopping leaks no descriptor and no thread") {
  const KvTransport transport = GENERATE(KvTransport::kTcp, KvTransport::kShm);
  const auto round = [transport] {
    UcxNode source(OptionsBy(transport, 1), 4, {100'000});
    UcxNode sink(OptionsBy(transport, 2), 4, {100'000});
    sink.LendAll();
    const Ticket ticket = MakeTicket(1, 2, 2, 2);
    source.Open(ticket, sink);
    source.SendAndCommit(ticket, Pages(2));
    REQUIRE(source.Wait<HandoffEnded>()->status.ok());
  };
  round();  // allocates what UCX keeps per process
  const int descriptors = CountDescriptors(), threads = CountThreads();
  for (int i = 0; i < 10; ++i) round();
  CHECK(CountDescriptors() == descriptors);
  CHECK(CountThreads() == threads);
}

TEST_CASE("a sink that stops in the middle ends the source's handoff and gives all pages back") {
  const KvTransport transport = GENERATE(KvTransport::kTcp, KvTransport::kShm);
  UcxNode source(OptionsBy(transport, 1), 8, {1'000'000, 1'000'000});
  UcxNode sink(OptionsBy(transport, 2), 8, {1'000'000, 1'000'000});
  sink.LendAll();
  const Ticket ticket = MakeTicket(1, 2, 8, 8);
  source.Open(ticket, sink);
  source.transfer().Post(SendCells{.ticket_id = ticket.id, .pages = Pages(8)});
  REQUIRE(source.Wait<HandoffPromised>().has_value());
  sink.Stop();
  const auto ended = source.Wait<HandoffEnded>(5'000);
  REQUIRE(ended.has_value());
  CHECK(ended->status.code() == absl::StatusCode::kUnavailable);
  CHECK(sink.Wait<HandoffAborted>(0).has_value());
  CHECK(sink.Wait<PagesReturned>(0)->pages.size() == 8);
}

}  // namespace
}  // namespace baton
