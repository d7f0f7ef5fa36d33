// Turns of senders, and who is slowest to take answers, without sockets and on virtual time.
#include "server/http/fair_queue.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <vector>

#include "server/http/unread_answers.h"

namespace baton {
namespace {

TEST_CASE("senders take turns, whatever each has put in") {
  FairQueue<int> queue;
  for (int i = 0; i < 5; ++i) queue.Push(1, i);
  queue.Push(2, 20);
  queue.Push(3, 30);
  queue.Push(2, 21);
  std::vector<int> taken;
  const auto take = [&](size_t n) {
    while (taken.size() < n) {
      const auto item = queue.Begin(absl::UnixEpoch());
      if (!item) return;
      taken.push_back(*item);
      queue.End(absl::UnixEpoch());
    }
  };
  take(4);
  queue.Push(3, 31);
  take(100);
  CHECK(taken == std::vector<int>{0, 20, 30, 1, 21, 2, 31, 3, 4});
}

TEST_CASE("a sender that may have all of the time never rests") {
  FairQueue<int> queue({.of_time = 1});
  absl::Time now = absl::UnixEpoch();
  for (int i = 0; i < 1000; ++i) queue.Push(1, i);
  for (int i = 0; i < 1000; ++i) {
    const auto item = queue.Begin(now);
    REQUIRE(item.has_value());
    now += absl::Milliseconds(7);
    queue.End(now);
  }
}

TEST_CASE("a sender has its burst, then its part of the time, and others wait for none of its") {
  const TurnShare share{
      .of_time = 0.25, .burst = absl::Milliseconds(5), .rest = absl::Milliseconds(4)};
  FairQueue<int> queue(share);
  const uint64_t busy = GENERATE(1, 0);  // 0: no address, of which many are
  absl::Time now = absl::UnixEpoch();
  std::map<int, int> taken;  // turns by sender
  for (int i = 0; i < 1000; ++i) queue.Push(busy, static_cast<int>(busy));
  const auto run_until = [&](absl::Time end) {
    while (now < end) {
      if (const auto item = queue.Begin(now)) {
        ++taken[*item];
        now += absl::Microseconds(100);
        queue.End(now);
      } else {
        now = std::min(end, std::max(now, queue.next()));
      }
    }
  };
  run_until(absl::UnixEpoch() + absl::Milliseconds(5));
  CHECK(taken[static_cast<int>(busy)] == 50);
  run_until(absl::UnixEpoch() + absl::Milliseconds(85));
  if (busy == 0) {
    CHECK(taken[0] == 850);
    return;
  }
  CHECK(taken[1] >= 240);
  CHECK(taken[1] <= 280);
  // While the busy one rests, others are served at once.
  for (int i = 0; i < 20; ++i) {
    queue.Push(2, 2);
    const int before = taken[1];
    run_until(now + absl::Microseconds(200));
    CHECK(taken[2] == i + 1);
    CHECK(taken[1] <= before + 1);
  }
  // Time that was owed is forgotten.
  run_until(now + absl::Seconds(1));
  CHECK(taken[1] == 1000);
  CHECK(queue.next() == absl::InfiniteFuture());
}

TEST_CASE("what the thread itself waited for is not counted as a sender's time") {
  FairQueue<int> queue;
  queue.Push(1, 1);
  absl::Time now = absl::UnixEpoch();
  REQUIRE(queue.Begin(now));
  now += absl::Seconds(10);
  queue.End(now);
  queue.Push(1, 2);
  CHECK(queue.Begin(now));
}

TEST_CASE("the slowest is found among those of whom nothing was taken for longest") {
  UnreadAnswers unread(10'000, 3'000);
  const absl::Time start = absl::UnixEpoch();
  const auto at = [&](int seconds) { return start + absl::Seconds(seconds); };
  std::vector<UnreadAnswers::Place> crowd(200);
  UnreadAnswers::Place other{.peer = 2}, second{.peer = 2};
  for (UnreadAnswers::Place& place : crowd) {
    place.peer = 1;
    unread.Hold(10, false, start, &place);
  }
  unread.Hold(5'000, false, at(1), &other);
  CHECK(unread.Slowest(1, at(2)) == nullptr);
  CHECK(unread.Slowest(2, at(2)) == nullptr);  // over, and alone
  unread.Hold(500, false, at(1), &second);
  CHECK(unread.Slowest(2, at(2)) == &other);
  CHECK(unread.Slowest(1, at(2)) == nullptr);  // another's excess
  unread.Hold(1'500, false, at(1), &crowd[50]);
  CHECK(unread.Slowest(1, at(2)) == &crowd[50]);
  unread.Hold(1'490, true, at(100), &crowd[50]);  // and stands behind all others
  CHECK(unread.Slowest(1, at(100)) == &crowd[0]);
  for (UnreadAnswers::Place& place : crowd) unread.Hold(0, false, at(100), &place);
  unread.Hold(0, false, at(100), &second);
  CHECK(unread.total() == 5'000);
  // Beyond the budget of all, anybody's.
  unread.Hold(2'000, false, at(99), &second);
  UnreadAnswers::Place third{.peer = 3};
  unread.Hold(4'000, false, at(98), &third);
  CHECK(unread.Slowest(1, at(100)) == &other);
  for (UnreadAnswers::Place* place : {&other, &second, &third})
    unread.Hold(0, false, at(100), place);
  CHECK(unread.Slowest(2, at(100)) == nullptr);
}

}  // namespace
}  // namespace baton
