// The emulated device: what it draws, keeps, hides and fails at.

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <csignal>
#include <deque>
#include <mutex>
#include <set>
#include <thread>

#include "engine/cuda/device/emulated/device_thread.h"
#include "tests/engine/device/device_program.h"

namespace baton {
namespace {

// True if `action` kills a process by a wrong address.
template <typename Action>
bool Dies(const Action& action) {
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    ::signal(SIGSEGV, SIG_DFL);  // not that of the test program
    action();
    ::_exit(0);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  return WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV;
}

// ---- memory ----

TEST_CASE("a host that dereferences memory of the device dies") {
  DeviceProgram p;
  std::byte* const page = p.OnDevice("page");
  std::byte* const slot = p.Slot("slot");
  p.Finish();
  CHECK(Dies([&] { *const_cast<volatile std::byte*>(page) = std::byte{1}; }));
  CHECK(Dies([&] { static_cast<void>(*const_cast<volatile std::byte*>(page + kBytes - 1)); }));
  CHECK_FALSE(Dies([&] { *const_cast<volatile std::byte*>(slot) = std::byte{1}; }));
}

TEST_CASE("memory is counted, used again and full of poison when it is new") {
  DeviceProgram p({.memory_bytes = 4096});
  CHECK(p.device.memory().free_bytes == 4096);
  std::byte* const first = p.OnDevice("first");
  std::byte* const second = p.OnDevice("second");
  CHECK(p.device.memory().free_bytes == 4096 - 2 * 512);
  REQUIRE(p.device.Fill(p.compute, first, 0, kBytes).ok());
  p.Until(p.Recorded(p.compute));
  p.device.Free(first);
  CHECK(p.OnDevice("third") == first);
  std::byte* const slot = p.Slot("slot");
  p.Copy(p.compute, slot, first);
  p.Until(p.Recorded(p.compute));
  CHECK(p.Get(slot) == 0x7fc17fc1);
  const absl::Status status = p.device.Allocate(4096, "KV arena").status();
  CHECK(status.code() == absl::StatusCode::kResourceExhausted);
  CHECK(status.message() ==
        "device: no memory for KV arena of 4096 bytes, 3072 are free; make it smaller");
  p.device.Free(second);
  CHECK(p.Reports().empty());
}

TEST_CASE("copies touch the device, and no memory beyond what is allocated") {
  DeviceProgram p;
  std::byte* const page = p.OnDevice("page");
  std::byte* const slot = p.Slot("slot");
  const auto is_refused = [](const absl::Status& status) {
    return status.code() == absl::StatusCode::kInvalidArgument;
  };
  CHECK(is_refused(p.device.Copy(p.compute, slot, slot, kBytes)));
  CHECK(is_refused(p.device.Copy(p.compute, page, slot, kBytes + 1)));
  CHECK(is_refused(p.device.Copy(p.compute, slot, page + 1, kBytes)));
  CHECK(is_refused(p.device.Copy(p.compute, page, page + 8, 16)));
  CHECK(is_refused(p.device.Copy(p.compute, page, slot, 0)));
  CHECK(is_refused(p.device.Fill(p.compute, slot, 0, kBytes)));
  CHECK(is_refused(p.device.Launch(p.compute, "unknown", 1)));
  CHECK_FALSE(p.device.work().ExecuteNext());
}

TEST_CASE("a kernel that leaves its memory costs the device") {
  DeviceProgram p;
  std::byte* const page = p.OnDevice("page");
  p.Add(p.compute, page + 4, page, 1);  // one number too far
  const DeviceEvent after = p.Recorded(p.compute);
  p.Until(after);
  REQUIRE(p.device.lost().has_value());
  CHECK(p.device.lost()->find("kernel add 1 writes 64 bytes at 0x") == 0);
  CHECK(p.device.Fill(p.compute, page, 0, kBytes).code() == absl::StatusCode::kUnavailable);
}

TEST_CASE("between its earliest start and its end a copy leaves poison in its target") {
  int poisoned = 0, early = 0, late = 0;
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    DeviceProgram p({.seed = seed});
    std::byte* const page = p.OnDevice("page");
    std::byte* const slot = p.Slot("slot");
    std::byte* const seen = p.Slot("seen");
    REQUIRE(p.device.Fill(p.compute, page, 1, kBytes).ok());
    p.Until(p.Recorded(p.compute));
    p.Set(slot, 0x02020202);
    p.Copy(p.compute, page, slot);
    p.Copy(p.copies, seen, page);  // does not wait
    p.Finish();
    CHECK(p.device.order().total() == 1);
    const int32_t value = p.Get(seen);
    poisoned += value == 0x7fc17fc1;
    early += value == 0x01010101;
    late += value == 0x02020202;
  }
  CHECK(poisoned > 50);
  CHECK(early == 0);
  CHECK(late > 50);
}

// ---- order ----

// Steps through two staging buffers and two result slots on one stream, and pages that are copied
// to the host on another, each used again when it is free. Returns the order of execution.
std::string RunSteps(DeviceProgram& p, int n_steps) {
  std::string order;
  std::byte* const state = p.OnDevice("state");
  REQUIRE(p.device.Fill(p.compute, state, 0, kBytes).ok());
  std::byte *input[2], *block[2], *page[2], *slot[2];
  std::optional<DeviceEvent> uploaded[2], gathered[2];
  for (int i = 0; i < 2; ++i) {
    input[i] = p.Slot("input");
    block[i] = p.OnDevice("block");
    page[i] = p.OnDevice("page");
    slot[i] = p.Slot("slot");
  }
  const auto note = [&](DeviceStream stream, char what) {
    REQUIRE(p.device.Notify(stream, [&order, what] { order += what; }).ok());
  };
  const auto take = [&](int step) {
    p.Until(*gathered[step % 2]);
    CHECK(p.Get(slot[step % 2]) == (step + 1) * (step + 2) / 2);
  };
  for (int step = 0; step < n_steps; ++step) {
    const int i = step % 2;
    if (uploaded[i]) p.Until(*uploaded[i]);
    p.Set(input[i], step);
    p.Copy(p.compute, block[i], input[i]);
    uploaded[i] = p.Recorded(p.compute);
    note(p.compute, 'u');
    p.Add(p.compute, state, state, step + 1);
    if (step >= 2) {
      take(step - 2);
      p.WaitFor(p.compute, *gathered[i]);
    }
    p.Add(p.compute, page[i], state, 0);
    note(p.compute, 'c');
    p.WaitFor(p.copies, p.Recorded(p.compute));
    p.Copy(p.copies, slot[i], page[i]);
    note(p.copies, 'g');
    gathered[i] = p.Recorded(p.copies);
  }
  for (int step = n_steps - 2; step < n_steps; ++step) take(step);
  p.Finish();
  return order;
}

TEST_CASE("1,000 seeds draw other orders, all of which are allowed, and a seed repeats its order") {
  std::set<std::string> orders;
  for (uint64_t seed = 1; seed <= 1000; ++seed) {
    DeviceProgram p({.seed = seed});
    const std::string order = RunSteps(p, 12);
    orders.insert(order);
    INFO("seed " << seed << ": " << p.Reports());
    CHECK(p.device.order().total() == 0);
    CHECK(p.device.work().counts().blocking_calls == 0);
    CHECK(p.device.work().counts().pageable_copies == 0);
    if (seed % 100 != 0) continue;
    DeviceProgram again({.seed = seed});
    CHECK(RunSteps(again, 12) == order);
  }
  CHECK(orders.size() > 500);
}

TEST_CASE("virtual time goes on with what is executed, and no further than asked") {
  DeviceProgram p;
  std::byte* const page = p.OnDevice("page");
  CHECK_FALSE(p.device.work().NextAt().has_value());
  for (int i = 0; i < 100; ++i) REQUIRE(p.device.Fill(p.compute, page, 0, kBytes).ok());
  const DeviceEvent done = p.Recorded(p.compute);
  int64_t last = 0;
  while (const std::optional<int64_t> next = p.device.work().NextAt()) {
    CHECK(*next >= last);
    CHECK_FALSE(p.device.reached(done));
    last = *next;
    const uint64_t executed = p.device.work().counts().executed;
    p.device.work().AdvanceTo(last - 1);
    CHECK(p.device.work().counts().executed == executed);
    p.device.work().AdvanceTo(last);
    CHECK(p.device.work().counts().executed > executed);
  }
  CHECK(p.device.reached(done));
  CHECK(last > 100 * 1000);
}

TEST_CASE("a host that blocks is counted") {
  DeviceProgram p;
  std::byte* const page = p.OnDevice("page");
  std::byte* const slot = p.Slot("slot");
  REQUIRE(p.device.Fill(p.compute, page, 0, kBytes).ok());
  p.Copy(p.compute, slot, page);
  p.device.Synchronize(p.Recorded(p.compute));
  CHECK(p.Get(slot) == 0);
  CHECK(p.device.work().counts().blocking_calls == 1);
  CHECK(p.device.order().total() == 0);
}

// ---- graphs ----

TEST_CASE("a graph keeps the arguments of its capture, and reads memory when it is launched") {
  DeviceProgram p;
  std::byte* const page = p.OnDevice("page");
  std::byte* const table = p.OnDevice("table");
  std::byte* const staging = p.Slot("staging");
  std::byte* const slot = p.Slot("slot");
  AddArguments arguments{page, table, 1};
  REQUIRE(p.device.BeginCapture(p.compute).ok());
  p.Copy(p.compute, table, staging);
  REQUIRE(p.device.Launch(p.compute, "add", arguments).ok());
  p.Copy(p.compute, slot, page);
  CHECK(p.device.Record(p.device.NewEvent(), p.compute).code() ==
        absl::StatusCode::kFailedPrecondition);
  absl::StatusOr<DeviceGraph> graph = p.device.EndCapture(p.compute);
  REQUIRE(graph.ok());
  CHECK_FALSE(p.device.work().ExecuteNext());  // capturing executes nothing
  arguments = {page, page, 100};               // too late
  for (const int32_t value : {10, 20}) {
    p.Set(staging, value);
    REQUIRE(p.device.LaunchGraph(p.compute, *graph).ok());
    p.Until(p.Recorded(p.compute));
    CHECK(p.Get(slot) == value + 1);
  }
  CHECK(p.Reports().empty());
}

TEST_CASE("a graph that uses memory allocated after its capture is reported") {
  for (const bool is_captured_anew : {true, false}) {
    DeviceProgram p;
    const auto capture = [&](std::byte* table) {
      REQUIRE(p.device.BeginCapture(p.compute).ok());
      p.Add(p.compute, table, table, 1);
      absl::StatusOr<DeviceGraph> graph = p.device.EndCapture(p.compute);
      REQUIRE(graph.ok());
      return *graph;
    };
    std::byte* const table = p.OnDevice("table");
    DeviceGraph graph = capture(table);
    p.device.Free(table);
    std::byte* const other = p.OnDevice("another table");
    REQUIRE(other == table);  // so that the address alone does not tell
    if (is_captured_anew) graph = capture(other);
    REQUIRE(p.device.LaunchGraph(p.compute, graph).ok());
    p.Finish();
    INFO(p.Reports());
    CHECK(p.Reports().starts_with(
        is_captured_anew ? "" : "graph's kernel add 1 is of a graph that was captured before"));
    CHECK((p.device.order().total() == 0) == is_captured_anew);
  }
}

TEST_CASE("operations of a graph wait and are waited for as others") {
  for (const bool waits : {true, false}) {
    DeviceProgram p;
    std::byte* const page = p.OnDevice("page");
    REQUIRE(p.device.BeginCapture(p.compute).ok());
    p.Add(p.compute, page, page, 1);
    absl::StatusOr<DeviceGraph> graph = p.device.EndCapture(p.compute);
    REQUIRE(graph.ok());
    REQUIRE(p.device.LaunchGraph(p.compute, *graph).ok());
    if (waits) p.WaitFor(p.copies, p.Recorded(p.compute));
    p.Copy(p.copies, p.Slot("slot"), page);
    p.Finish();
    CHECK((p.device.order().total() == 0) == waits);
  }
}

// ---- faults ----

TEST_CASE("allocations, copies and launches fail where the plan says, and nothing is executed") {
  {
    DeviceProgram p({.faults = {.allocation = 2}});
    p.OnDevice("first");
    const absl::Status status = p.device.AllocatePinned(64, "slots").status();
    CHECK(status.code() == absl::StatusCode::kResourceExhausted);
    CHECK(status.message() == "device: no memory for slots of 64 bytes");
    p.OnDevice("third");
  }
  DeviceProgram p({.faults = {.copy = 2, .launch = 2}});
  std::byte* const page = p.OnDevice("page");
  std::byte* const slot = p.Slot("slot");
  p.Set(slot, 1);
  p.Copy(p.compute, page, slot);
  CHECK(p.device.Copy(p.compute, slot, page, kBytes).code() == absl::StatusCode::kInternal);
  p.Add(p.compute, page, page, 1);
  CHECK(p.device.Launch(p.compute, "add", AddArguments{page, page, 1}).code() ==
        absl::StatusCode::kInternal);
  p.Add(p.compute, page, page, 1);
  p.Copy(p.compute, slot, page);
  p.Until(p.Recorded(p.compute));
  CHECK(p.Get(slot) == 3);
  CHECK_FALSE(p.device.lost().has_value());
}

TEST_CASE("a device lost at any operation says so, reaches every event and tells every waiter") {
  for (uint64_t at = 1; at <= 9; ++at) {
    DeviceProgram p({.seed = at, .faults = {.lost_at = at}});
    std::byte* const page = p.OnDevice("page");
    std::byte* const slot = p.Slot("slot");
    p.Set(slot, 1);
    p.Copy(p.compute, page, slot);
    p.Add(p.compute, page, page, 1);
    const DeviceEvent computed = p.Recorded(p.compute);
    p.WaitFor(p.copies, computed);
    p.Copy(p.copies, slot, page);
    int calls = 0;
    REQUIRE(p.device.Notify(p.copies, [&] { ++calls; }).ok());
    const DeviceEvent gathered = p.Recorded(p.copies);
    REQUIRE(p.device.Notify(p.copies, [&] { ++calls; }).ok());
    CHECK(p.device.reached(gathered) == false);
    p.Finish();
    CHECK(calls == 2);
    CHECK(p.device.reached(computed));
    CHECK(p.device.reached(gathered));
    const bool is_lost = at <= 8;  // there are eight
    REQUIRE(p.device.lost().has_value() == is_lost);
    const absl::Status status = p.device.Copy(p.compute, page, slot, kBytes);
    CHECK(status.ok() == !is_lost);
    if (!is_lost) continue;
    CHECK(status.code() == absl::StatusCode::kUnavailable);
    CHECK(status.message().find("device: lost: at ") == 0);
    CHECK(p.device.LaunchGraph(p.compute, {0}).code() == absl::StatusCode::kUnavailable);
    CHECK(p.device.Record(computed, p.compute).code() == absl::StatusCode::kUnavailable);
    CHECK_FALSE(p.device.work().ExecuteNext());
  }
}

TEST_CASE("a slow device takes longer and does the same") {
  int64_t ends[2] = {0, 0};
  for (const int slow : {0, 1}) {
    DeviceProgram p({.faults = {.slow_from = slow == 1 ? uint64_t{10} : 0, .slow_factor = 50}});
    std::byte* const page = p.OnDevice("page");
    REQUIRE(p.device.Fill(p.compute, page, 0, kBytes).ok());
    for (int i = 0; i < 100; ++i) p.Add(p.compute, page, page, 1);
    std::byte* const slot = p.Slot("slot");
    p.Copy(p.compute, slot, page);
    const DeviceEvent done = p.Recorded(p.compute);
    while (const std::optional<int64_t> next = p.device.work().NextAt()) {
      ends[slow] = *next;
      p.device.work().ExecuteNext();
    }
    REQUIRE(p.device.reached(done));
    CHECK(p.Get(slot) == 100);
  }
  CHECK(ends[1] > 10 * ends[0]);
}

// ---- threads ----

// Numbers that go from one thread to another, with what the sender knows.
class Messages {
 public:
  void Post(int number, VectorClock clock) {
    const std::lock_guard lock(mutex_);
    messages_.emplace_back(number, std::move(clock));
    posted_.notify_one();
  }
  std::pair<int, VectorClock> Take() {
    std::unique_lock lock(mutex_);
    posted_.wait(lock, [this] { return !messages_.empty(); });
    auto message = std::move(messages_.front());
    messages_.pop_front();
    return message;
  }

 private:
  std::mutex mutex_;
  std::condition_variable posted_;
  std::deque<std::pair<int, VectorClock>> messages_;
};

TEST_CASE("an engine thread and a link thread share a device that is a thread") {
  constexpr int kSteps = 200, kSlots = 4;
  DeviceProgram p({.pace = {.usual_ns = 2'000, .late_ns = 100'000}});
  HappensBefore& order = p.device.order();
  std::byte* const state = p.OnDevice("state");
  std::byte *page[kSlots], *slot[kSlots];
  for (int i = 0; i < kSlots; ++i) {
    page[i] = p.OnDevice("page");
    slot[i] = p.Slot("slot");
  }
  REQUIRE(p.device.Fill(p.compute, state, 0, kBytes).ok());
  Messages to_link, freed;
  std::atomic<int> wrong = 0;
  {
    DeviceThread device(p.device);
    // Gathers each page when its step is computed, reads it, and gives it back.
    std::thread link([&] {
      order.ActAs("link thread");
      Messages gathered;
      for (int step = 0; step < kSteps; ++step) {
        const auto [event, computed] = to_link.Take();
        order.Receive(computed);
        const int i = step % kSlots;
        if (!p.device.Wait(p.copies, {event}).ok() ||
            !p.device.Copy(p.copies, slot[i], page[i], kBytes).ok() ||
            !p.device.Notify(p.copies, [&] { gathered.Post(i, order.Send()); }).ok()) {
          ++wrong;
        }
        order.Receive(gathered.Take().second);
        p.device.HostReads(slot[i], kBytes);
        int32_t value = 0;
        std::memcpy(&value, slot[i], sizeof(value));
        if (value != step + 1) ++wrong;
        freed.Post(i, order.Send());
      }
    });
    for (int step = 0; step < kSteps; ++step) {
      const int i = step % kSlots;
      if (step >= kSlots) order.Receive(freed.Take().second);
      p.Add(p.compute, state, state, 1);
      p.Add(p.compute, page[i], state, 0);
      to_link.Post(p.Recorded(p.compute).id, order.Send());
    }
    link.join();
  }
  INFO(p.Reports());
  CHECK(wrong == 0);
  CHECK(order.total() == 0);
  CHECK(p.device.work().counts().executed >= kSteps * 6);
  CHECK(p.device.work().counts().blocking_calls == 0);
}

TEST_CASE("a host thread may block before the device's thread has begun to run") {
  for (int i = 0; i < 300; ++i) {
    DeviceProgram p({.pace = {.usual_ns = 1'000, .late_ns = 1'000}});
    std::byte* const page = p.OnDevice("page");
    REQUIRE(p.device.Fill(p.compute, page, 0, kBytes).ok());
    const DeviceEvent done = p.device.NewEvent();
    REQUIRE(p.device.Record(done, p.compute).ok());
    DeviceThread device(p.device);
    p.device.Synchronize(done);
    CHECK(p.device.reached(done));
  }
}

TEST_CASE(
    "a host thread that blocks is woken when its event is reached, and when the device is lost") {
  for (const uint64_t lost_at : {uint64_t{0}, uint64_t{30}}) {
    DeviceProgram p(
        {.pace = {.usual_ns = 1'000, .late_ns = 20'000}, .faults = {.lost_at = lost_at}});
    std::byte* const page = p.OnDevice("page");
    DeviceThread device(p.device);
    for (int i = 0; i < 100; ++i)
      if (!p.device.Fill(p.compute, page, 0, kBytes).ok()) break;
    const DeviceEvent done = p.device.NewEvent();
    if (p.device.Record(done, p.compute).ok()) p.device.Synchronize(done);
    CHECK(p.device.lost().has_value() == (lost_at != 0));
  }
}

}  // namespace
}  // namespace baton
