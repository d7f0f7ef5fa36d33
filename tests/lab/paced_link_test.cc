// An emulated link keeps the contract of link.h and takes the expected time.
#include "lab/paced_link.h"

#include <cstring>

#include "tests/support/mem_link.h"

#include <catch2/catch.hpp>

namespace baton {
namespace {

// Two paced ends of one connection on the test's own clock.
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
  // Handles all events that need no time.
  void Settle() {
    for (bool any = true; any;) {
      any = network.Step();
      for (int i = 0; i < 2; ++i) any |= ends[i]->Poll(&events[i]);
    }
  }
  // Runs until time `end_us`. Returns the times at which something was due.
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
  PacedPair pair({.bytes_per_second = 1e6, .latency_us = 500});  // 1 byte per microsecond
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
  // The receiving port takes time too.
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

TEST_CASE("noise: as long as the model says, whoever asks") {
  const LinkNoise noise{.workers = 4, .factor = 8, .period = 10e-3, .seed = 3};
  CHECK_FALSE(LinkNoise{}.is_set());
  CHECK(LinkNoise{}.Through(0, 5, 1.5) == 6.5);
  int slow[4] = {};
  for (int turn = 0; turn < 3000; ++turn) {
    const double time = (turn + 0.5) * noise.period;
    int first = -1, n = 0;
    for (int worker = 0; worker < 4; ++worker) {
      const double longer = noise.Longer(worker, time);
      REQUIRE((longer == 1 || longer == 8));
      CHECK(longer == noise.Longer(worker, time + 0.4 * noise.period));
      if (longer == 1) continue;
      if (n++ == 0) first = worker;
      ++slow[worker];
      CHECK(worker - first < 2);  // neighbours
      // A transfer inside this period takes eight times as long.
      CHECK(noise.Through(worker, time, 1e-4) == Approx(time + 8e-4));
    }
    CHECK(n == 2);
  }
  // Every pair is slow a third of the time; workers in the middle are in two pairs.
  for (const int at_end : {0, 3}) CHECK(slow[at_end] == Approx(1000).margin(150));
  for (const int in_middle : {1, 2}) CHECK(slow[in_middle] == Approx(2000).margin(150));
  // Over many periods, the transferred bytes are the sum of the rate in every period.
  for (const double seconds : {1e-3, 0.05, 0.7}) {
    const double begin = 0.123;
    const double end = noise.Through(1, begin, seconds);
    double carried = 0, step = 1e-5;
    for (double time = begin; time < end; time += step)
      carried += step / noise.Longer(1, time + step / 2);
    CHECK(carried == Approx(seconds).margin(2 * step));
  }
  // A transfer in two parts ends at the same time as in one.
  CHECK(noise.Through(2, noise.Through(2, 1, 0.02), 0.03) == Approx(noise.Through(2, 1, 0.05)));
}

TEST_CASE("a noisy link: its chunks in order and whole, when the model says") {
  const LinkPace pace{.bytes_per_second = 1e6,
                      .noise = {.workers = 3, .factor = 5, .period = 3e-3, .seed = 11},
                      .worker = 1};
  // With three pairs, worker 1 is in every pair, worker 0 in half of them, worker 7 in none.
  for (const int worker : {1, 0, 7}) {
    LinkPace own = pace;
    own.worker = worker;
    PacedPair pair(own);
    double due = 1e-3;
    for (OperationId chunk = 1; chunk <= 8; ++chunk) {
      const auto length = static_cast<uint64_t>(500 * chunk);
      pair.payload[0] = std::byte(chunk);
      pair.Announce(chunk, length);
      due = pace.noise.Through(worker, due, static_cast<double>(length) * 1e-6);
      const auto due_us = static_cast<int64_t>(due * 1e6);
      pair.RunUntil(due_us - 10);
      CHECK(pair.Count<ChunkAnnounced>(1) == int(chunk) - 1);
      pair.RunUntil(due_us + 10);
      CHECK(pair.Count<ChunkAnnounced>(1) == int(chunk));
      pair.AcceptAll();
      pair.RunUntil(pair.now_us + 40'000);  // the receiving port
      CHECK(pair.Count<ChunkLanded>(1) == int(chunk));
      CHECK(pair.landing[0] == std::byte(chunk));
      due = static_cast<double>(pair.now_us) * 1e-6;
    }
    CHECK(pair.ends[0]->idle());
  }
}

TEST_CASE("a link that falls to a hundredth: once enough has come in") {
  PacedPair pair({.bytes_per_second = 1e6, .falls_after = 5'000});
  const auto arrive = [&](uint64_t length) {  // the time of the receiving port
    pair.Announce(length, length);
    pair.RunUntil(pair.now_us + static_cast<int64_t>(length));  // sent at the full rate
    const int landed = pair.Count<ChunkLanded>(1);
    pair.AcceptAll();
    const int64_t begin_us = pair.now_us;
    while (pair.Count<ChunkLanded>(1) == landed) {
      REQUIRE(pair.ends[1]->next_due_us() != PacedLink::kNever);
      pair.RunUntil(pair.ends[1]->next_due_us());
    }
    return pair.now_us - begin_us;
  };
  CHECK(arrive(4'000) == 4'000);
  CHECK(arrive(3'000) == 3'000);
  CHECK(arrive(2'000) == 200'000);
  CHECK(arrive(1'000) == 100'000);
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

TEST_CASE("a lost connection: everything held reports once, and late answers change nothing") {
  PacedPair pair({.bytes_per_second = 1e6});
  pair.Announce(1, 1'000);
  pair.Announce(2, 9'000);
  pair.RunUntil(2'000);
  pair.AcceptAll();  // the first chunk; it waits for the receiving port
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
  pair.ends[1]->Refuse(*pair.accepted.begin());  // the owner did not know it yet
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
