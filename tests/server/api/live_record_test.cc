// /v1/cluster/live: what it tells of workers, latencies and requests, and what a cursor leaves out.
#include <boost/json.hpp>
#include <catch2/catch.hpp>

#include "common/clock.h"
#include "server/api/latency_windows.h"
#include "tests/server/api/served_api.h"
#include "tests/support/raw_client.h"

namespace baton {
namespace {

namespace json = boost::json;

using Sizes = std::vector<std::pair<int64_t, uint32_t>>;

Sizes SizesOf(const LatencyWindows& windows, int64_t second) {
  Sizes sizes;
  windows.ForEach(second, [&](int64_t floor, uint32_t n) { sizes.emplace_back(floor, n); });
  return sizes;
}

json::value Live(const Served& served, const std::string& cursor = "") {
  const auto answer = served.Client().Get("/v1/cluster/live?after=" + cursor);
  REQUIRE(answer.ok());
  REQUIRE(answer->status == 200);
  return json::parse(answer->body);
}

std::string Cursor(const json::value& live) { return live.at("cursor").as_string().c_str(); }

}  // namespace

TEST_CASE("latencies are counted by size and second, to an eighth of an octave") {
  LatencyWindows windows;
  const absl::Time now = absl::FromUnixSeconds(1000);
  for (const int us : {0, 7, 8, 9, 1000, 1023, 1024, 1151, 1152})
    windows.Add(absl::Microseconds(us), now);
  windows.Add(absl::Hours(3), now);
  windows.Add(-absl::Seconds(1), now + absl::Milliseconds(999));
  CHECK(
      SizesOf(windows, 1000) ==
      Sizes{{0, 2}, {7, 1}, {8, 1}, {9, 1}, {960, 2}, {1024, 2}, {1152, 1}, {int64_t{1} << 27, 1}});
  CHECK(SizesOf(windows, 999).empty());
  windows.Add(absl::Milliseconds(1), now + absl::Seconds(1));
  CHECK(SizesOf(windows, 1001) == Sizes{{960, 1}});
  CHECK(SizesOf(windows, 1000).size() == 8);
  windows.Add(absl::Milliseconds(1), now + absl::Seconds(LatencyWindows::kSeconds));
  CHECK(SizesOf(windows, 1000).empty());
}

TEST_CASE("every size is found again from its floor") {
  for (int64_t us = 1; us < (int64_t{1} << 27); us += 1 + us / 50) {
    LatencyWindows windows;
    windows.Add(absl::Microseconds(us), absl::UnixEpoch());
    const Sizes sizes = SizesOf(windows, 0);
    REQUIRE(sizes.size() == 1);
    CHECK(sizes[0].first <= us);
    CHECK(us < sizes[0].first + std::max<int64_t>(1, sizes[0].first / 8));
  }
}

TEST_CASE("workers are told with their queues, pages and links") {
  Served served;
  served.On([&] {
    served.generator->workers = {{.name = "decode0",
                                  .incarnation = 255,
                                  .role = Role::kDecode,
                                  .prefill_queued_tokens = 7,
                                  .decode_rows = 3,
                                  .max_batch = 64,
                                  .pages_total = 100,
                                  .pages_free = 90,
                                  .pages_promised = 5,
                                  .links = {{.peer = "decode1", .bytes_per_second = 2e9},
                                            {.peer = "decode2", .broken = true}}}};
  });
  const json::value live = Live(served);
  CHECK(live.at("object") == "cluster.live");
  CHECK(live.at("model") == "demo");
  CHECK(live.at("ready") == true);
  const json::value& worker = live.at("workers").at(0);
  CHECK(worker.at("name") == "decode0");
  CHECK(worker.at("role") == "decode");
  CHECK(worker.at("incarnation") == "00000000000000ff");
  CHECK(worker.at("decode_rows") == 3);
  CHECK(worker.at("pages") == json::parse(R"({"total":100,"free":90,"promised":5})"));
  CHECK(worker.at("links").at(0).at("to") == "decode1");
  CHECK(worker.at("links").at(0).at("bytes_per_second") == 2000000000);
  CHECK(worker.at("links").at(0).at("broken") == false);
  CHECK(worker.at("links").at(1).at("to") == "decode2");
  CHECK(worker.at("links").at(1).at("broken") == true);
}

TEST_CASE("requests are told while they run and when they have ended, with their attempts") {
  Served served;
  served.generator->hold = true;
  served.On([&] {
    AttemptRecord record{.sent = absl::Milliseconds(2),
                         .prefill_worker = "prefill1",
                         .decode_worker = "decode0",
                         .prefill_heads = "prefill0"};
    record.spans = {{.kind = WorkSpan::Kind::kTransfer,
                     .worker = "decode0",
                     .begin = absl::Milliseconds(3),
                     .end = absl::Milliseconds(5)}};
    record.cause = static_cast<int>(FailoverCause::kWorkerLost);
    record.failure = "decode worker decode0 was lost";
    record.failed_worker = "decode0";
    record.given_up = absl::Milliseconds(9);
    served.generator->timeline.records = {record};
  });
  RawClient client(served.port);
  REQUIRE(client.Send(Post("/v1/completions", kStream, "X-Request-Id: my-1\r\n")));
  REQUIRE(served.WaitFor([&] { return served.generator->n_submitted == 1; }));
  json::value live = Live(served);
  REQUIRE(live.at("running").as_array().size() == 1);
  CHECK(live.at("finished").as_array().empty());
  const json::value& running = live.at("running").at(0);
  CHECK(running.at("id") == "my-1");
  CHECK(running.at("finish").is_null());
  CHECK(running.at("waits") == false);
  CHECK(running.at("prompt_tokens") == 1);
  const json::value& attempt = running.at("attempts").at(0);
  CHECK(attempt.at("prefill") == json::parse(R"(["prefill0","prefill1"])"));
  CHECK(attempt.at("decode") == "decode0");
  CHECK(attempt.at("failure").at("cause") == "worker_lost");
  CHECK(attempt.at("failure").at("worker") == "decode0");
  const json::value& span = attempt.at("spans").at(0);
  CHECK(span.at("stage") == "transfer");
  CHECK(span.at("end_ms").to_number<double>() - span.at("begin_ms").to_number<double>() ==
        Approx(2));
  for (int i = 0; i < 3; ++i) served.On([&] { served.generator->StepAll(); });
  REQUIRE(client.ReadUntil("[DONE]"));
  const std::string before = Cursor(live);
  live = Live(served, before);
  CHECK(live.at("running").as_array().empty());
  REQUIRE(live.at("finished").as_array().size() == 1);
  CHECK(live.at("finished").at(0).at("finish") == "length");
  CHECK(live.at("finished").at(0).at("tokens") == 3);
  CHECK(live.at("finished").at(0).at("status") == 200);
  CHECK(live.at("requests").at("ended") == 1);
  // Told once: but again to those with no cursor, or one of another server.
  CHECK(Live(served, Cursor(live)).at("finished").as_array().empty());
  for (const char* cursor : {"", "x", "0000000000000000-1-1", "0000000000000000-1"})
    CHECK(Live(served, cursor).at("finished").as_array().size() == 1);
}

TEST_CASE("latencies are told when their second is over, once") {
  Served served;
  CHECK(served.Client().Post("/v1/completions", R"({"prompt":[5],"max_tokens":4})")->status == 200);
  const int64_t second = Live(served).at("second").as_int64();
  REQUIRE(served.WaitFor([&] { return absl::ToUnixSeconds(MonotonicNow()) > second; }));
  const json::value live = Live(served);
  const auto count = [&](const char* what) {
    int64_t n = 0;
    for (const json::value& each : live.at(what).as_array())
      for (const json::value& size : each.at(1).as_array()) n += size.at(1).as_int64();
    return n;
  };
  CHECK(count("ttft") == 1);
  CHECK(count("itl") == 3);
  CHECK(Live(served, Cursor(live)).at("itl").as_array().empty());
}

TEST_CASE("so many requests are remembered") {
  Served served;
  const HttpClient client = served.Client();
  for (size_t i = 0; i < LiveRecord::kMaxRequests + 5; ++i)
    REQUIRE(client.Post("/v1/completions", R"({"prompt":[5],"max_tokens":1})")->status == 200);
  const json::value live = Live(served);
  CHECK(live.at("finished").as_array().size() == LiveRecord::kMaxRequests);
  CHECK(live.at("requests").at("ended") == LiveRecord::kMaxRequests + 5);
  CHECK(served.Client().Post("/v1/completions", R"({"prompt":[5],"n":0})")->status == 400);
  CHECK(Live(served).at("requests").at("ended") == LiveRecord::kMaxRequests + 5);  // it never ran
}

}  // namespace baton
