// An emulated link keeps the contract of link.h and takes the time it should.
#include "kvtransfer/paced_link.h"

#include <cstring>

#include "kvtransfer/mem_link.h"

// Last: its CHECK replaces ours.
#include <catch2/catch.hpp>

namespace baton {
namespace {

// Two paced ends of one connection on a clock of the test's own.
struct PacedPair {
  explicit PacedPair(const LinkPace& pace) {
    for (auto& end : ends) {
      auto link = network.MakeLink();
      inner.push_back(link.get());
      end = std::make_unique<PacedLink>(std::move(link), pace, [this] { return now_us; });
    }
    connection = ends[0]->Connect(ends[1]->address());
    Settle();
  }
  // All that happens without time passing.
  void Settle() {
    for (bool any = true; any;) {
      any = network.Step();
      for (int i = 0; i < 2; ++i) any |= ends[i]->Poll(&events[i]);
    }
  }
  // Until time `end_us`; the times at which something was due.
  void RunUntil(int64_t end_us) {
    Settle();
    while (true) {
      const int64_t due_us = std::min(ends[0]->next_due_us(), ends[1]->next_due_us());
      if (due_us > end_us) break;
      now_us = due_us;
      Settle();
    }
    now_us = end_us;
  }
  void Announce(OperationId operation, uint64_t length) {
    ends[0]->Announce(connection, operation, {}, payload.data(), length);
  }
  // Accepts every announcement that has arrived at the other end.
  void AcceptAll() {
    for (const LinkEvent& event : events[1]) {
      const auto* announced = std::get_if<ChunkAnnounced>(&event);
      if (announced == nullptr || !accepted.insert(announced->announcement).second) continue;
      ends[1]->Accept(announced->announcement, announced->announcement, landing.data());
    }
  }
  template <typename Event>
  int Count(int end) const {
    return static_cast<int>(std::count_if(events[end].begin(), events[end].end(), [](auto& event) {
      return std::holds_alternative<Event>(event);
    }));
  }

  MemNetwork network{MemNetwork::Mode::kDeterministic, 7};
  std::vector<MemLink*> inner;
  std::unique_ptr<PacedLink> ends[2];
  std::vector<LinkEvent> events[2];
  ConnectionId connection = 0;
  int64_t now_us = 1'000;
  std::vector<std::byte> payload = std::vector<std::byte>(10'000, std::byte{5});
  std::vector<std::byte> landing = std::vector<std::byte>(10'000);
  std::set<AnnouncementId> accepted;
};

TEST_CASE("chunks pass a port one after another, and messages behind them keep their place") {
  PacedPair pair({.bytes_per_second = 1e6, .latency_us = 500});  // 1 byte a microsecond
  pair.Announce(1, 4'000);
  pair.Announce(2, 2'000);
  pair.ends[0]->Send(pair.connection, "after both");
  pair.RunUntil(1'000 + 4'499);
  CHECK(pair.Count<ChunkAnnounced>(1) == 0);
  pair.RunUntil(1'000 + 4'500);
  CHECK(pair.Count<ChunkAnnounced>(1) == 1);
  pair.RunUntil(1'000 + 6'499);
  CHECK(pair.Count<ChunkAnnounced>(1) == 1);
  CHECK(pair.Count<MessageArrived>(1) == 0);
  pair.RunUntil(1'000 + 6'500);
  CHECK(pair.Count<ChunkAnnounced>(1) == 2);
  CHECK(pair.Count<MessageArrived>(1) == 1);
  // The receiving port takes its time too.
  pair.AcceptAll();
  pair.RunUntil(7'500 + 3'999);
  CHECK(pair.Count<ChunkLanded>(1) == 0);
  pair.RunUntil(7'500 + 4'000);
  CHECK(pair.Count<ChunkLanded>(1) == 1);
  CHECK(pair.Count<ChunkSent>(0) == 1);
  pair.RunUntil(7'500 + 6'000);
  CHECK(pair.Count<ChunkLanded>(1) == 2);
  CHECK(std::memcmp(pair.landing.data(), pair.payload.data(), 4'000) == 0);
  CHECK(pair.ends[0]->idle());
  CHECK(pair.ends[1]->idle());
}

TEST_CASE("a port that was idle does not save up") {
  PacedPair pair({.bytes_per_second = 1e6});
  pair.RunUntil(1'000'000);
  pair.Announce(1, 3'000);
  pair.RunUntil(1'000'000 + 2'999);
  CHECK(pair.Count<ChunkAnnounced>(1) == 0);
  pair.RunUntil(1'000'000 + 3'000);
  CHECK(pair.Count<ChunkAnnounced>(1) == 1);
}

TEST_CASE("a link that becomes slow: from then on") {
  PacedPair pair({.bytes_per_second = 1e6});
  pair.Announce(1, 1'000);
  pair.ends[0]->SetPace({.bytes_per_second = 1e4});
  pair.Announce(2, 1'000);
  pair.RunUntil(1'000 + 1'000);
  CHECK(pair.Count<ChunkAnnounced>(1) == 1);
  pair.RunUntil(1'000 + 1'000 + 99'999);
  CHECK(pair.Count<ChunkAnnounced>(1) == 1);
  pair.RunUntil(1'000 + 1'000 + 100'000);
  CHECK(pair.Count<ChunkAnnounced>(1) == 2);
}

TEST_CASE("without a pace nothing is held") {
  PacedPair pair({});
  pair.Announce(1, 10'000);
  pair.ends[0]->Send(pair.connection, "now");
  pair.Settle();
  CHECK(pair.Count<ChunkAnnounced>(1) == 1);
  CHECK(pair.Count<MessageArrived>(1) == 1);
  CHECK(pair.ends[0]->next_due_us() == PacedLink::kNever);
}

TEST_CASE("a lost connection: everything held reports once, and late answers harm nobody") {
  PacedPair pair({.bytes_per_second = 1e6});
  pair.Announce(1, 1'000);
  pair.Announce(2, 9'000);
  pair.RunUntil(2'000);
  pair.AcceptAll();  // the first; it waits for the receiving port
  REQUIRE(pair.accepted.size() == 1);
  pair.network.Cut(pair.inner[0], pair.connection);
  pair.RunUntil(100'000);
  CHECK(pair.Count<ChunkSent>(0) == 2);
  REQUIRE(pair.Count<ChunkLanded>(1) == 1);
  for (const LinkEvent& event : pair.events[1]) {
    if (const auto* landed = std::get_if<ChunkLanded>(&event)) CHECK_FALSE(landed->ok);
  }
  CHECK(pair.Count<ConnectionLost>(0) == 1);
  CHECK(pair.Count<ConnectionLost>(1) == 1);
  pair.ends[1]->Refuse(*pair.accepted.begin());  // its owner did not know yet
  pair.ends[1]->Accept(*pair.accepted.begin(), 77, pair.landing.data());
  pair.RunUntil(200'000);
  CHECK(pair.Count<ChunkLanded>(1) == 2);
  CHECK(pair.ends[0]->idle());
  CHECK(pair.ends[1]->idle());
}

TEST_CASE("a closed connection: what is held of it reports and goes nowhere") {
  PacedPair pair({.bytes_per_second = 1e6, .latency_us = 1'000});
  pair.Announce(1, 9'000);
  pair.ends[0]->Close(pair.connection);
  pair.RunUntil(100'000);
  CHECK(pair.Count<ChunkSent>(0) == 1);
  CHECK(pair.Count<ChunkAnnounced>(1) == 0);
  CHECK(pair.Count<ConnectionLost>(1) == 1);
  CHECK(pair.ends[0]->idle());
}

}  // namespace
}  // namespace baton
