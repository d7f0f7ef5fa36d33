// Workers on emulated devices inside one process (lab/emulated_engine.h): handoffs, relays,
// grammars and all parameters of the sampler give the tokens, digests and log-probabilities of the
// CPU's engine, also after the decode worker is lost, and no wait is missing. A slice of depth 2
// runs in CI; "[.][depths]" is the command of docs/CONTRIBUTING.md.
#include "tests/e2e/exact_requests.h"

namespace baton {
namespace {

InProcessOptions OnDevices(int depth, uint64_t seed) {
  InProcessOptions options;
  options.compile_grammar = CompileHashGrammar;
  options.engine = Engine(kTiny, 16);
  options.device.is_emulated = true;
  options.device.depth = depth;
  options.device.seed = seed;
  return options;
}

std::vector<GenerateRequest> SomeRequests() {
  std::vector<GenerateRequest> requests = DrawnRequests(16, 500, 20);
  for (size_t i = 0; i < requests.size(); i += 5) requests[i].max_tokens = 1;
  return requests;
}

void CheckCluster(const InProcessOptions& options) {
  static const std::vector<GenerateRequest> requests = SomeRequests();
  static const std::vector<Expected> expected = Reference(Engine(kTiny), requests);
  InProcessCluster cluster(options);
  REQUIRE(cluster.worker(0).backend().depth() == options.device.depth);
  CheckAll(cluster.RunAll(requests), expected);
  CheckAll(cluster.RunAll({requests[3]}), {expected[3]});
  if (!options.colocated) CHECK(cluster.worker(2).metrics().transfer.bytes_received > 0);
  if (options.relay_min_tokens > 0) CHECK(cluster.View().relays > 5);
  cluster.Stop();
  CHECK(cluster.findings() == 0);
}

void CheckLoss(const InProcessOptions& options) {
  static const std::vector<GenerateRequest> requests = DrawnRequests(8, 500, 60);
  static const std::vector<Expected> expected = Reference(Engine(kTiny), requests);
  InProcessCluster cluster(options);
  CheckAll(RunAllAndLoseDecode(&cluster, requests), expected);
  cluster.Stop();
  CHECK(cluster.findings() == 0);
}

TEST_CASE("on devices = on the CPU: disaggregated, colocated, relays, relays in rounds") {
  InProcessOptions options = OnDevices(2, 1);
  SECTION("disaggregated") { options.chunk_tokens = 64; }
  SECTION("colocated") { options.colocated = true; }
  SECTION("ranks of a relay") { options.relay_min_tokens = 17; }
  SECTION("ranks of a relay in rounds") {
    options.relay_min_tokens = 17;
    options.engine.limits.max_slice_tokens = 64;
  }
  CheckCluster(options);
}

TEST_CASE("on devices = on the CPU, after the decode worker is lost") {
  CheckLoss(OnDevices(2, 1));
}

// A copier with a bug: it waits for no fence.
class IgnoresFences : public CellCopier {
 public:
  explicit IgnoresFences(std::unique_ptr<CellCopier> inner) : inner_(std::move(inner)) {}
  std::byte* NewSlots(int64_t bytes) override { return inner_->NewSlots(bytes); }
  void RegisterPool(Link* link) override { inner_->RegisterPool(link); }
  std::byte* InPlace(const Cells& cells) override { return inner_->InPlace(cells); }
  bool Gather(OperationId operation, const Cells& cells, std::byte* slot, uint32_t* crc) override {
    return inner_->Gather(operation, {cells.rect, cells.page_ids}, slot, crc);
  }
  bool Scatter(OperationId operation, const Cells& cells, const std::byte* slot) override {
    return inner_->Scatter(operation, {cells.rect, cells.page_ids}, slot);
  }
  bool Poll(std::vector<CopyEvent>* events) override { return inner_->Poll(events); }

 private:
  const std::unique_ptr<CellCopier> inner_;
};

TEST_CASE("planted: copies between workers wait for no fence, which the devices tell") {
  InProcessOptions options = OnDevices(2, 1);
  options.wrap_copier = [](std::unique_ptr<CellCopier> copier) {
    return std::make_unique<IgnoresFences>(std::move(copier));
  };
  InProcessCluster cluster(options);
  cluster.RunAll(SomeRequests());
  cluster.Stop();
  CHECK(cluster.findings() > 0);
}

// Every combination of depth, way to launch and shape of the cluster comes once in 30 seeds.
TEST_CASE("1,000 seeds, depths 1 to 3, graphs and eager: on devices = on the CPU", "[.][depths]") {
  for (uint64_t seed = 0; seed < 1000; ++seed) {
    CAPTURE(seed);
    InProcessOptions options = OnDevices(1 + static_cast<int>(seed % 3), seed);
    options.device.uses_graphs = seed / 3 % 2 == 0;
    const uint64_t shape = seed / 6 % 5;
    if (shape == 0) {
      CheckLoss(options);
      continue;
    }
    options.colocated = shape == 1;
    if (shape >= 3) options.relay_min_tokens = 17;
    if (shape == 4) options.engine.limits.max_slice_tokens = 64;  // in rounds
    CheckCluster(options);
  }
}

}  // namespace
}  // namespace baton
