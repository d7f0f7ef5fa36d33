// A promise alone: where its pages come from, ranges and their end, and what the engine is told.
#include "kvtransfer/protocol/page_promise.h"

#include "tests/kvtransfer/handoff_rigs.h"

#include <catch2/catch.hpp>

namespace baton {
namespace {

// A promise of 8 pages, 6 with KV of two planes, from a receive pool of 8.
struct Rig {
  Rig() { receive_pool.Lend({0, 1, 2, 3, 4, 5, 6, 7}); }
  void Begin(const Ticket& ticket) {
    REQUIRE(promise.Check(ticket).ok());
    promise.Begin(ticket, 0);
  }
  void Commit(const Ticket& ticket, int32_t token) {
    promise.Ended(ticket, CommitRecord{.first_token = token, .n_tokens = 90}, 70);
  }
  template <typename E>
  const E* Event() const {
    REQUIRE(setup.events.size() <= 1);
    return setup.events.empty() ? nullptr : &std::get<E>(setup.events[0]);
  }

  const Ticket last = MakeMain(1, 2, 6, 8, 4);
  const Ticket first = MakePart(last, 2, 0, 3), second = MakePart(last, 3, 3, 1);
  TestPool pool{16, {60, 40}};
  TransferSetup setup = MakeSetup(2, pool.view(), nullptr);
  ReceivePool receive_pool;
  PagePromise promise{first, &setup, &receive_pool, 20};
};

TEST_CASE("promise: of no page, it is for one handoff") {
  Rig rig;
  const Ticket none = MakeMain(1, 2, 0, 8, 0);
  PagePromise promise{none, &rig.setup, &rig.receive_pool, 20};
  REQUIRE(promise.Check(none).ok());
  promise.Begin(none, 0);
  CHECK(promise.Check(none).code() == absl::StatusCode::kInvalidArgument);
}

TEST_CASE("promise: complete when its ranges are all of the pages and all are committed") {
  std::vector<int> order = {0, 1, 2};
  do {
    Rig rig;
    const Ticket* tickets[] = {&rig.first, &rig.second, &rig.last};
    rig.promise.Take(20);
    CHECK(rig.receive_pool.owed() == 8);
    for (const int n : order) {
      CHECK_FALSE(rig.promise.ended());
      rig.Begin(*tickets[n]);
      rig.promise.Bind(
          {.n_planes = 2, .first_page = tickets[n]->first_page, .n_pages = tickets[n]->n_pages});
      CHECK(rig.Event<HandoffArrived>() == nullptr);
      rig.Commit(*tickets[n], n);
    }
    CHECK(rig.promise.state() == PagePromise::State::kComplete);
    const auto* arrived = rig.Event<HandoffArrived>();
    REQUIRE(arrived != nullptr);
    CHECK(arrived->ticket_id == rig.last.id);
    CHECK(arrived->record.first_token == 2);  // of the last range, whenever it came
    CHECK(arrived->pages.size() == 8);
    CHECK(arrived->transfer_us == 50);
    CHECK(rig.receive_pool.owed() == 0);
    CHECK(rig.promise.bound_pages() == 0);
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST_CASE("promise: tickets of other sizes or requests, or for a page twice, do not fit") {
  Rig rig;
  rig.Begin(rig.first);
  const auto fits = [&](const Ticket& ticket) { return rig.promise.Check(ticket).ok(); };
  CHECK(fits(rig.second));
  CHECK_FALSE(fits(rig.first));
  CHECK_FALSE(fits(MakePart(rig.last, 4, 2, 2)));
  Ticket other = rig.last;
  ++other.request_id;
  CHECK_FALSE(fits(other));
  other = rig.last;
  ++other.promise_pages;
  CHECK_FALSE(fits(other));
  other = rig.last;
  ++other.kv_pages;
  CHECK_FALSE(fits(other));
  rig.promise.Take(0);
  rig.Commit(rig.first, 0);
  CHECK_FALSE(fits(rig.first));  // its pages are filled
}

TEST_CASE("promise: one that fails gives its pages back when its last handoff has ended") {
  Rig rig;
  rig.promise.Take(0);
  rig.Begin(rig.first);
  rig.Begin(rig.last);
  CHECK(rig.promise.Bind({.n_planes = 2, .first_page = 1, .n_pages = 2}).page_ids[0] >= 0);
  CHECK(rig.promise.bound_pages() == 2);
  rig.promise.Fail(absl::CancelledError("owner"));
  CHECK(rig.receive_pool.free_pages() == 6);  // those that no receive was posted for, at once
  rig.promise.Fail(absl::AbortedError("again"));
  rig.promise.Ended(rig.last, std::nullopt, 0);
  CHECK(rig.promise.bound_pages() == 2);
  CHECK(rig.Event<HandoffAborted>() == nullptr);
  rig.promise.Ended(rig.first, std::nullopt, 0);
  CHECK(rig.promise.state() == PagePromise::State::kFailed);
  CHECK(rig.Event<HandoffAborted>()->status == absl::CancelledError("owner"));
  CHECK(rig.receive_pool.free_pages() == 8);
}

TEST_CASE("promise: named pages are reported as they fill, and not after the last cell") {
  const Ticket ticket = MakeTicket(1, 2, 3, 0);
  for (const bool whole : {true, false}) {
    TestPool pool(16, {60, 40});
    TransferSetup setup = MakeSetup(2, pool.view(), nullptr);
    const std::vector<TransferEvent>& events = setup.events;
    ReceivePool receive_pool;
    PagePromise promise(ticket, &setup, &receive_pool, 0);
    promise.Begin(ticket, 0);
    AwaitInflow await{.ticket_id = {}, .epoch = 1, .pages = {5, 9, 2}, .n_planes = 1, .n_pages = 1};
    REQUIRE(promise.Name(std::move(await), 0).ok());
    CHECK(promise.Bind({.n_planes = 1, .first_page = 1, .n_pages = 1}).page_ids[0] == 9);
    CHECK(promise.CountHere({.n_planes = 2, .n_pages = 3}) == 4);
    promise.Landed({.plane = 1, .n_planes = 1, .first_page = 2, .n_pages = 1}, 0);
    CHECK(events.empty());  // the page before is missing
    if (whole) {
      promise.Landed({.plane = 1, .n_planes = 1, .first_page = 1, .n_pages = 1}, 0);
      REQUIRE(events.size() == 1);
      CHECK(std::get<InflowArrived>(events[0]).n_planes == 2);
    }
    promise.Fail(absl::CancelledError("owner"));
    promise.Ended(ticket, std::nullopt, 0);
    REQUIRE(events.size() == 1);
    CHECK(std::holds_alternative<InflowFailed>(events[0]) == !whole);
    CHECK(receive_pool.in_pool() == 0);
  }
}

TEST_CASE("promise: time alone ends its waits, and each sign of progress starts the second anew") {
  Rig rig;
  CHECK(rig.promise.Overdue(20 + kRoomTimeoutUs - 1).ok());
  CHECK(rig.promise.Overdue(20 + kRoomTimeoutUs).code() == absl::StatusCode::kResourceExhausted);
  rig.Begin(rig.first);
  rig.promise.Take(100);
  const auto overdue_at = [&rig](int64_t us) {
    return rig.promise.Overdue(us - 1).ok() &&
           rig.promise.Overdue(us).code() == absl::StatusCode::kDeadlineExceeded;
  };
  CHECK(overdue_at(100 + kIdleTimeoutUs));
  rig.promise.Landed({.n_planes = 1, .n_pages = 1}, 500);
  CHECK(overdue_at(500 + kIdleTimeoutUs));
  rig.promise.Begin(rig.last, 700);
  CHECK(overdue_at(700 + kIdleTimeoutUs));
  rig.promise.Fail(absl::CancelledError("owner"));
  CHECK(rig.promise.Overdue(INT64_MAX).ok());  // its handoffs end by their own deadlines
}

}  // namespace
}  // namespace baton
