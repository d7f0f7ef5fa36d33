// Mutated requests to a real `baton serve`: each is answered or its connection closed within a
// second, never with a 5xx, and the cluster is healthy after each, with the processes it began
// with. A slice runs in CI; "[.][20000]" is the command of docs/RELIABILITY.md.
#include <map>

#include "absl/strings/str_cat.h"
#include "tests/e2e/mutated_request.h"
#include "tests/e2e/served_baton.h"
#include "tests/e2e/stream_crowd.h"
#include "tests/support/raw_client.h"

namespace baton {
namespace {

// True for what no request must get: a status of 500 and up, or an event or object that tells a
// fault of the server.
bool IsFault(const std::string& answer) {
  if (answer.starts_with("HTTP/1.1 505")) return false;  // the request's version is another
  for (const char* sign :
       {"HTTP/1.1 5", "\"server_error\"", "\"api_error\"", "\"overloaded_error\""})
    if (answer.find(sign) != std::string::npos) return true;
  return false;
}

// hang: the time of one request that is too long.
void Check(uint64_t first_seed, int n_requests, absl::Duration hang) {
  // Short answers and short patience, so that a second is long. Of prompts, 192 tokens are many.
  const auto served = ServedBaton::Start(
      {"--demo", "--model.max_context=192", "--server.header_timeout=100ms",
       "--server.body_timeout=100ms", "--server.idle_timeout=100ms", "--log.level=warn"});
  INFO((served.ok() ? std::string() : std::string(served.status().message())));
  REQUIRE(served.ok());
  const std::vector<pid_t> children = (*served)->Children();
  REQUIRE(children.size() == 4);
  std::map<std::string, int> n_by_status;
  absl::Duration slowest;
  for (int i = 0; i < n_requests; ++i) {
    const uint64_t seed = first_seed + static_cast<uint64_t>(i);
    const std::string request = RequestMutator(seed).Next();
    RawClient client((*served)->url().port);
    REQUIRE(client.is_open());
    const absl::Time begin = absl::Now();
    client.Send(request);  // the server may close before the end
    const bool ended = client.ReadToEnd(absl::Seconds(10));
    const absl::Duration took = absl::Now() - begin;
    slowest = std::max(slowest, took);
    const std::string status =
        client.received.starts_with("HTTP/1.1 ") ? client.received.substr(9, 3) : "closed";
    ++n_by_status[status];
    const auto health = HttpClient((*served)->url(), hang).Get("/health");
    if (ended && took <= hang && !IsFault(client.received) && health.ok() && health->status == 200)
      continue;
    INFO("seed " << seed << ", " << took << "\n" << request << "\n--\n" << client.received);
    CHECK(ended);
    CHECK(took <= hang);
    CHECK_FALSE(IsFault(client.received));
    REQUIRE(health.ok());
    CHECK(health->status == 200);
  }
  std::string counts;
  for (const auto& [status, n] : n_by_status) absl::StrAppend(&counts, " ", status, ": ", n);
  WARN(n_requests << " requests," << counts << "; the slowest took " << slowest);
  CHECK(n_by_status["200"] > n_requests / 20);
  CHECK(n_by_status["400"] > n_requests / 20);
  CHECK((*served)->Children() == children);
  CHECK(MetricSum((*served)->client(), "baton_failovers_total") == 0);
  const absl::StatusOr<int> status = (*served)->Terminate();
  REQUIRE(status.ok());
  CHECK(*status == 0);
}

// Tests run beside others, on machines that may stand still for a moment.
TEST_CASE("1,000 mutated requests") { Check(1, 1'000, absl::Seconds(5)); }

TEST_CASE("20,000 mutated requests", "[.][20000]") { Check(100'000, 20'000, absl::Seconds(1)); }

}  // namespace
}  // namespace baton
