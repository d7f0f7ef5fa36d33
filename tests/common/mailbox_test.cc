#include "common/mailbox.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <thread>

namespace baton {
namespace {

TEST_CASE("a full or closed mailbox refuses and keeps the event") {
  Mailbox<std::unique_ptr<int>> box(2);
  CHECK(box.TryPost(std::make_unique<int>(1)));
  CHECK(box.TryPost(std::make_unique<int>(2)));
  auto third = std::make_unique<int>(3);
  CHECK_FALSE(box.TryPost(std::move(third)));
  REQUIRE(third != nullptr);  // not consumed
  std::vector<std::unique_ptr<int>> got;
  REQUIRE(box.Drain(&got));
  REQUIRE(got.size() == 2);
  CHECK(*got[0] == 1);
  CHECK(*got[1] == 2);
  CHECK_FALSE(box.Drain(&got));
  CHECK(box.TryPost(std::move(third)));
  box.Close();
  CHECK_FALSE(box.TryPost(std::make_unique<int>(4)));
  got.clear();
  REQUIRE(box.WaitAndDrain(&got));  // returns the queued messages first
  CHECK(*got[0] == 3);
  CHECK_FALSE(box.WaitAndDrain(&got));  // closed and empty: does not wait
}

TEST_CASE("the wake function runs only when the queue turns from empty to not empty") {
  int wakes = 0;
  Mailbox<int> box(8, [&] { ++wakes; });
  CHECK(box.TryPost(1));
  CHECK(box.TryPost(2));
  CHECK(wakes == 1);
  std::vector<int> got;
  box.Drain(&got);
  CHECK(box.TryPost(3));
  CHECK(wakes == 2);
}

TEST_CASE("a wait with a time limit ends without events") {
  Mailbox<int> box(8);
  std::vector<int> got;
  CHECK_FALSE(box.WaitAndDrain(&got, absl::Milliseconds(1)));
}

TEST_CASE("many producers, one sleeping consumer: every event once, in order per producer") {
  constexpr int kProducers = 4, kEvents = 5000;
  Mailbox<std::pair<int, int>> box(64);
  std::vector<std::thread> producers;
  for (int p = 0; p < kProducers; ++p) {
    producers.emplace_back([&box, p] {
      for (int i = 0; i < kEvents; ++i) {
        while (!box.TryPost({p, i})) std::this_thread::yield();
      }
    });
  }
  std::vector<int> next(kProducers, 0);
  bool in_order = true;
  int total = 0;
  std::vector<std::pair<int, int>> got;
  while (total < kProducers * kEvents) {
    got.clear();
    REQUIRE(box.WaitAndDrain(&got));
    for (const auto& [producer, number] : got) in_order = in_order && next[producer]++ == number;
    total += static_cast<int>(got.size());
  }
  for (std::thread& producer : producers) producer.join();
  CHECK(in_order);
  CHECK(next == std::vector<int>(kProducers, kEvents));
}

}  // namespace
}  // namespace baton
