// Each kind of wait that a program can lack: the checker reports it under every order that the seed
// draws, most of which do no harm, and reports nothing of the same program with its wait.

#include <functional>
#include <random>
#include <set>

#include "tests/engine/device/device_program.h"

namespace baton {
namespace {

using Program = std::function<void(DeviceProgram&, bool waits)>;

// Runs a program under many orders, with its wait and without.
void CheckWait(const Program& program, const std::string& expected) {
  for (const bool waits : {true, false}) {
    for (uint64_t seed = 1; seed <= 50; ++seed) {
      DeviceProgram p({.seed = seed});
      program(p, waits);
      p.Finish();
      INFO("seed " << seed << (waits ? ", with its wait: " : ", without: ") << p.Reports());
      if (waits) {
        CHECK(p.device.order().total() == 0);
      } else {
        CHECK(p.device.order().total() > 0);
        CHECK(p.Reports().find(expected) != std::string::npos);
      }
    }
  }
}

TEST_CASE("a copy of a plane to the host waits for the kernel that writes it") {
  CheckWait(
      [](DeviceProgram& p, bool waits) {
        std::byte* const plane = p.OnDevice("page 3, plane 1");
        p.Add(p.compute, plane, plane, 1);
        const DeviceEvent written = p.Recorded(p.compute);
        if (waits) p.WaitFor(p.copies, written);
        p.Copy(p.copies, p.Slot("slot 0"), plane);
      },
      "page 3, plane 1, bytes 0 to 64: ");
}

TEST_CASE("a kernel waits for the copy that fills what it reads") {
  CheckWait(
      [](DeviceProgram& p, bool waits) {
        std::byte* const plane = p.OnDevice("plane");
        std::byte* const slot = p.Slot("slot");
        p.Set(slot, 7);
        p.Copy(p.copies, plane, slot);
        const DeviceEvent copied = p.Recorded(p.copies);
        if (waits) p.WaitFor(p.compute, copied);
        p.Add(p.compute, p.OnDevice("other"), plane, 1);
      },
      "(stream copies)");
}

TEST_CASE("a page is zeroed on the stream that writes it, or the writer waits") {
  CheckWait(
      [](DeviceProgram& p, bool waits) {
        std::byte* const page = p.OnDevice("page");
        REQUIRE(p.device.Fill(waits ? p.compute : p.copies, page, 0, kBytes).ok());
        p.Add(p.compute, page, page, 1);
      },
      "page");
}

TEST_CASE("a page that a copy to the host reads is written again only behind the copy") {
  CheckWait(
      [](DeviceProgram& p, bool waits) {
        std::byte* const page = p.OnDevice("page");
        p.Add(p.compute, page, page, 1);
        p.WaitFor(p.copies, p.Recorded(p.compute));
        p.Copy(p.copies, p.Slot("slot"), page);
        const DeviceEvent read = p.Recorded(p.copies);
        if (waits) p.WaitFor(p.compute, read);
        p.Add(p.compute, page, page, 1);  // its new owner
      },
      "page");
}

TEST_CASE("the host reads a result when its event is reached") {
  CheckWait(
      [](DeviceProgram& p, bool waits) {
        std::byte* const tokens = p.OnDevice("tokens");
        std::byte* const slot = p.Slot("results");
        REQUIRE(p.device.Fill(p.compute, tokens, 0, kBytes).ok());
        p.Add(p.compute, tokens, tokens, 5);
        p.Copy(p.compute, slot, tokens);
        const DeviceEvent done = p.Recorded(p.compute);
        if (waits)
          p.Until(done);
        else
          p.Finish();  // it is there, and nobody has asked
        CHECK(p.Get(slot) == 5);
      },
      "results, bytes 0 to 64: engine thread (engine thread) reads it");
}

TEST_CASE("the host reads no result before it is there, which shows by its poison, too") {
  DeviceProgram p;
  std::byte* const tokens = p.OnDevice("tokens");
  std::byte* const slot = p.Slot("results");
  REQUIRE(p.device.Fill(p.compute, tokens, 0, kBytes).ok());
  p.Set(slot, 3);
  p.Copy(p.compute, slot, tokens);
  CHECK(p.Get(slot) == 0x7fc17fc1);
  p.Finish();
  CHECK(p.device.order().total() == 1);
}

TEST_CASE("the host writes a staging buffer again when the copy from it is done") {
  CheckWait(
      [](DeviceProgram& p, bool waits) {
        std::byte* const block = p.OnDevice("metadata on the device");
        std::byte* const staging = p.Slot("metadata block");
        p.Set(staging, 1);
        p.Copy(p.compute, block, staging);
        const DeviceEvent copied = p.Recorded(p.compute);
        if (waits) p.Until(copied);
        p.Set(staging, 2);
        p.Copy(p.compute, block, staging);
      },
      "metadata block");
}

TEST_CASE("a source of a copy is what it was when the copy was submitted") {
  for (const bool is_pinned : {true, false}) {
    DeviceProgram p;
    std::byte* const block = p.OnDevice("block");
    std::vector<std::byte> pageable(kBytes);
    std::byte* const source = is_pinned ? p.Slot("staging") : pageable.data();
    std::memset(source, 1, kBytes);
    p.Copy(p.compute, block, source);
    std::memset(source, 2, kBytes);  // and nobody is told
    p.Finish();
    INFO(p.Reports());
    CHECK(p.device.order().total() == 1);
    CHECK(p.Reports().find("the source of copy 1 has changed") != std::string::npos);
    CHECK(p.device.work().counts().pageable_copies == (is_pinned ? 0 : 1));
  }
}

TEST_CASE("a slot may be filled and sent on in one stream without the host") {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    DeviceProgram p({.seed = seed});
    std::byte* const from = p.OnDevice("from");
    std::byte* const to = p.OnDevice("to");
    std::byte* const slot = p.Slot("slot");
    p.Set(slot, 4);
    p.Copy(p.copies, from, slot);
    p.Add(p.copies, from, from, 1);
    p.Copy(p.copies, slot, from);
    p.Copy(p.copies, to, slot);
    p.Add(p.copies, to, to, 1);
    p.Copy(p.copies, slot, to);
    p.Until(p.Recorded(p.copies));
    CHECK(p.Get(slot) == 6);
    INFO(p.Reports());
    CHECK(p.device.order().total() == 0);
  }
}

TEST_CASE("an event is recorded behind the operation that is waited for") {
  CheckWait(
      [](DeviceProgram& p, bool waits) {
        std::byte* const page = p.OnDevice("page");
        DeviceEvent event = p.Recorded(p.compute);
        p.Add(p.compute, page, page, 1);
        if (waits) event = p.Recorded(p.compute);
        p.WaitFor(p.copies, event);
        p.Copy(p.copies, p.Slot("slot"), page);
      },
      "page");
}

TEST_CASE("a wait means the record before it, not one that follows") {
  CheckWait(
      [](DeviceProgram& p, bool waits) {
        std::byte* const page = p.OnDevice("page");
        const DeviceEvent event = p.Recorded(p.compute);
        if (!waits) p.WaitFor(p.copies, event);
        p.Add(p.compute, page, page, 1);
        REQUIRE(p.device.Record(event, p.compute).ok());
        if (waits) p.WaitFor(p.copies, event);
        p.Copy(p.copies, p.Slot("slot"), page);
      },
      "page");
}

TEST_CASE("a wait for an event that nobody recorded is no wait") {
  CheckWait(
      [](DeviceProgram& p, bool waits) {
        const DeviceEvent event = p.device.NewEvent();
        if (waits) REQUIRE(p.device.Record(event, p.compute).ok());
        p.WaitFor(p.copies, event);
      },
      "stream copies waits for an event that nobody has recorded");
}

TEST_CASE("a chain of waits over a third stream is a wait") {
  CheckWait(
      [](DeviceProgram& p, bool waits) {
        const DeviceStream third = p.device.NewStream("third");
        std::byte* const page = p.OnDevice("page");
        p.Add(p.compute, page, page, 1);
        p.WaitFor(third, p.Recorded(p.compute));
        const DeviceEvent passed_on = p.Recorded(third);
        if (waits) p.WaitFor(p.copies, passed_on);
        p.Copy(p.copies, p.Slot("slot"), page);
      },
      "page");
}

TEST_CASE("a wait of the host orders what is submitted after it to any stream") {
  CheckWait(
      [](DeviceProgram& p, bool waits) {
        std::byte* const page = p.OnDevice("page");
        p.Add(p.compute, page, page, 1);
        const DeviceEvent written = p.Recorded(p.compute);
        if (waits)
          p.Until(written);
        else
          p.Finish();
        p.Copy(p.copies, p.Slot("slot"), page);
      },
      "page");
}

TEST_CASE("what one host thread has waited for, another knows by a message alone") {
  CheckWait(
      [](DeviceProgram& p, bool waits) {
        HappensBefore& order = p.device.order();
        std::byte* const page = p.OnDevice("page");
        std::byte* const slot = p.Slot("slot");
        p.Add(p.compute, page, page, 1);
        p.Copy(p.compute, slot, page);
        p.Until(p.Recorded(p.compute));
        const VectorClock message = order.Send();
        order.ActAs("link thread");
        if (waits) order.Receive(message);
        p.Get(slot);
        order.ActAs("engine thread");
      },
      "slot, bytes 0 to 64: link thread (link thread) reads it");
}

TEST_CASE("two host threads do not write a slot beside each other") {
  CheckWait(
      [](DeviceProgram& p, bool waits) {
        HappensBefore& order = p.device.order();
        std::byte* const slot = p.Slot("slot");
        p.Set(slot, 1);
        const VectorClock message = order.Send();
        if (!waits) p.Set(slot, 2);  // after it has told the other
        order.ActAs("link thread");
        order.Receive(message);
        p.Set(slot, 3);
        order.ActAs("engine thread");
      },
      "link thread (link thread) writes it and does not wait for engine thread");
}

TEST_CASE("a message of a notification carries what comes before it in its stream") {
  CheckWait(
      [](DeviceProgram& p, bool waits) {
        std::byte* const page = p.OnDevice("page");
        std::byte* const slot = p.Slot("slot");
        p.Add(p.compute, page, page, 1);
        if (waits) p.Copy(p.compute, slot, page);
        p.WaitFor(p.copies, p.Recorded(p.compute));
        std::optional<VectorClock> message;
        REQUIRE(p.device.Notify(p.copies, [&] { message = p.device.order().Send(); }).ok());
        if (!waits) p.Copy(p.compute, slot, page);
        while (!message) REQUIRE(p.device.work().ExecuteNext());
        p.device.order().Receive(*message);
        p.Get(slot);
      },
      "slot");
}

TEST_CASE("a notification does not call the device") {
  CheckWait(
      [](DeviceProgram& p, bool waits) {
        REQUIRE(p.device
                    .Notify(p.copies,
                            [&p, waits] {
                              if (waits) return;
                              const absl::Status status =
                                  p.device.Record(p.device.NewEvent(), p.copies);
                              CHECK(status.code() == absl::StatusCode::kFailedPrecondition);
                            })
                    .ok());
      },
      "a notification calls the device");
}

TEST_CASE("memory is freed when nothing under way uses it") {
  CheckWait(
      [](DeviceProgram& p, bool waits) {
        std::byte* const page = p.OnDevice("page");
        REQUIRE(p.device.Fill(p.compute, page, 0, kBytes).ok());
        const DeviceEvent filled = p.Recorded(p.compute);
        if (waits)
          p.Until(filled);
        else
          p.Finish();
        p.device.Free(page);
      },
      "page");
  CheckWait(
      [](DeviceProgram& p, bool waits) {
        std::byte* const page = p.OnDevice("page");
        std::byte* const slot = p.Slot("slot");
        p.Set(slot, 1);
        p.Copy(p.compute, page, slot);
        const DeviceEvent copied = p.Recorded(p.compute);
        if (waits) p.Until(copied);
        p.device.Free(slot);
      },
      "memory of the host is freed that an operation under way uses");
}

TEST_CASE("halves of a buffer are two things") {
  DeviceProgram p;
  std::byte* const page = p.OnDevice("page");
  REQUIRE(p.device.Fill(p.compute, page, 0, kBytes / 2).ok());
  REQUIRE(p.device.Fill(p.copies, page + kBytes / 2, 0, kBytes / 2).ok());
  p.Finish();
  CHECK(p.device.order().total() == 0);
  REQUIRE(p.device.Fill(p.copies, page + kBytes / 2 - 1, 0, 2).ok());
  p.Finish();
  CHECK(p.device.order().total() == 1);
  CHECK(p.Reports().starts_with("page, bytes 31 to 32: "));
}

// ---- random programs, judged by whoever looks at all pairs ----

// An operation of a random program, and the operations that come before it.
struct Step {
  int buffer = 0;
  bool writes = false;
  std::set<int> before;
};

TEST_CASE("random programs are reported if and only if two of their operations are not ordered") {
  int clean = 0, faulty = 0;
  for (uint64_t seed = 1; seed <= 1000; ++seed) {
    std::mt19937_64 random(seed);
    DeviceProgram p({.seed = seed});
    const DeviceStream streams[] = {p.compute, p.copies, p.device.NewStream("third")};
    std::byte* const buffers[] = {p.OnDevice("a"), p.OnDevice("b"), p.OnDevice("c")};
    std::vector<Step> steps;
    std::set<int> of_stream[3], of_event[3], of_host;  // what comes before their next operation
    std::optional<DeviceEvent> events[3];
    const uint64_t n_waits = 2 + random() % 57;  // of 60: with more waits more programs are clean
    for (int i = 0; i < 20; ++i) {
      const size_t s = random() % 3, e = random() % 3;
      of_stream[s].insert(of_host.begin(), of_host.end());
      const uint64_t kind = random() % 60;
      if (kind < n_waits) {
        if (!events[e]) events[e] = p.device.NewEvent();
        REQUIRE(p.device.Record(*events[e], streams[s]).ok());
        of_event[e] = of_stream[s];
        const size_t to = random() % 4;
        if (to < 3) {
          p.WaitFor(streams[to], *events[e]);
          of_stream[to].insert(of_event[e].begin(), of_event[e].end());
        } else {
          p.Until(*events[e]);
          of_host.insert(of_event[e].begin(), of_event[e].end());
        }
        continue;
      }
      Step step{static_cast<int>(random() % 3), random() % 2 == 0, of_stream[s]};
      if (step.writes) {
        REQUIRE(p.device.Fill(streams[s], buffers[step.buffer], 1, kBytes).ok());
      } else {
        p.Copy(streams[s], p.OnDevice("copy"), buffers[step.buffer]);
      }
      of_stream[s].insert(static_cast<int>(steps.size()));
      steps.push_back(step);
    }
    p.Finish();
    bool is_ordered = true;
    for (size_t b = 0; b < steps.size(); ++b) {
      for (size_t a = 0; a < b; ++a) {
        if (steps[a].buffer != steps[b].buffer || !(steps[a].writes || steps[b].writes)) continue;
        is_ordered = is_ordered && steps[b].before.contains(static_cast<int>(a));
      }
    }
    INFO("seed " << seed << ": " << p.Reports());
    CHECK((p.device.order().total() == 0) == is_ordered);
    ++(is_ordered ? clean : faulty);
  }
  CHECK(clean > 100);
  CHECK(faulty > 100);
}

}  // namespace
}  // namespace baton
