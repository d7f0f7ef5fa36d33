// Two real router processes and workers that serve both: a killed router fails the streams that it
// carried and no others, nothing of it is left on the workers, and its successor is dialled. The
// workers are real but for their engine, which hashes (tests/support/hash_backend.h).
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <boost/json.hpp>
#include <catch2/catch.hpp>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "absl/strings/str_cat.h"
#include "tests/e2e/served_baton.h"
#include "tests/e2e/stream_crowd.h"
#include "tests/support/hash_backend.h"
#include "tests/support/temp_folder.h"
#include "worker/worker.h"

namespace baton {
namespace {

constexpr int kDemoVocab = 2048;

class SlowBackend : public HashBackend {
 public:
  SlowBackend() : HashBackend(64, 1, {64}) {
    set_limits({.max_step_tokens = 512});
    set_vocab(kDemoVocab);
  }
  void RunLayers(int from, int to) override {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    HashBackend::RunLayers(from, to);
  }
};

struct Cluster {
  Cluster() {
    folder.Write("key", std::string(64, '1'));
    std::filesystem::permissions(folder.file("key"), std::filesystem::perms::owner_read);
    for (std::unique_ptr<ServedBaton>* router : {&first, &second}) *router = StartRouter();
    WorkerStart start;
    start.routers = {AddressOf(*first), AddressOf(*second)};
    start.key.fill(0x11);
    start.kv_pages = 2048;
    for (const Role role : {Role::kPrefill, Role::kDecode}) {
      WorkerOptions options;
      options.engine.threads = 1;
      start.role = role;
      start.name = role == Role::kDecode ? "decode" : "prefill";
      auto made = Worker::Start(options, start, std::make_unique<SlowBackend>());
      INFO(made.status().ToString());
      REQUIRE(made.ok());
      workers.push_back(*std::move(made));
    }
    for (const auto* router : {&first, &second})
      REQUIRE(WaitUntil(absl::Seconds(20), [&] { return KnowsBoth(**router); }));
  }
  std::unique_ptr<ServedBaton> StartRouter(const std::string& control = "127.0.0.1:0") {
    auto started = ServedBaton::StartRouter({BATON_SOURCE_DIR "/models/demo", "--cluster.key_file",
                                             folder.file("key"), "--router.local=false",
                                             absl::StrCat("--router.control=", control)});
    INFO(started.status().ToString());
    REQUIRE(started.ok());
    return *std::move(started);
  }
  static std::string AddressOf(const ServedBaton& router) {
    REQUIRE(router.control_port() != 0);
    return absl::StrCat("127.0.0.1:", router.control_port());
  }
  static bool KnowsBoth(const ServedBaton& router) {
    return MetricSum(router.client(), "baton_workers") == 2;
  }
  bool IsEmpty() const {  // nobody holds a page
    for (const auto& worker : workers) {
      const WorkerMetrics m = worker->metrics();
      if (m.pages_prefill + m.pages_decode + m.pages_promised + m.handoffs_waiting > 0)
        return false;
      if (m.load.pages_free != m.pages_total) return false;
    }
    return true;
  }
  bool AreDialled(int routers) const {
    for (const auto& worker : workers)
      if (worker->metrics().routers != routers) return false;
    return true;
  }

  const TempFolder folder;
  std::unique_ptr<ServedBaton> first, second;
  std::vector<std::unique_ptr<Worker>> workers;
};

std::vector<std::string> TextsOf(const std::vector<CrowdStream>& streams) {
  std::vector<std::string> texts;
  for (const CrowdStream& stream : streams) texts.push_back(stream.text);
  return texts;
}

}  // namespace

TEST_CASE("a killed router fails its own streams alone, and leaves nothing on the workers") {
  Cluster cluster;
  const std::string address = Cluster::AddressOf(*cluster.first);
  const std::vector<std::string> wanted = TextsOf(RunCrowd(cluster.second->client(), [] {}));
  CHECK(TextsOf(RunCrowd(cluster.first->client(), [] {})) == wanted);

  std::atomic<bool> first_runs = false;
  std::vector<CrowdStream> of_first;
  std::thread clients(
      [&] { of_first = RunCrowd(cluster.first->client(), [&] { first_runs = true; }); });
  const std::vector<CrowdStream> of_second = RunCrowd(
      cluster.second->client(),
      [&] {
        REQUIRE(WaitUntil(absl::Seconds(30), [&] { return first_runs.load(); }));
        REQUIRE(::kill(cluster.first->pid(), SIGKILL) == 0);
      },
      [&] { return cluster.AreDialled(1); });
  clients.join();
  CHECK(TextsOf(of_second) == wanted);
  int n_failed = 0;
  for (size_t i = 0; i < of_first.size(); ++i) n_failed += of_first[i].text != wanted[i];
  CHECK(n_failed == kCrowd);

  // The workers count what they dropped, and hold nothing of it.
  const WorkerMetrics decode = cluster.workers[1]->metrics();
  CHECK(decode.routers_lost == 1);
  CHECK(decode.parts_orphaned == kCrowd);
  CHECK(WaitUntil(absl::Seconds(10), [&] { return cluster.IsEmpty(); }));
  CHECK(MetricSum(cluster.second->client(), "baton_failovers_total") == 0);
  CHECK(TextsOf(RunCrowd(cluster.second->client(), [] {})) == wanted);

  // Another router at its address is dialled.
  const auto successor = cluster.StartRouter(address);
  CHECK(WaitUntil(absl::Seconds(20), [&] { return cluster.AreDialled(2); }));
  CHECK(WaitUntil(absl::Seconds(20), [&] { return Cluster::KnowsBoth(*successor); }));
  CHECK(TextsOf(RunCrowd(successor->client(), [] {})) == wanted);
}

TEST_CASE("a router that drains takes no worker with it, and has its answers for itself") {
  Cluster cluster;
  const auto stored =
      cluster.first->client().Post("/v1/responses", R"({"input":"hi","max_output_tokens":16})");
  REQUIRE(stored.ok());
  REQUIRE(stored->status == 200);
  const std::string id(boost::json::parse(stored->body).at("id").as_string());
  CHECK(cluster.first->client().Get("/v1/responses/" + id)->status == 200);
  CHECK(cluster.second->client().Get("/v1/responses/" + id)->status == 404);

  const absl::StatusOr<int> status = cluster.first->Terminate();
  REQUIRE(status.ok());
  CHECK(WEXITSTATUS(*status) == 0);
  CHECK(WaitUntil(absl::Seconds(10), [&] { return cluster.AreDialled(1); }));
  for (const auto& worker : cluster.workers) CHECK_FALSE(worker->metrics().load.draining);
  CHECK(cluster.workers[1]->metrics().parts_orphaned == 0);
  CHECK(cluster.second->client().Get("/readyz")->status == 200);
  const auto answer =
      cluster.second->client().Post("/v1/completions", R"({"prompt":"hi","max_tokens":8})");
  REQUIRE(answer.ok());
  CHECK(answer->status == 200);
}

}  // namespace baton
