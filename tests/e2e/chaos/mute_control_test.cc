// A worker whose control stream stays open but carries nothing: it still computes and hands over,
// but its reports do not arrive. The router gives the worker up after router.worker_silence; its
// streams continue on other workers with exactly the same tokens, other streams are not disturbed,
// and the worker returns without a restart once the stream carries again.

#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <filesystem>
#include <future>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "proto/messages.h"
#include "tests/e2e/chaos/lab_cluster.h"
#include "tests/e2e/stream_crowd.h"

namespace baton {
namespace {

constexpr int kWorkers = kPrefillWorkers + kDecodeWorkers;

void RequireSame(const std::vector<CrowdStream>& streams, const std::vector<CrowdStream>& expected,
                 absl::Duration* longest_gap) {
  *longest_gap = absl::ZeroDuration();
  for (int i = 0; i < kCrowd; ++i) {
    INFO(i);
    CHECK(streams[i].text == expected[i].text);
    *longest_gap = std::max(*longest_gap, streams[i].longest_gap);
  }
}

// Bytes that each decode worker has sent to the router.
std::map<std::string, int64_t> BytesOfDecodeWorkers(const LabCluster& cluster) {
  std::map<std::string, int64_t> bytes;
  for (int i = 0; i < kDecodeWorkers; ++i) {
    const std::string name = absl::StrCat("decode", i);
    bytes[name] = cluster.BytesFrom(name);
  }
  return bytes;
}

// Returns the decode worker that has sent more than the others since `before`. The router gives all
// streams to one worker when it takes the other for slow, so a fixed name may have none.
std::string BusiestDecodeWorker(const LabCluster& cluster, std::map<std::string, int64_t> before) {
  std::map<std::string, int64_t> sent = BytesOfDecodeWorkers(cluster);
  for (auto& [name, bytes] : sent) bytes -= before[name];
  return std::max_element(sent.begin(), sent.end(),
                          [](const auto& a, const auto& b) { return a.second < b.second; })
      ->first;
}

void RunMuted(Role role) {
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / absl::StrFormat("baton_mute_%d", ::getpid());
  std::filesystem::create_directories(folder);
  auto started =
      LabCluster::Start({BATON_SOURCE_DIR "/models/demo"}, folder.string(), Wires::kLoopback);
  INFO((started.ok() ? std::string() : std::string(started.status().message())));
  REQUIRE(started.ok());
  LabCluster& cluster = **started;
  const HttpClient client(cluster.url(), absl::Seconds(120));
  const std::vector<CrowdStream> undisturbed = RunCrowd(client, [] {});

  std::string victim;
  std::future<absl::Duration> given_up;
  const auto mute = [&, before = BytesOfDecodeWorkers(cluster)] {
    victim = role == Role::kPrefill ? "prefill0" : BusiestDecodeWorker(cluster, before);
    CHECK(cluster.Disturb(FaultKind::kMute, victim, "").ok());
    given_up = std::async(std::launch::async, [&, since = absl::Now()] {
      return WaitUntil(absl::Seconds(20),
                       [&] { return MetricSum(client, "baton_workers") == kWorkers - 1; })
                 ? absl::Now() - since
                 : absl::InfiniteDuration();
    });
  };
  const std::vector<CrowdStream> disturbed = RunCrowd(client, mute, [&] {
    return given_up.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
  });
  const absl::Duration silence = given_up.get();
  absl::Duration longest;
  RequireSame(disturbed, undisturbed, &longest);
  WARN(victim << " is mute: given up after " << absl::FormatDuration(silence) << ", longest gap "
              << absl::FormatDuration(longest));
  CHECK(silence > absl::Seconds(2));  // only silence is the cause
  CHECK(silence < absl::Seconds(5));
  CHECK(longest < absl::Seconds(8));  // 4 s on an idle machine
  if (role == Role::kDecode) {
    CHECK(longest > absl::Seconds(1));  // at least one stream was hit
    CHECK(MetricSum(client, "baton_failovers_total") >= 1);
  }
  // Still mute: the other workers serve all streams.
  const std::vector<CrowdStream> without = RunCrowd(client, [] {});
  RequireSame(without, undisturbed, &longest);
  CHECK(longest < absl::Seconds(2));

  CHECK(cluster.Heal(FaultKind::kMute, victim, "").ok());
  CHECK(
      WaitUntil(absl::Seconds(20), [&] { return MetricSum(client, "baton_workers") == kWorkers; }));
  const std::vector<CrowdStream> healed = RunCrowd(client, [] {});
  RequireSame(healed, undisturbed, &longest);
  const int requests =
      AnswersOf(undisturbed) + AnswersOf(disturbed) + AnswersOf(without) + AnswersOf(healed);
  CHECK(MetricSum(client, "baton_requests_started_total") == requests);
  CHECK(MetricSum(client, "baton_requests_ended_total") == requests);
  const absl::Status stopped = cluster.Stop();  // no worker was restarted; all end well
  INFO(stopped.message());
  CHECK(stopped.ok());
  CHECK(cluster.Log().find("CHECK failed") == std::string::npos);
  std::filesystem::remove_all(folder);
}

TEST_CASE("a decode worker whose control stream falls silent is given up, its streams go on") {
  RunMuted(Role::kDecode);
}

TEST_CASE("a prefill worker whose control stream falls silent disturbs no request") {
  RunMuted(Role::kPrefill);
}

}  // namespace
}  // namespace baton
