// Bugs of an engine on a device, each planted alone, are found by the emulated device: reported, or
// seen in a digest; and a device that fails anywhere gives no wrong result and leaves nothing.

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <set>

#include "engine/cuda/device/metadata_block.h"
#include "tests/engine/device/emulated_engine.h"
#include "tests/engine/device/planted_device.h"

namespace baton {
namespace {

// One model and what the CPU makes of it.
struct Reference {
  EngineOptions engine = SmallOptions(LoadOracleCase("llama2").model);
  std::vector<DrivenResult> expected = OnCpu(engine);
};

const Reference& TheReference() {
  static const Reference reference;
  return reference;
}

// ---- planted bugs ----

class ZeroesOnAnotherStream : public PlantedDevice {
 public:
  explicit ZeroesOnAnotherStream(Device& inner)
      : PlantedDevice(inner), other_(inner.NewStream("other")) {}
  absl::Status Fill(DeviceStream, std::byte* to, uint8_t value, int64_t bytes) override {
    return inner().Fill(other_, to, value, bytes);
  }

 private:
  const DeviceStream other_;
};

class CopiesOnAnotherStream : public PlantedDevice {
 public:
  explicit CopiesOnAnotherStream(Device& inner)
      : PlantedDevice(inner), other_(inner.NewStream("other")) {}
  absl::Status Copy(DeviceStream, std::byte* to, const std::byte* from, int64_t bytes) override {
    return inner().Copy(other_, to, from, bytes);
  }

 private:
  const DeviceStream other_;
};

// Believes that every fence is reached: reads results early and uses staging slots again.
class IgnoresFences : public PlantedDevice {
 public:
  using PlantedDevice::PlantedDevice;
  bool reached(DeviceEvent) override { return true; }
};

// Knows where the metadata block of steps lies.
class KnowsTheBlock : public PlantedDevice {
 public:
  using PlantedDevice::PlantedDevice;
  absl::StatusOr<std::byte*> Allocate(int64_t bytes, std::string_view what) override {
    absl::StatusOr<std::byte*> at = inner().Allocate(bytes, what);
    if (at.ok() && what == "metadata block") block_ = *at;
    return at;
  }

 protected:
  std::byte* block_ = nullptr;
};

// Replays the table of the step before: each second block stays on the host.
class ForgetsBlocks : public KnowsTheBlock {
 public:
  using KnowsTheBlock::KnowsTheBlock;
  absl::Status Copy(DeviceStream stream, std::byte* to, const std::byte* from,
                    int64_t bytes) override {
    if (to == block_ && ++n_ % 2 == 0) return absl::OkStatus();
    return inner().Copy(stream, to, from, bytes);
  }

 private:
  int n_ = 0;
};

// Changes the arguments of a kernel.
template <typename Arguments>
class ChangesArguments : public PlantedDevice {
 public:
  ChangesArguments(Device& inner, std::function<void(Arguments&)> change)
      : PlantedDevice(inner), change_(std::move(change)) {}
  absl::Status Launch(DeviceStream stream, std::string_view kernel,
                      std::span<const std::byte> bytes) override {
    if (kernel != Arguments::kName) return inner().Launch(stream, kernel, bytes);
    Arguments arguments;
    std::memcpy(&arguments, bytes.data(), sizeof(arguments));
    change_(arguments);
    return inner().Launch(stream, kernel, std::as_bytes(std::span(&arguments, 1)));
  }

 private:
  const std::function<void(Arguments&)> change_;
};

// Padding rows write page 0 instead of the page that belongs to nobody.
class PadsIntoARealPage : public KnowsTheBlock {
 public:
  using KnowsTheBlock::KnowsTheBlock;
  absl::Status Copy(DeviceStream stream, std::byte* to, const std::byte* from,
                    int64_t bytes) override {
    if (to == block_) {
      BlockCounts counts;
      std::memcpy(&counts, from, sizeof(counts));
      auto* const numbers =
          reinterpret_cast<int32_t*>(const_cast<std::byte*>(from) + sizeof(counts));
      int32_t* const pages = numbers + 2 * counts.n_tokens + 2 * (counts.n_pieces + 1);
      std::replace(pages, pages + counts.n_pages, kPages, 0);
    }
    return inner().Copy(stream, to, from, bytes);
  }
};

// Copies the results of one slot, whichever a step has.
class MixesResults : public PlantedDevice {
 public:
  using PlantedDevice::PlantedDevice;
  absl::StatusOr<std::byte*> Allocate(int64_t bytes, std::string_view what) override {
    absl::StatusOr<std::byte*> at = inner().Allocate(bytes, what);
    if (at.ok() && what == "results") results_.insert(*at);
    return at;
  }
  absl::Status Copy(DeviceStream stream, std::byte* to, const std::byte* from,
                    int64_t bytes) override {
    if (results_.contains(from)) from = *results_.begin();
    return inner().Copy(stream, to, from, bytes);
  }

 private:
  std::set<const std::byte*> results_;
};

class WakesNobody : public PlantedDevice {
 public:
  using PlantedDevice::PlantedDevice;
  absl::Status Notify(DeviceStream, std::function<void()>) override { return absl::OkStatus(); }
};

// Goes on when the device is lost, as if nothing had been.
class SwallowsLoss : public PlantedDevice {
 public:
  using PlantedDevice::PlantedDevice;
  std::optional<std::string> lost() const override { return std::nullopt; }
  absl::Status Record(DeviceEvent event, DeviceStream stream) override {
    return Swallowed(inner().Record(event, stream));
  }
  absl::Status Copy(DeviceStream stream, std::byte* to, const std::byte* from,
                    int64_t bytes) override {
    return Swallowed(inner().Copy(stream, to, from, bytes));
  }
  absl::Status Launch(DeviceStream stream, std::string_view kernel,
                      std::span<const std::byte> arguments) override {
    return Swallowed(inner().Launch(stream, kernel, arguments));
  }
  absl::Status LaunchGraph(DeviceStream stream, DeviceGraph graph) override {
    return Swallowed(inner().LaunchGraph(stream, graph));
  }

 private:
  static absl::Status Swallowed(const absl::Status& status) {
    return absl::IsUnavailable(status) ? absl::OkStatus() : status;
  }
};

template <typename Planted>
std::unique_ptr<Device> Wrapped(EmulatedDevice& device) {
  return std::make_unique<Planted>(device);
}
template <typename Arguments>
Emulated::Wrap WithArguments(std::function<void(Arguments&)> change) {
  return [change](EmulatedDevice& device) {
    return std::make_unique<ChangesArguments<Arguments>>(device, change);
  };
}

// True if a run with this seed reports something, loses the device, gives another result or dies of
// a check. Runs in a process of its own.
bool IsFound(const Emulated::Wrap& plant, uint64_t seed, const FaultPlan& faults = {}) {
  const Reference& reference = TheReference();
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    const int null = ::open("/dev/null", O_WRONLY);
    ::dup2(null, STDOUT_FILENO);
    ::dup2(null, STDERR_FILENO);
    ::signal(SIGABRT, SIG_DFL);
    ::signal(SIGSEGV, SIG_DFL);
    bool is_found = true;
    try {
      EmulatedOptions options = Seeded(seed);
      options.faults = faults;
      Emulated e(reference.engine, options, {.depth = 2}, plant);
      const std::vector<DrivenResult> results = e.Run(seed);
      is_found = e.device.order().total() > 0 || e.backend->lost().has_value() ||
                 !IsWhole(results, reference.expected) ||
                 Difference(results, reference.expected) != "";
    } catch (...) {  // a failed REQUIRE of the driver
    }
    ::_exit(is_found ? 1 : 0);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  return !WIFEXITED(status) || WEXITSTATUS(status) != 0;
}

int SeedsThatFind(const Emulated::Wrap& plant) {
  int n = 0;
  for (uint64_t seed = 1; seed <= 5; ++seed) n += IsFound(plant, seed) ? 1 : 0;
  return n;
}

TEST_CASE("a device that passes everything on is found to have no bug") {
  CHECK(SeedsThatFind(nullptr) == 0);
  CHECK(SeedsThatFind(Wrapped<PlantedDevice>) == 0);
}

TEST_CASE("planted: a page is zeroed on another stream than its writers") {
  CHECK(SeedsThatFind(Wrapped<ZeroesOnAnotherStream>) == 5);
}
TEST_CASE("planted: metadata and results are copied on a stream that waits for nothing") {
  CHECK(SeedsThatFind(Wrapped<CopiesOnAnotherStream>) == 5);
}
TEST_CASE("planted: every fence counts as reached") {
  CHECK(SeedsThatFind(Wrapped<IgnoresFences>) == 5);
}
TEST_CASE("planted: a graph replays the table of the step before") {
  CHECK(SeedsThatFind(Wrapped<ForgetsBlocks>) == 5);
}
TEST_CASE("planted: padding writes a real page") {
  CHECK(SeedsThatFind(Wrapped<PadsIntoARealPage>) >= 1);  // if page 0 is in use beside padding
}
TEST_CASE("planted: results are those of another step") {
  CHECK(SeedsThatFind(Wrapped<MixesResults>) == 5);
}
TEST_CASE("planted: fed tokens are those of another row") {
  CHECK(SeedsThatFind(WithArguments<BeginArguments>([](BeginArguments& a) { ++a.sampled; })) == 5);
}
TEST_CASE("planted: fed tokens are stale, for the sampler leaves them elsewhere") {
  CHECK(SeedsThatFind(
            WithArguments<SampleArguments>([](SampleArguments& a) { a.sampled = nullptr; })) == 5);
}
TEST_CASE("planted: a graph is launched with rows of another bucket") {
  CHECK(SeedsThatFind(WithArguments<BeginArguments>([](BeginArguments& a) { ++a.n_rows; })) == 5);
}
TEST_CASE("planted: a layer is computed twice, and its successor never") {
  CHECK(SeedsThatFind(WithArguments<LayerArguments>([](LayerArguments& a) { a.layer &= ~1; })) ==
        5);
}
TEST_CASE("planted: logits are read at a wrong place") {
  CHECK(SeedsThatFind(WithArguments<SampleArguments>(
            [](SampleArguments& a) { a.logits += a.n > 1 ? 1 : 0; })) == 5);
}

TEST_CASE("planted: a wake is lost") {
  for (const bool is_planted : {false, true}) {
    const Emulated::Wrap plant = is_planted ? Wrapped<WakesNobody> : Wrapped<PlantedDevice>;
    Emulated e(TheReference().engine, Seeded(1), {.depth = 2}, plant);
    int n_waits = 0, n_wakes = 0;
    StepDriver driver(*e.backend, kPages, 1, [&](Fence fence) {
      ++n_waits;
      e.backend->WakeAt(fence, [&] { ++n_wakes; });
      while (e.device.work().ExecuteNext()) continue;
    });
    driver.Run(Requests(e.backend->model().vocab));
    CHECK(n_waits > 0);
    CHECK((n_wakes == n_waits) == !is_planted);
  }
}

// ---- faults ----

// Runs with faults. Nothing that came out is wrong, and what is missing has a reason. Returns true
// if the run was complete.
bool RunWithFaults(const FaultPlan& faults, uint64_t seed) {
  const Reference& reference = TheReference();
  EmulatedOptions options = Seeded(seed);
  options.faults = faults;
  Emulated e(reference.engine, options, {.depth = 2});
  REQUIRE(e.status.ok());
  const std::vector<DrivenResult> results = e.Run(seed);
  const bool is_whole = IsWhole(results, reference.expected);
  INFO(e.Reports());
  CHECK(e.device.order().total() == 0);
  CHECK(Difference(results, reference.expected) == "");
  CHECK(is_whole == !e.backend->lost().has_value());
  if (!is_whole) {
    CHECK(e.backend->lost()->find(faults.lost_at > 0 ? "at " : "device: refused") !=
          std::string::npos);
    CHECK(e.backend->reached(e.backend->submitted()));
    bool is_woken = false;
    e.backend->WakeAt(e.backend->submitted(), [&] { is_woken = true; });
    CHECK(is_woken);
  }
  return is_whole;
}

TEST_CASE(
    "a device that is lost at any operation, or refuses any copy or launch, makes no mistake") {
  int n_whole = 0;
  for (uint64_t at = 1; at < 250; at += 1 + at / 3) {
    n_whole += RunWithFaults({.lost_at = at}, at) ? 1 : 0;
    n_whole += RunWithFaults({.copy = at / 10 + 1}, at) ? 1 : 0;
    n_whole += RunWithFaults({.launch = at / 4 + 1}, at) ? 1 : 0;
  }
  CHECK(n_whole == 0);
  CHECK(RunWithFaults({.lost_at = 1'000'000, .slow_from = 50, .slow_factor = 100}, 1));
}

TEST_CASE("memory that is not there is an error that says for what") {
  const Reference& reference = TheReference();
  std::set<std::string> errors;
  for (uint64_t allocation = 1; allocation <= 12; ++allocation) {
    EmulatedOptions options = Seeded(allocation);
    options.faults.allocation = allocation;
    Emulated e(reference.engine, options, {});
    if (!e.status.ok()) {
      CHECK(e.status.code() == absl::StatusCode::kResourceExhausted);
      errors.insert(std::string(e.status.message().substr(0, 34)));
      continue;
    }
    const absl::Status status = e.backend->NewArena(4096).status();
    if (!status.ok()) {
      CHECK(status.message().find("device: no memory for KV pages of ") == 0);
      continue;
    }
    StepBuilder step;  // the slots come later
    const std::vector<int32_t> pages = {0};
    step.AddPiece(std::vector<int32_t>{1}, 0, pages);
    absl::StatusOr<std::unique_ptr<KvPool>> pool = KvPool::Create(
        e.backend->kv_layout(), 2, [&](int64_t bytes) { return e.backend->NewArena(bytes); });
    if (!pool.ok()) continue;
    e.backend->SetPages((*pool)->pages());
    e.backend->Begin(step.batch());
    e.backend->RunLayers(0, e.backend->model().n_layers);
    StepOutput out;
    e.backend->Sample({}, &out);
    while (e.device.work().ExecuteNext()) continue;
    CHECK(e.backend->reached(e.backend->submitted()));
    if (e.backend->lost()) CHECK(e.backend->lost()->find("device: no memory for ") == 0);
  }
  CHECK(errors.size() >= 6);
}

TEST_CASE("planted: the loss of a device is swallowed") {
  // Results then are poison, or missing.
  for (const uint64_t at : {20, 60, 100, 140})
    CHECK(IsFound(Wrapped<SwallowsLoss>, at, {.lost_at = at}));
}

}  // namespace
}  // namespace baton
