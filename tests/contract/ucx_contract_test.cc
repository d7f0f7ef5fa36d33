// The behaviour that Baton expects of the linked UCX, tested through the Link contract: a newer UCX
// that behaves differently fails here by name.
#include <poll.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <deque>
#include <optional>
#include <thread>

#include "kvtransfer/links/ucx_link.h"
#include "kvtransfer/protocol/link.h"
#include "tests/support/child_process.h"

#include <catch2/catch.hpp>

namespace baton {
namespace {

using Clock = std::chrono::steady_clock;

std::unique_ptr<Link> MakeLink() {
  auto link = MakeUcxLink("127.0.0.1");
  REQUIRE(link.ok());
  return *std::move(link);
}

wire::ChunkHeaderBytes HeaderOf(uint8_t n) {
  wire::ChunkHeaderBytes header;
  header.fill(n);
  return header;
}

// Two ends used by one thread.
struct Ends {
  Ends() : source(MakeLink()), sink(MakeLink()) {
    connection = source->Connect(sink->address());
    source->Send(connection, "hello");
    const auto accepted = Wait<ConnectionAccepted>(*sink, sink_events);
    REQUIRE(accepted.has_value());
    at_sink = accepted->connection;
    const auto message = Wait<MessageArrived>(*sink, sink_events);
    REQUIRE(message.has_value());
    REQUIRE(message->bytes == "hello");
    REQUIRE(message->connection == at_sink);
  }
  void Turn() {
    std::vector<LinkEvent> events;
    source->Poll(&events);
    for (LinkEvent& event : events) source_events.push_back(std::move(event));
    events.clear();
    sink->Poll(&events);
    for (LinkEvent& event : events) sink_events.push_back(std::move(event));
  }
  template <typename E>
  std::optional<E> Wait(Link&, std::deque<LinkEvent>& events, int timeout_ms = 10'000) {
    const auto end = Clock::now() + std::chrono::milliseconds(timeout_ms);
    do {
      Turn();
      for (auto it = events.begin(); it != events.end(); ++it) {
        if (E* found = std::get_if<E>(&*it)) {
          E event = std::move(*found);
          events.erase(it);
          return event;
        }
      }
    } while (Clock::now() < end);
    return std::nullopt;
  }
  template <typename E>
  std::optional<E> AtSource(int timeout_ms = 10'000) {
    return Wait<E>(*source, source_events, timeout_ms);
  }
  template <typename E>
  std::optional<E> AtSink(int timeout_ms = 10'000) {
    return Wait<E>(*sink, sink_events, timeout_ms);
  }

  std::unique_ptr<Link> source, sink;
  std::deque<LinkEvent> source_events, sink_events;
  ConnectionId connection = 0, at_sink = 0;
};

TEST_CASE("a chunk moves only when its owner posts the receive, and arrives whole") {
  Ends ends;
  for (const size_t length : {size_t{1}, size_t{100}, size_t{8'192}, size_t{70'000},
                              size_t{1} << 20, (size_t{4} << 20) + 3}) {
    std::vector<std::byte> from(length), to(length, std::byte{0});
    for (size_t i = 0; i < length; ++i) from[i] = static_cast<std::byte>(i * 7 + length);
    ends.source->Announce(ends.connection, 5, HeaderOf(9), from.data(), length);
    const auto announced = ends.AtSink<ChunkAnnounced>();
    REQUIRE(announced.has_value());
    CHECK(announced->connection == ends.at_sink);
    CHECK(announced->length == length);
    CHECK(announced->header == std::string(wire::kChunkHeaderBytes, '\x09'));
    // Held: the source's buffer stays in use until the owner has received the bytes.
    CHECK_FALSE(ends.AtSource<ChunkSent>(30).has_value());
    ends.sink->Accept(announced->announcement, 6, to.data());
    const auto landed = ends.AtSink<ChunkLanded>();
    REQUIRE(landed.has_value());
    CHECK(landed->operation == 6);
    CHECK(landed->ok);
    CHECK(from == to);
    const auto sent = ends.AtSource<ChunkSent>();
    REQUIRE(sent.has_value());
    CHECK(sent->operation == 5);
  }
}

TEST_CASE("registered memory is used like any other") {
  Ends ends;
  std::vector<std::byte> from(3 << 20, std::byte{1}), to(3 << 20, std::byte{2});
  ends.source->Register(from.data(), 2 << 20);
  ends.sink->Register(to.data() + (1 << 20), 2 << 20);
  for (const size_t offset : {size_t{0}, size_t{1} << 20, (size_t{3} << 20) - 65'536}) {
    ends.source->Announce(ends.connection, 1, HeaderOf(1), from.data() + offset, 65'536);
    ends.sink->Accept(ends.AtSink<ChunkAnnounced>()->announcement, 2, to.data() + offset);
    REQUIRE(ends.AtSink<ChunkLanded>()->ok);
    REQUIRE(ends.AtSource<ChunkSent>().has_value());
    CHECK(std::memcmp(from.data() + offset, to.data() + offset, 65'536) == 0);
  }
}

TEST_CASE("a refused chunk ends the send and moves nothing") {
  Ends ends;
  std::vector<std::byte> from(1 << 20, std::byte{3});
  ends.source->Announce(ends.connection, 5, HeaderOf(1), from.data(), from.size());
  ends.sink->Refuse(ends.AtSink<ChunkAnnounced>()->announcement);
  CHECK(ends.AtSource<ChunkSent>().has_value());
  // The connection stays open.
  ends.source->Send(ends.connection, "still here");
  CHECK(ends.AtSink<MessageArrived>()->bytes == "still here");
}

// The link itself refuses announcements beyond its capacity inside the callback, with an error
// status.
TEST_CASE("more announcements than the link holds are refused from the callback") {
  Ends ends;
  std::vector<std::byte> from(64 << 10, std::byte{3}), to(64 << 10);
  constexpr uint64_t kMany = 1'100;
  for (uint64_t n = 0; n < kMany; ++n)
    ends.source->Announce(ends.connection, n, HeaderOf(1), from.data(), from.size());
  uint64_t refused = 0;
  while (ends.AtSource<ChunkSent>(refused == 0 ? 10'000 : 300).has_value()) ++refused;
  CHECK(refused == kMany - 1'024);
  for (uint64_t n = refused; n < kMany; ++n) {
    ends.sink->Accept(ends.AtSink<ChunkAnnounced>()->announcement, n, to.data());
    REQUIRE(ends.AtSink<ChunkLanded>()->ok);
  }
}

TEST_CASE("messages and announcements arrive in the order they were sent, from the first on") {
  Ends ends;
  const ConnectionId fresh = ends.source->Connect(ends.sink->address());
  std::vector<std::byte> payload(20'000);
  for (int i = 0; i < 200; ++i) {
    ends.source->Send(fresh, std::string(size_t(i) * 40, 'x') + std::to_string(i));
    if (i % 10 == 0)
      ends.source->Announce(fresh, uint64_t(i), HeaderOf(uint8_t(i)), payload.data(), 20'000);
  }
  int next = 0;
  while (next < 200) {
    const auto message = ends.AtSink<MessageArrived>();
    REQUIRE(message.has_value());
    REQUIRE(message->bytes == std::string(size_t(next) * 40, 'x') + std::to_string(next));
    ++next;
  }
  for (int i = 0; i < 200; i += 10) {
    const auto announced = ends.AtSink<ChunkAnnounced>();
    REQUIRE(announced.has_value());
    REQUIRE(announced->header[0] == static_cast<char>(i));
    ends.sink->Refuse(announced->announcement);
  }
}

TEST_CASE("the longest control message goes eagerly, and comes back") {
  Ends ends;
  const std::string longest(wire::kMaxControlBytes, 'm');
  ends.source->Send(ends.connection, longest);
  CHECK(ends.AtSink<MessageArrived>()->bytes == longest);
  ends.sink->Send(ends.at_sink, longest);
  const auto answer = ends.AtSource<MessageArrived>();
  CHECK(answer->bytes == longest);
  CHECK(answer->connection == ends.connection);
}

// A forced close is the only cancel; after its report nothing lands any more.
TEST_CASE("closing the connection ends posted receives, and nothing is written afterwards") {
  for (int round = 0; round < 20; ++round) {
    Ends ends;
    constexpr uint64_t kChunks = 16;
    constexpr size_t kLength = 1 << 20;
    std::vector<std::byte> from(kChunks * kLength, std::byte{4}), to(kChunks * kLength);
    for (uint64_t n = 0; n < kChunks; ++n)
      ends.source->Announce(ends.connection, n, HeaderOf(1), from.data() + n * kLength, kLength);
    for (uint64_t n = 0; n < kChunks; ++n)
      ends.sink->Accept(ends.AtSink<ChunkAnnounced>()->announcement, n, to.data() + n * kLength);
    for (int i = 0; i < round; ++i) ends.Turn();
    ends.sink->Close(ends.at_sink);
    uint64_t n_landed = 0;
    while (n_landed < kChunks) {
      const auto landed = ends.AtSink<ChunkLanded>();
      REQUIRE(landed.has_value());
      ++n_landed;
    }
    std::memset(to.data(), 0xee, to.size());
    // The source gets the loss, and all its buffers are free again.
    CHECK(ends.AtSource<ConnectionLost>().has_value());
    for (uint64_t n = 0; n < kChunks; ++n) REQUIRE(ends.AtSource<ChunkSent>().has_value());
    CHECK(ends.source->idle());
    for (int i = 0; i < 50; ++i) ends.Turn();
    CHECK(ends.sink->idle());
    CHECK(
        std::all_of(to.begin(), to.end(), [](std::byte byte) { return byte == std::byte{0xee}; }));
  }
}

// A held announcement survives the loss of its connection and stays safe to accept or refuse.
TEST_CASE("a held chunk whose connection is gone can still be accepted or refused") {
  Ends ends;
  std::vector<std::byte> from(1 << 20), to(1 << 20);
  ends.source->Announce(ends.connection, 1, HeaderOf(1), from.data(), from.size());
  ends.source->Announce(ends.connection, 2, HeaderOf(1), from.data(), from.size());
  const auto first = ends.AtSink<ChunkAnnounced>();
  const auto second = ends.AtSink<ChunkAnnounced>();
  ends.source->Close(ends.connection);
  CHECK(ends.AtSource<ChunkSent>().has_value());
  CHECK(ends.AtSource<ChunkSent>().has_value());
  REQUIRE(ends.AtSink<ConnectionLost>().has_value());
  ends.sink->Accept(first->announcement, 7, to.data());
  const auto landed = ends.AtSink<ChunkLanded>();
  REQUIRE(landed.has_value());
  CHECK_FALSE(landed->ok);
  ends.sink->Refuse(second->announcement);
  for (int i = 0; i < 100; ++i) ends.Turn();
  CHECK(ends.sink->idle());
}

TEST_CASE("one connection's end leaves another one alone") {
  Ends ends;
  const ConnectionId other = ends.source->Connect(ends.sink->address());
  ends.source->Send(other, "two");
  const auto two = ends.AtSink<MessageArrived>();
  REQUIRE(two->connection != ends.at_sink);
  ends.sink->Close(ends.at_sink);
  CHECK(ends.AtSource<ConnectionLost>()->connection == ends.connection);
  ends.sink->Send(two->connection, "alive");
  const auto alive = ends.AtSource<MessageArrived>();
  CHECK(alive->connection == other);
  CHECK(alive->bytes == "alive");
}

TEST_CASE("connecting to an address without a listener fails soon, and pending sends end") {
  Ends ends;
  std::vector<std::byte> from(1 << 16);
  const ConnectionId refused = ends.source->Connect("127.0.0.1:1");
  ends.source->Send(refused, "hello?");
  ends.source->Announce(refused, 3, HeaderOf(1), from.data(), from.size());
  CHECK(ends.AtSource<ConnectionLost>()->connection == refused);
  CHECK(ends.AtSource<ChunkSent>()->operation == 3);
  for (int i = 0; i < 100; ++i) ends.Turn();
  CHECK(ends.source->idle());
}

// The peer process accepts chunks for ever; with "hold" it never accepts.
TEST_CASE("a peer killed in the middle is told at once, and every buffer comes back") {
  const bool hold = GENERATE(false, true);
  ChildProcess child({UCX_PEER, hold ? "hold" : "accept"});
  auto link = MakeLink();
  const ConnectionId connection = link->Connect(child.ReadLine());
  constexpr uint64_t kChunks = 64;
  std::vector<std::byte> from(kChunks << 20);
  for (uint64_t n = 0; n < kChunks; ++n)
    link->Announce(connection, n, HeaderOf(1), from.data() + (n << 20), 1 << 20);
  uint64_t n_sent = 0;
  bool lost = false, killed = false;
  Clock::time_point killed_at;
  const auto end = Clock::now() + std::chrono::seconds(20);
  while ((n_sent < kChunks || !lost) && Clock::now() < end) {
    std::vector<LinkEvent> events;
    link->Poll(&events);
    for (const LinkEvent& event : events) {
      n_sent += std::holds_alternative<ChunkSent>(event);
      lost |= std::holds_alternative<ConnectionLost>(event);
    }
    const bool time = hold ? Clock::now() + std::chrono::seconds(19) > end : n_sent >= 5;
    if (!killed && time) {
      child.Signal(SIGKILL);
      killed = true;
      killed_at = Clock::now();
    }
  }
  CHECK(n_sent == kChunks);
  CHECK(lost);
  CHECK(Clock::now() - killed_at < std::chrono::seconds(1));
  CHECK(link->idle());
}

// One end sleeps on its descriptor as the link thread does, with a limit; a wake-up that only the
// limit causes is a lost one.
TEST_CASE("ten thousand sleeping ping-pongs lose no wake-up") {
  constexpr int kRounds = 10'000;
  constexpr int kBoundMs = 1'000;
  struct Sleeper {
    std::unique_ptr<Link> link;
    std::vector<LinkEvent> events;
    int n_rescued = 0;
    // Returns the next message; sleeps until it arrives.
    ConnectionId NextMessage() {
      const auto give_up = Clock::now() + std::chrono::seconds(30);
      while (Clock::now() < give_up) {
        for (auto it = events.begin(); it != events.end(); ++it) {
          if (const auto* message = std::get_if<MessageArrived>(&*it)) {
            const ConnectionId connection = message->connection;
            events.erase(it);
            return connection;
          }
        }
        events.clear();
        if (link->Poll(&events) || !link->Arm()) continue;
        pollfd fd{link->wake_fd(), POLLIN, 0};
        if (::poll(&fd, 1, kBoundMs) == 0 && link->Poll(&events)) ++n_rescued;
      }
      return 0;
    }
  };
  std::string address;
  std::atomic<bool> listening = false;
  int rescued_there = -1;
  std::thread pong([&] {
    Sleeper sleeper{.link = MakeLink(), .events = {}};
    address = sleeper.link->address();
    listening = true;
    for (int i = 0; i < kRounds; ++i) {
      const ConnectionId connection = sleeper.NextMessage();
      if (connection == 0) return;
      sleeper.link->Send(connection, "pong");
    }
    sleeper.NextMessage();  // the last message: the last pong has arrived
    rescued_there = sleeper.n_rescued;
  });
  while (!listening) std::this_thread::yield();
  Sleeper sleeper{.link = MakeLink(), .events = {}};
  const ConnectionId connection = sleeper.link->Connect(address);
  int n_pongs = 0;
  const auto start = Clock::now();
  for (int i = 0; i < kRounds; ++i) {
    sleeper.link->Send(connection, "ping");
    n_pongs += sleeper.NextMessage() == connection;
  }
  const double us =
      std::chrono::duration<double, std::micro>(Clock::now() - start).count() / kRounds;
  sleeper.link->Send(connection, "bye");
  while (!sleeper.link->idle()) sleeper.link->Poll(&sleeper.events);
  pong.join();
  WARN("sleeping ping-pong " << us << " us per round");
  CHECK(n_pongs == kRounds);
  CHECK(sleeper.n_rescued == 0);
  CHECK(rescued_there == 0);
}

}  // namespace
}  // namespace baton
