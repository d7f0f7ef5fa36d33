// A real router process with workers whose engines stand still when the test wants it, while all
// their other threads live: gRPC goes on to send signs of life. The workers are real but for their
// engine, which hashes (tests/support/hash_backend.h).
#include <unistd.h>

#include <boost/json.hpp>
#include <catch2/catch.hpp>
#include <condition_variable>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <mutex>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "server/process/worker_endpoint.h"
#include "tests/e2e/served_baton.h"
#include "tests/e2e/stream_crowd.h"
#include "tests/support/hash_backend.h"
#include "tests/support/temp_folder.h"
#include "worker/worker.h"

namespace baton {
namespace {

constexpr int kDemoVocab = 2048;
// Twice router.engine_patience, two signs of life, and a prompt that is computed again on a machine
// that does other work, too.
constexpr absl::Duration kGoesOnWithin = absl::Milliseconds(5500);

class Gate {
 public:
  void Close(bool closed) {
    std::lock_guard lock(mutex_);
    is_closed_ = closed;
    changed_.notify_all();
  }
  void Pass() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !is_closed_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_closed_ = false;
};

class StandingBackend : public HashBackend {
 public:
  explicit StandingBackend(Gate* gate) : HashBackend(64, 1, {64}), gate_(gate) {
    set_limits({.max_step_tokens = 512});
    set_vocab(kDemoVocab);
  }
  void RunLayers(int from, int to) override {
    gate_->Pass();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    HashBackend::RunLayers(from, to);
  }

 private:
  Gate* const gate_;
};

// A worker with its page of health and metrics, as worker_process.cc makes it.
struct ServedWorker {
  ServedWorker(Role role, const std::string& name, const std::string& router,
               const ClusterKey& key) {
    WorkerOptions options;
    options.engine.threads = 1;
    WorkerStart start;
    start.role = role;
    start.name = name;
    start.routers = {router};
    start.key = key;
    start.kv_pages = 2048;
    auto made = Worker::Start(options, start, std::make_unique<StandingBackend>(&gate));
    INFO(made.status().ToString());
    REQUIRE(made.ok());
    worker = *std::move(made);
    endpoint.emplace(
        name, "m", [this] { return worker->metrics(); }, absl::Seconds(2));
    HttpServerOptions http;
    http.host = "127.0.0.1";
    http.port = 0;
    auto listening = HttpServer::Start(&loop, http, &*endpoint);
    REQUIRE(listening.ok());
    server = *std::move(listening);
    endpoint->Attach(&loop, server.get());
    thread = std::thread([this] { loop.Run(); });
  }
  ~ServedWorker() {
    gate.Close(false);
    loop.Stop();
    thread.join();
    server.reset();
  }
  int StatusOf(const std::string& path) const {
    const auto response = HttpClient({"127.0.0.1", server->port()}).Get(path);
    return response.ok() ? response->status : 0;
  }

  Gate gate;
  std::unique_ptr<Worker> worker;
  EventLoop loop;
  std::optional<WorkerEndpoint> endpoint;
  std::unique_ptr<HttpServer> server;
  std::thread thread;
};

struct Cluster {
  Cluster() {
    const TempFolder folder;
    folder.Write("key", std::string(64, '1'));
    std::filesystem::permissions(folder.file("key"), std::filesystem::perms::owner_read);
    ClusterKey key;
    key.fill(0x11);
    auto started = ServedBaton::StartRouter({BATON_SOURCE_DIR "/models/demo", "--cluster.key_file",
                                             folder.file("key"), "--router.relay_min_tokens=0",
                                             "--router.local=false"});
    INFO(started.status().ToString());
    REQUIRE(started.ok());
    router = *std::move(started);
    REQUIRE(router->control_port() != 0);
    const std::string address = absl::StrCat("127.0.0.1:", router->control_port());
    for (const Role role : {Role::kPrefill, Role::kPrefill, Role::kDecode, Role::kDecode})
      workers.push_back(
          std::make_unique<ServedWorker>(role, absl::StrCat("w", workers.size()), address, key));
    REQUIRE(
        WaitUntil(absl::Seconds(20), [&] { return Standing() == 0 && Counted("decode") == 2; }));
  }
  int Counted(const std::string& what) const {
    const auto answer = router->client().Get("/v1/cluster");
    if (!answer.ok() || answer->status != 200) return -1;
    return static_cast<int>(
        boost::json::parse(answer->body).at("workers").at(what).to_number<int64_t>());
  }
  int Standing() const { return Counted("standing"); }

  std::unique_ptr<ServedBaton> router;
  std::vector<std::unique_ptr<ServedWorker>> workers;
};

std::vector<std::string> TextsOf(const std::vector<CrowdStream>& streams) {
  std::vector<std::string> texts;
  for (const CrowdStream& stream : streams) texts.push_back(stream.text);
  return texts;
}

absl::Duration LongestGap(const std::vector<CrowdStream>& streams) {
  absl::Duration longest;
  for (const CrowdStream& stream : streams) longest = std::max(longest, stream.longest_gap);
  return longest;
}

}  // namespace

TEST_CASE("streams of a worker whose engine stands still go on elsewhere, with the same tokens") {
  Cluster cluster;
  const HttpClient client = cluster.router->client();
  const std::vector<std::string> wanted = TextsOf(RunCrowd(client, [] {}));
  ServedWorker& decode = *cluster.workers[2];
  ServedWorker& prefill = *cluster.workers[0];
  CHECK(decode.StatusOf("/readyz") == 200);

  // A decode worker, in the middle of its streams.
  const std::vector<CrowdStream> disturbed = RunCrowd(
      client, [&] { decode.gate.Close(true); }, [&] { return cluster.Standing() == 1; });
  CHECK(TextsOf(disturbed) == wanted);
  std::cout << "decode worker: longest gap " << LongestGap(disturbed) << "\n";
  CHECK(LongestGap(disturbed) > absl::Seconds(3));
  CHECK(LongestGap(disturbed) < kGoesOnWithin);
  CHECK(decode.StatusOf("/readyz") == 503);
  CHECK(decode.StatusOf("/livez") == 503);
  CHECK(decode.StatusOf("/metrics") == 200);
  CHECK(decode.worker->metrics().engine.age_us > 4'000'000);
  CHECK(MetricSum(client, "baton_workers_standing") == 1);
  CHECK(MetricSum(client, "baton_failovers_total", "worker_lost") >= 1);
  CHECK(client.Get("/readyz")->status == 200);
  CHECK(cluster.workers[3]->StatusOf("/livez") == 200);

  // The worker is there again without a restart, and gets nothing while it stands still.
  const uint64_t steps = decode.worker->metrics().steps;
  CHECK(TextsOf(RunCrowd(client, [] {})) == wanted);
  CHECK(cluster.Standing() == 1);
  CHECK(decode.worker->metrics().steps == steps);
  decode.gate.Close(false);
  CHECK(WaitUntil(absl::Seconds(5), [&] { return cluster.Standing() == 0; }));
  CHECK(decode.StatusOf("/readyz") == 200);
  CHECK(TextsOf(RunCrowd(client, [] {})) == wanted);
  CHECK(decode.worker->metrics().steps > steps);

  // A prefill worker, with prompts that have no token yet.
  prefill.gate.Close(true);
  const std::vector<CrowdStream> late = RunCrowd(client, [] {});
  CHECK(TextsOf(late) == wanted);
  std::cout << "prefill worker: longest time to a first token " << LongestGap(late) << "\n";
  CHECK(LongestGap(late) > absl::Seconds(3));
  CHECK(LongestGap(late) < kGoesOnWithin);

  // No worker is left that could prefill.
  cluster.workers[1]->gate.Close(true);
  std::thread asking([&] { client.Post("/v1/completions", StreamBody("Hello", 1)).IgnoreError(); });
  CHECK(WaitUntil(absl::Seconds(10), [&] { return cluster.Standing() == 2; }));
  const auto ready = client.Get("/readyz");
  REQUIRE(ready.ok());
  CHECK(ready->status == 503);
  CHECK(ready->body.find("The engines of 2 workers stand still") != std::string::npos);
  prefill.gate.Close(false);
  asking.join();
  CHECK(client.Get("/readyz")->status == 200);
}

}  // namespace baton
