// The cost of the router's page of metrics where a cluster is large. Processor time of this thread,
// so that other work of the machine does not count.
#include <ctime>

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

#include <catch2/catch.hpp>

#include "common/process_series.h"
#include "server/api/front_metrics.h"
#include "tests/support/router_harness.h"

namespace baton {
namespace {

constexpr int kWorkers = 64, kKeys = 64;

double ThreadMs() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return 1e3 * static_cast<double>(now.tv_sec) + 1e-6 * static_cast<double>(now.tv_nsec);
}

}  // namespace

TEST_CASE("the page of metrics of a router with 64 workers is made within 20 ms") {
  RouterHarness cluster;
  for (Incarnation id = 1; id <= kWorkers; ++id) {
    cluster.Join(id, id % 2 == 0 ? Role::kPrefill : Role::kDecode);
    WorkerLoad load = MeasuredLoad(1000);
    for (Incarnation peer = 1; peer <= kWorkers; ++peer)
      if (peer != id) load.links.push_back({.peer = peer, .bytes_per_second = 1e9});
    REQUIRE(cluster.Report(id, {load}).ok());
  }
  for (int i = 0; i < 256; ++i) cluster.Submit(64, 16);
  REQUIRE(cluster.router.Workers().size() == kWorkers);

  MetricsRegistry registry;
  ProcessSeries process(&registry, "1");
  FrontMetrics metrics(&registry, "m", 4096);
  for (int key = 0; key < kKeys; ++key) {
    for (const int ranks : {1, 2, 4, 8, 16, 32, 64}) {
      FinishedRequest request;
      const std::string name = absl::StrCat("key", key);
      request.endpoint = "chat";
      request.key = name;
      request.finish = "stop";
      request.n_tokens = request.n_last_tokens = 20;
      request.first_token = request.second_gap = absl::Milliseconds(3 + key);
      request.timeline.took = request.timeline.predicted = absl::Milliseconds(5);
      request.timeline.slices.assign(static_cast<size_t>(ranks), 100);
      metrics.OnFinished(request);
    }
    for (int i = 0; i < 1000; ++i) metrics.OnNextToken(absl::Microseconds(100 * i));
  }

  double best = std::numeric_limits<double>::infinity();
  std::string page;
  for (int i = 0; i < 10; ++i) {
    const double begin = ThreadMs();
    process.Update();
    metrics.SetView({cluster.router.View(), true, {}, {}});
    page = registry.Text();
    best = std::min(best, ThreadMs() - begin);
  }
  INFO("the page has " << page.size() << " bytes and takes " << best << " ms");
  CHECK(page.size() > 50'000);
  CHECK(page.find(absl::StrCat("baton_workers{model=\"m\",prefers=\"decode\",role=\"router\"} ",
                               kWorkers / 2, "\n")) != std::string::npos);
  CHECK(best < 20);
}

}  // namespace baton
