// KV copies between a device and the slots of the link, on an emulated device in virtual time and
// with threads: the right bytes under any order, no wait missing, and nothing told that did not
// happen.
#include "worker/device_copier.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <cstring>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/check.h"
#include "common/mailbox.h"
#include "engine/cuda/device/emulated/device_thread.h"
#include "engine/cuda/device/emulated/emulated_device.h"
#include "engine/kv/kv_pool.h"
#include "engine/model/model_desc.h"

namespace baton {
namespace {

constexpr int kPages = 8, kLayers = 3;

// A device with a pool of pages, whose steps are zeroings and copies of pages. The test is the
// engine thread, the link thread and the device by turns.
struct Rig {
  explicit Rig(uint64_t seed, const FaultPlan& faults = {})
      : device({.memory_bytes = int64_t{16} << 20, .seed = seed, .faults = faults}) {
    desc.n_layers = kLayers;
    desc.vocab = 16;
    desc.max_positions = kPages * 16;
    DeviceModel model;
    model.desc = &desc;
    model.layout =
        KvLayout::Of(std::vector<KvShape>(kLayers, {.heads = 1, .key_dim = 32, .value_dim = 32}),
                     KvType::kBf16, 16);
    model.limits = {.max_step_tokens = 8, .max_slice_tokens = 16};
    As("engine");
    auto made = DeviceBackend::Create(device, model, {});
    REQUIRE(made.ok());
    backend = *std::move(made);
    auto mapped = backend->NewArena(kPages * model.layout.page_bytes);
    REQUIRE(mapped.ok());
    arena = *std::move(mapped);
    view = {.base = arena->base(),
            .page_stride = model.layout.page_bytes,
            .n_pages = kPages,
            .planes = {}};
    for (const KvPlane& plane : model.layout.planes)
      view.planes.push_back({plane.offset, plane.bytes});
    As("link");
    copier = std::make_unique<DeviceCopier>(
        device, *backend, view,
        DeviceCopier::Ports{[this] {
                              ++wakes;
                              if (on_wake != nullptr) on_wake();
                            },
                            [this](const std::string& why) { lost.push_back(why); }});
    slots = copier->NewSlots(kSlots * slot_bytes());
  }
  ~Rig() {
    RunAll();
    As("link");
    copier.reset();
    Pass("link", "engine");  // as threads are joined
    As("engine");
    arena.reset();
  }

  void As(const char* thread) { device.order().ActAs(thread); }
  // A message from one thread to another.
  void Pass(const char* from, const char* to) {
    As(from);
    const VectorClock sent = device.order().Send();
    As(to);
    device.order().Receive(sent);
  }
  void RunAll() {
    while (device.work().ExecuteNext()) continue;
  }
  // Runs the device until the copier has told n events more, or nothing is left.
  std::vector<CopyEvent> Events(size_t n) {
    As("link");
    std::vector<CopyEvent> events;
    copier->Poll(&events);
    while (events.size() < n && device.work().ExecuteNext()) copier->Poll(&events);
    return events;
  }
  int64_t slot_bytes() const { return view.page_stride * 2; }
  std::byte* Slot(int i) const { return slots + i * slot_bytes(); }
  // Fence of pages that the engine fills by zeroing them.
  uint64_t Zero(int page, int n_pages = 1) {
    As("engine");
    arena->Zero(view.base + page * view.page_stride, n_pages * view.page_stride);
    return backend->submitted().at;
  }
  uint64_t CopyPage(int from, int to) {
    As("engine");
    arena->Copy(view.base + to * view.page_stride, view.base + from * view.page_stride,
                view.page_stride);
    return backend->submitted().at;
  }
  // A slot that the link has received in.
  void Receive(int slot, uint8_t value) {
    As("link");
    device.HostWrites(Slot(slot), slot_bytes());
    std::memset(Slot(slot), value, static_cast<size_t>(slot_bytes()));
  }
  void Scatter(OperationId id, const std::vector<int32_t>& pages, uint64_t after, int slot) {
    As("link");
    CHECK_FALSE(copier->Scatter(id, Whole(pages, after), Slot(slot)));
  }
  void Gather(OperationId id, const std::vector<int32_t>& pages, uint64_t after, int slot) {
    As("link");
    uint32_t crc = 7;
    CHECK_FALSE(copier->Gather(id, Whole(pages, after), Slot(slot), &crc));
    CHECK(crc == 7);
  }
  bool SlotIs(int slot, uint8_t value, int64_t bytes) const {
    for (int64_t i = 0; i < bytes; ++i)
      if (Slot(slot)[i] != std::byte{value}) return false;
    return true;
  }
  std::string Reports() const {
    std::string all;
    for (const std::string& report : device.order().reports()) all += report + "\n";
    return all;
  }
  static Cells Whole(const std::vector<int32_t>& pages, uint64_t after) {
    return {.rect = {.n_planes = kLayers, .n_pages = static_cast<int32_t>(pages.size())},
            .page_ids = pages,
            .after = after};
  }

  static constexpr int kSlots = 4;
  ModelDesc desc;
  mutable EmulatedDevice device;
  std::unique_ptr<DeviceBackend> backend;
  std::unique_ptr<KvArena> arena;
  PoolView view;
  std::atomic<int> wakes = 0;
  std::function<void()> on_wake;  // on a thread of the device
  std::vector<std::string> lost;
  std::unique_ptr<DeviceCopier> copier;
  std::byte* slots = nullptr;
};

bool Is(const CopyEvent& event, OperationId gathered) {
  const auto* gather = std::get_if<CellsGathered>(&event);
  return gather != nullptr && gather->operation == gathered;
}

// A page that was lent, received, copied by a step, sent on, given back and zeroed anew.
void LiveOnce(Rig* rig) {
  const int64_t page = rig->view.page_stride;
  const uint64_t lent = rig->Zero(0, 4);
  rig->Receive(0, 0x11);
  rig->Scatter(1, {2, 1}, lent, 0);
  REQUIRE(rig->Events(1).size() == 1);
  rig->Pass("link", "engine");
  const uint64_t computed = rig->CopyPage(2, 5);
  rig->Gather(2, {5}, computed, 1);  // what the step wrote
  rig->Gather(3, {1}, 0, 2);         // passed on: the scatter is before it
  const std::vector<CopyEvent> events = rig->Events(2);
  REQUIRE(events.size() == 2);
  CHECK(Is(events[0], 2));
  CHECK(Is(events[1], 3));
  CHECK(rig->SlotIs(1, 0x11, page));
  CHECK(rig->SlotIs(2, 0x11, page));
  rig->Pass("link", "engine");
  const uint64_t zeroed = rig->Zero(1);
  rig->Gather(4, {1}, zeroed, 1);
  REQUIRE(rig->Events(1).size() == 1);
  CHECK(rig->SlotIs(1, 0, page));
  rig->Pass("link", "engine");
}

struct CopyOrder {
  enum Kind { kScatter, kGather, kWake, kStop } kind = kStop;
  int32_t page = 0;
  uint64_t after = 0;
};

// Carries what one thread tells another, with what it knew then; wakes tell nothing.
class Line {
 public:
  explicit Line(HappensBefore& order) : order_(order) {}
  void Send(const CopyOrder& message) { Post({message, order_.Send()}); }
  void Wake() { Post({{.kind = CopyOrder::kWake}, std::nullopt}); }
  std::vector<CopyOrder> Take() {
    std::vector<Message> messages;
    mailbox_.WaitAndDrain(&messages);
    std::vector<CopyOrder> orders;
    for (const auto& [order, known] : messages) {
      if (known) order_.Receive(*known);
      orders.push_back(order);
    }
    return orders;
  }

 private:
  using Message = std::pair<CopyOrder, std::optional<VectorClock>>;
  void Post(Message&& message) { BATON_CHECK(mailbox_.TryPost(std::move(message))); }

  HappensBefore& order_;
  Mailbox<Message> mailbox_{1024};
};

// Does what the engine orders, as the link thread, and tells it what has ended. No other thread
// checks meanwhile, for Catch serves one.
void RunLink(Rig* rig, Line* orders, Line* ended) {
  rig->As("link");
  const auto tell = [&](CopyOrder::Kind kind, OperationId operation) {
    ended->Send({kind, static_cast<int32_t>(operation)});
  };
  while (true) {
    std::vector<CopyEvent> events;
    rig->copier->Poll(&events);
    for (const CopyEvent& event : events) {
      if (const auto* scatter = std::get_if<CellsScattered>(&event)) {
        tell(CopyOrder::kScatter, scatter->operation);
        continue;
      }
      const auto page = static_cast<int32_t>(std::get<CellsGathered>(event).operation);
      CHECK(rig->SlotIs(page - Rig::kSlots, static_cast<uint8_t>(page), rig->view.page_stride));
      tell(CopyOrder::kGather, page);
    }
    for (const CopyOrder& order : orders->Take()) {
      const auto id = static_cast<OperationId>(order.page);
      if (order.kind == CopyOrder::kStop) return;
      if (order.kind == CopyOrder::kScatter) {
        rig->Receive(order.page, static_cast<uint8_t>(order.page + Rig::kSlots));
        rig->Scatter(id, {order.page}, order.after, order.page);
      } else if (order.kind == CopyOrder::kGather) {
        rig->Gather(id, {order.page}, order.after, order.page - Rig::kSlots);
      }
    }
  }
}

}  // namespace

TEST_CASE("engine and link are threads beside the device: no wait is missing and each wake comes") {
  constexpr int kRounds = 50;
  Rig rig(1);
  Line orders(rig.device.order()), ended(rig.device.order());
  rig.on_wake = [&] { orders.Wake(); };
  rig.Pass("link", "engine");  // as the link thread is started
  const VectorClock started = rig.device.order().Send();
  {
    DeviceThread device(rig.device);
    std::thread link([&] {
      rig.As("link");
      rig.device.order().Receive(started);
      RunLink(&rig, &orders, &ended);
    });
    const auto lend = [&](int page) { orders.Send({CopyOrder::kScatter, page, rig.Zero(page)}); };
    for (int page = 0; page < Rig::kSlots; ++page) lend(page);
    for (int rounds = 0; rounds < kRounds;) {
      for (const CopyOrder& done : ended.Take()) {
        if (done.kind == CopyOrder::kScatter) {  // a step takes it, and its page is handed over
          const int32_t computed = done.page + Rig::kSlots;
          orders.Send({CopyOrder::kGather, computed, rig.CopyPage(done.page, computed)});
        } else if (++rounds <= kRounds - Rig::kSlots) {
          lend(done.page - Rig::kSlots);
        }
      }
    }
    orders.Send({});
    link.join();
  }
  rig.RunAll();  // the last wake may still be under way
  INFO(rig.Reports());
  CHECK(rig.device.order().total() == 0);
  CHECK(rig.wakes == 2 * kRounds);
  CHECK(rig.lost.empty());
  CHECK(rig.device.work().counts().blocking_calls == 0);
}

TEST_CASE("copies carry the right bytes under any order, and no wait is missing") {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    CAPTURE(seed);
    Rig rig(seed);
    LiveOnce(&rig);
    LiveOnce(&rig);
    rig.RunAll();
    INFO(rig.Reports());
    CHECK(rig.device.order().total() == 0);
    CHECK(rig.wakes == 8);  // one for each operation
    CHECK(rig.lost.empty());
    CHECK(rig.device.work().counts().blocking_calls == 0);
  }
}

TEST_CASE("slots are aligned, pinned, and no place of the link's") {
  Rig rig(1);
  CHECK(reinterpret_cast<uintptr_t>(rig.slots) % 4096 == 0);
  CHECK(rig.copier->InPlace(Rig::Whole({1}, 0)) == nullptr);
  LiveOnce(&rig);
  CHECK(rig.device.work().counts().pageable_copies == 0);
}

TEST_CASE("pages that lie one behind the other are one copy") {
  Rig rig(1);
  const uint64_t before = rig.device.work().counts().executed;
  rig.Gather(1, {2, 3}, 0, 0);
  rig.RunAll();
  CHECK(rig.device.work().counts().executed - before == 4);  // copy, record, wait, notification
  rig.Events(1);
}

TEST_CASE("planted: a gather does not wait for its fence") {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    Rig rig(seed);
    rig.Zero(0);
    rig.Gather(1, {0}, 0, 0);
    rig.RunAll();
    CHECK(rig.device.order().total() > 0);
  }
}

TEST_CASE("planted: a scatter does not wait for the zeroing of its pages") {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    Rig rig(seed);
    rig.Zero(0, 2);
    rig.Receive(0, 1);
    rig.Scatter(1, {0, 1}, 0, 0);
    rig.RunAll();
    CHECK(rig.device.order().total() > 0);
  }
}

TEST_CASE(
    "planted: a page is computed with before its scatter has ended, or given while it is read") {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    for (const bool is_gather : {false, true}) {
      Rig rig(seed);
      const uint64_t lent = rig.Zero(0, 2);
      rig.Receive(0, 1);
      if (is_gather) {
        rig.Gather(1, {0, 1}, lent, 1);
      } else {
        rig.Scatter(1, {0, 1}, lent, 0);
      }
      rig.Pass("link", "engine");  // too early
      if (is_gather) {
        rig.Zero(0);
      } else {
        rig.CopyPage(0, 5);
      }
      rig.RunAll();
      CHECK(rig.device.order().total() > 0);
    }
  }
}

TEST_CASE("planted: a slot is used again while it is copied") {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    Rig rig(seed);
    const uint64_t lent = rig.Zero(0, 2);
    rig.Receive(0, 1);
    rig.Scatter(1, {0, 1}, lent, 0);
    rig.Receive(0, 2);
    rig.RunAll();
    CHECK(rig.device.order().total() > 0);
  }
}

TEST_CASE(
    "a device that is lost, or refuses a copy, at any operation: it is told once, and nothing "
    "ends") {
  int n_lost = 0, n_whole = 0;
  for (uint64_t at = 1; at <= 40; ++at) {
    for (const bool is_refusal : {false, true}) {
      CAPTURE(at, is_refusal);
      FaultPlan faults;
      (is_refusal ? faults.copy : faults.lost_at) = at;
      Rig rig(at, faults);
      const uint64_t lent = rig.Zero(0, 4);
      rig.Receive(0, 0x22);
      rig.Scatter(1, {2, 1}, lent, 0);
      std::vector<CopyEvent> events = rig.Events(1);
      const bool has_scattered = !events.empty();
      if (has_scattered) rig.Gather(2, {1}, 0, 1);
      for (const CopyEvent& event : rig.Events(1)) events.push_back(event);
      INFO(rig.Reports());
      CHECK(rig.device.order().total() == 0);
      if (events.size() == 2) {
        CHECK(rig.SlotIs(1, 0x22, rig.view.page_stride));
        ++n_whole;
        continue;
      }
      ++n_lost;
      CHECK(rig.lost.size() == 1);
      CHECK(rig.lost[0].find(is_refusal ? "refused" : "at ") != std::string::npos);
      CHECK(rig.Events(1).empty());
      rig.Gather(3, {1}, lent, 2);  // taken, and never ended
      CHECK(rig.Events(1).empty());
      CHECK(rig.lost.size() == 1);
    }
  }
  CHECK(n_lost > 10);
  CHECK(n_whole > 10);
}

}  // namespace baton
