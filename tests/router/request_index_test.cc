// The index of requests: in order of submission, counted by state, each with one alarm.
#include "router/request_index.h"

#include <catch2/catch.hpp>

namespace baton {
namespace {

const absl::Time kNow = absl::UnixEpoch() + absl::Hours(1);

struct IndexFixture {
  Request& Add(RequestId id, uint64_t sequence, absl::Duration timeout) {
    return index.Add(std::make_unique<Request>(id, sequence, GenerateRequest{.timeout = timeout},
                                               options, kNow));
  }
  void Dispatch(Request& request) {
    request.Dispatch({.epoch = request.epoch() + 1,
                      .plan = {.slices = {{11, 1}}},
                      .spec = request.NextSpec(),
                      .names = {{0, ""}, {11, "w"}}},
                     kNow);
    index.Update(request);
  }
  RouterOptions options{.worker_wait = absl::Seconds(30), .end_wait = absl::Seconds(5)};
  RequestIndex index;
};

std::vector<RequestId> Ids(const std::vector<Request*>& requests) {
  std::vector<RequestId> ids;
  for (const Request* const request : requests) ids.push_back(request->id());
  return ids;
}

using RequestIds = std::vector<RequestId>;

}  // namespace

TEST_CASE("requests are found by id, and by state in order of submission") {
  IndexFixture f;
  Request& late = f.Add(5, 2, absl::Seconds(10));
  Request& soon = f.Add(9, 1, absl::Seconds(20));
  CHECK(f.index.Find(5) == &late);
  CHECK(f.index.Find(6) == nullptr);
  CHECK(Ids(f.index.In(RequestState::kWaiting)) == RequestIds{9, 5});
  f.Dispatch(soon);
  CHECK(Ids(f.index.In(RequestState::kWaiting)) == RequestIds{5});
  CHECK(f.index.n_in(RequestState::kWaiting) == 1);
  CHECK(f.index.n_in(RequestState::kPrefilling) == 1);
  CHECK(f.index.n_living() == 2);
  soon.Recall(0, {}, kNow);
  f.index.Update(soon);
  CHECK(f.index.n_in(RequestState::kWaiting) == 2);
  late.End(kNow);
  f.index.Update(late);
  CHECK(Ids(f.index.In(RequestState::kEnding)) == RequestIds{5});
  CHECK(f.index.n_living() == 1);
  f.index.Forget(late);
  soon.End(kNow);
  f.index.Update(soon);
  CHECK(f.index.n_in(RequestState::kWaiting) == 0);
  f.index.Forget(soon);
  CHECK(f.index.n_living() == 0);
  CHECK(f.index.n_in(RequestState::kEnding) == 0);
  CHECK(f.index.NextAlarm() == absl::InfiniteFuture());
}

TEST_CASE("alarms ring in order of time, each request has one, and the state decides which") {
  IndexFixture f;
  Request& a = f.Add(1, 1, absl::Seconds(40));  // waits for 30 s
  Request& b = f.Add(2, 2, absl::Seconds(20));
  CHECK(f.index.NextAlarm() == kNow + absl::Seconds(20));
  CHECK(f.index.TakeDue(kNow + absl::Seconds(19)) == nullptr);
  CHECK(f.index.TakeDue(kNow + absl::Seconds(35)) == &b);
  b.End(kNow);
  f.index.Update(b);
  CHECK(f.index.NextAlarm() == kNow + absl::Seconds(5));
  f.index.Forget(b);
  CHECK(f.index.TakeDue(kNow + absl::Seconds(35)) == &a);
  f.Dispatch(a);  // the request's own timeout is left
  CHECK(f.index.TakeDue(kNow + absl::Seconds(35)) == nullptr);
  CHECK(f.index.NextAlarm() == kNow + absl::Seconds(40));
}

TEST_CASE("an alarm is moved at once to be sooner, and when it rings to be later") {
  IndexFixture f;
  Request& request = f.Add(1, 1, absl::InfiniteDuration());
  f.Dispatch(request);
  const absl::Time first = kNow + f.options.attempt_silence;
  CHECK(f.index.NextAlarm() == first);
  request.attempt()->OnNoRoom(absl::Seconds(1), kNow);  // 20 s more
  f.index.KeepAlarm(request);
  CHECK(f.index.NextAlarm() == first);
  CHECK(f.index.TakeDue(first) == nullptr);
  CHECK(f.index.NextAlarm() == first + absl::Seconds(20));
  request.attempt()->OnNoRoom(absl::ZeroDuration(), kNow);
  f.index.KeepAlarm(request);
  CHECK(f.index.NextAlarm() == first);
}

}  // namespace baton
