// Real processes whose workers compute on emulated devices (lab.device): answers and digests are
// those of the CPU, also when the decode worker is killed, and when its device is lost beside
// workers on the CPU. "[.][losses]" is the command of docs/CONTRIBUTING.md.
#include <signal.h>
#include <sys/wait.h>

#include <atomic>
#include <boost/json.hpp>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "absl/strings/str_cat.h"
#include "tests/e2e/served_baton.h"
#include "tests/e2e/stream_crowd.h"
#include "tests/support/temp_folder.h"

namespace baton {
namespace {

namespace json = boost::json;

constexpr int kRequests = 8, kTokens = 40;
constexpr int kLongTokens = 300;  // long enough to kill a worker meanwhile

// Half of the requests are sampled, a third look back to their tokens.
std::string RequestBody(int i, int max_tokens) {
  std::string prompt = "Once upon a time there was a duck.";
  for (int words = 0; words < (i * i * 7) % 300; ++words)
    absl::StrAppend(&prompt, " box ", (i + words) % 97);
  json::object body{
      {"prompt", prompt},     {"max_tokens", max_tokens + i % 7},    {"ignore_eos", true},
      {"baton_digest", true}, {"temperature", i % 2 == 0 ? 0 : 0.9}, {"seed", 1000 + i}};
  if (i % 3 == 0) body["frequency_penalty"] = 0.5;
  return json::serialize(body);
}

// Text, finish reason and digests of an answer, or its error.
std::string Ask(const HttpClient& client, const std::string& body) {
  const auto response = client.Post("/v1/completions", body);
  if (!response.ok()) return absl::StrCat("transport: ", response.status().message());
  if (response->status != 200) return absl::StrCat("HTTP ", response->status, response->body);
  const json::value answer = json::parse(response->body);
  const json::value& choice = answer.at("choices").at(0);
  return json::serialize(json::object{{"text", choice.at("text")},
                                      {"finish_reason", choice.at("finish_reason")},
                                      {"digests", choice.at("baton_digests")}});
}

std::vector<std::string> AllAtOnce(const HttpClient& client, int max_tokens) {
  std::vector<std::string> answers(kRequests);
  std::vector<std::thread> threads;
  for (int i = 0; i < kRequests; ++i)
    threads.emplace_back([&, i] { answers[i] = Ask(client, RequestBody(i, max_tokens)); });
  for (std::thread& thread : threads) thread.join();
  return answers;
}

std::unique_ptr<ServedBaton> Serve(std::vector<std::string> args) {
  args.insert(args.begin(), {"--demo", "--prefill.workers=1"});
  auto served = ServedBaton::Start(args);
  INFO(served.status().ToString());
  REQUIRE(served.ok());
  return *std::move(served);
}

// A router, workers on the CPU and one on an emulated device, each a process of its own.
struct MixedCluster {
  explicit MixedCluster(uint64_t lost_at) {
    folder.Write("key", std::string(64, '1'));
    std::filesystem::permissions(folder.file("key"), std::filesystem::perms::owner_read);
    router = Started(ServedBaton::StartRouter(
        {"--demo", "--cluster.key_file", folder.file("key"), "--router.local=false"}));
    REQUIRE(router->control_port() != 0);
    on_cpu.push_back(Worker("prefill", {}));
    device =
        Worker("decode", {"--lab.device=emulated", absl::StrCat("--lab.device_lost_at=", lost_at),
                          "--decode.kv_memory=8MiB"});  // some 130 operations zero its pages first
    AwaitWorkers(2);
  }
  void AddCpuDecode() {
    on_cpu.push_back(Worker("decode", {}));
    AwaitWorkers(3);
  }
  std::unique_ptr<ServedBaton> Worker(const std::string& role,
                                      std::vector<std::string> more) const {
    more.insert(more.end(), {"--demo", "--cluster.key_file", folder.file("key"),
                             absl::StrCat("--cluster.router=127.0.0.1:", router->control_port())});
    return Started(ServedBaton::StartWorker(role, more));
  }
  void AwaitWorkers(int n) const {
    const bool are_there = WaitUntil(
        absl::Seconds(60), [&] { return MetricSum(router->client(), "baton_workers") == n; });
    INFO(router->log());
    REQUIRE(are_there);
  }
  static std::unique_ptr<ServedBaton> Started(absl::StatusOr<std::unique_ptr<ServedBaton>> made) {
    INFO(made.status().ToString());
    REQUIRE(made.ok());
    return *std::move(made);
  }

  TempFolder folder;
  std::unique_ptr<ServedBaton> router, device;
  std::vector<std::unique_ptr<ServedBaton>> on_cpu;
};

std::vector<std::string> OnCpu(int max_tokens) {
  return AllAtOnce(Serve({})->client(), max_tokens);
}

TEST_CASE("workers on devices answer as the CPU does, also when the decode worker is killed") {
  const std::vector<std::string> wanted = OnCpu(kLongTokens);
  const std::unique_ptr<ServedBaton> served = Serve({"--lab.device=emulated"});
  CHECK(AllAtOnce(served->client(), kLongTokens) == wanted);
  const double before = MetricSum(served->client(), "baton_generated_tokens_total");
  std::thread killer([&] {
    CHECK(WaitUntil(absl::Seconds(60), [&] {
      return MetricSum(served->client(), "baton_generated_tokens_total") >= before + 100;
    }));
    const pid_t worker = served->Child("decode");
    CHECK(worker > 0);
    if (worker > 0) ::kill(worker, SIGKILL);
  });
  const std::vector<std::string> answers = AllAtOnce(served->client(), kLongTokens);
  killer.join();
  CHECK(answers == wanted);
  CHECK(MetricSum(served->client(), "baton_failovers_total") >= 1);
  const absl::StatusOr<int> status = served->Terminate();
  INFO(served->log());
  REQUIRE(status.ok());
  CHECK(*status == 0);
  CHECK(served->log().find("emulated device:") == std::string::npos);
}

// Loses the device of the decode worker at this operation: it ends with an error that says so, and
// the others go on with the same tokens.
void CheckLoss(uint64_t lost_at) {
  CAPTURE(lost_at);
  MixedCluster cluster(lost_at);
  cluster.AddCpuDecode();
  const std::vector<std::string> wanted = OnCpu(kTokens);
  CHECK(AllAtOnce(cluster.router->client(), kTokens) == wanted);
  CHECK(MetricSum(cluster.router->client(), "baton_failovers_total") >= 1);
  const absl::StatusOr<int> status = cluster.device->WaitForEnd(absl::Seconds(30));
  INFO(cluster.device->log());
  REQUIRE(status.ok());
  CHECK(WIFEXITED(*status));
  CHECK(WEXITSTATUS(*status) == 3);
  CHECK(cluster.device->log().find("the device computes no more (") != std::string::npos);
  CHECK(cluster.device->log().find("emulated device:") == std::string::npos);
  CHECK(AllAtOnce(cluster.router->client(), kTokens) == wanted);
}

TEST_CASE("a device that is lost: its worker says so and ends, and the router goes on elsewhere") {
  CheckLoss(400);
}

TEST_CASE("devices lost at 20 operations", "[.][losses]") {
  for (uint64_t at = 400; at < 1400; at += 50) CheckLoss(at);
}

TEST_CASE("KV takes what weights and working memory leave of the share of a device's memory") {
  const std::vector<std::string> args = {"--demo", "--cluster.colocated=true",
                                         "--lab.device=emulated", "--lab.device_memory=64MiB"};
  const auto with_share = [&](const std::string& share) {
    std::vector<std::string> all = args;
    all.push_back("--gpu-memory-utilization=" + share);
    return ServedBaton::Start(all);
  };
  const auto kv_mib = [&](const std::string& share) {
    const auto served = with_share(share);
    REQUIRE(served.ok());
    const std::string log = (*served)->log(), words = "KV cache ";
    const size_t at = log.find(words);
    REQUIRE(at != std::string::npos);
    return std::strtod(log.c_str() + at + words.size(), nullptr);
  };
  const double half = kv_mib("0.5");
  CHECK(half > 0);
  CHECK(half < 32);
  CHECK(kv_mib("1") - half == Approx(32).margin(0.5));  // what is more goes to KV

  const auto refused = with_share("0.05");
  REQUIRE_FALSE(refused.ok());
  CHECK(absl::IsAborted(refused.status()));  // it ended by itself
  CHECK_THAT(std::string(refused.status().message()),
             Catch::Matchers::Contains("model.gpu_memory_utilization: 0.05 of the device's 64 MiB "
                                       "has no room for KV beside "));
}

}  // namespace
}  // namespace baton
