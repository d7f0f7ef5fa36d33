// Mutated records of TLS and mutated connections of gRPC to a real `baton serve`: each connection
// ends within a second of its client's end, and the cluster is healthy after each, with the
// processes that it began with. A slice runs in CI; "[.][20000]" is the command of
// docs/SECURITY.md.
#include <catch2/catch.hpp>

#include "absl/strings/str_cat.h"
#include "tests/e2e/mutated_wires.h"
#include "tests/e2e/served_baton.h"
#include "tests/e2e/stream_crowd.h"
#include "tests/support/free_port.h"
#include "tests/support/tls_client.h"

namespace baton {
namespace {

const std::string kHealth = "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n";

std::unique_ptr<ServedBaton> Serve(std::vector<std::string> args) {
  args.insert(args.end(), {"--demo", "--prefill", "1", "--log.level=warn"});
  auto served = ServedBaton::Start(args);
  INFO((served.ok() ? std::string() : std::string(served.status().message())));
  REQUIRE(served.ok());
  return *std::move(served);
}

bool IsHealthy(RawClient* client) {
  client->received.clear();
  return client->Send(kHealth) && client->ReadUntil("{\"status\":\"ok\"}", absl::Seconds(5)) &&
         client->received.starts_with("HTTP/1.1 200");
}

void Finish(ServedBaton* served, const std::vector<pid_t>& children, absl::Duration slowest) {
  WARN("the slowest took " << slowest);
  CHECK(served->Children() == children);
  const auto status = served->Terminate();
  REQUIRE(status.ok());
  CHECK(*status == 0);
}

// Ends this side; returns how long the server takes to end its own.
absl::Duration EndOf(RawClient* client) {
  client->HalfClose();
  const absl::Time begin = absl::Now();
  REQUIRE(client->ReadToEnd(absl::Seconds(20)));
  return absl::Now() - begin;
}

void CheckRecords(uint64_t first_seed, int n, absl::Duration hang) {
  const TempFolder folder;
  TestAuthority authority("authority");
  authority.Issue("served").WriteTo(folder, "served");
  const auto served =
      Serve({"--tls-cert", folder.file("served.pem"), "--tls-key", folder.file("served.key")});
  const std::vector<pid_t> children = served->Children();
  const int port = served->url().port;
  TlsClient other(port, {.trusted = &authority});  // who is not to notice anything
  absl::Duration slowest;
  for (int i = 0; i < n; ++i) {
    const uint64_t seed = first_seed + static_cast<uint64_t>(i);
    INFO("seed " << seed);
    RawClient client(port);
    REQUIRE(client.is_open());
    RecordMutator(seed).Talk(&client, kHealth);
    slowest = std::max(slowest, EndOf(&client));
    CHECK(slowest <= hang);
    REQUIRE(IsHealthy(&other));
  }
  Finish(served.get(), children, slowest);
}

void CheckCalls(uint64_t first_seed, int n, absl::Duration hang) {
  const int port = FreePort();
  const auto served = Serve({absl::StrCat("--grpc-port=", port)});
  const std::vector<pid_t> children = served->Children();
  RawClient other(served->url().port);
  absl::Duration slowest;
  int n_answered = 0;
  for (int i = 0; i < n; ++i) {
    const uint64_t seed = first_seed + static_cast<uint64_t>(i);
    INFO("seed " << seed);
    RawClient client(port);
    REQUIRE(client.is_open());
    client.Send(CallMutator(seed).Next());
    // Frames of an answer, or of a farewell, come after the server's own settings.
    client.ReadUntil("grpc-status", absl::Milliseconds(i % 8 == 0 ? 200 : 1));
    n_answered += client.received.find("grpc-status") != std::string::npos;
    slowest = std::max(slowest, EndOf(&client));
    CHECK(slowest <= hang);
    REQUIRE(IsHealthy(&other));
  }
  CHECK(n_answered > 0);
  Finish(served.get(), children, slowest);
}

// Tests run beside others, on machines that may stand still for a moment.
TEST_CASE("500 mutated connections by TLS") { CheckRecords(1, 500, absl::Seconds(5)); }
TEST_CASE("500 mutated connections by gRPC") { CheckCalls(1, 500, absl::Seconds(5)); }

TEST_CASE("20,000 mutated connections by TLS", "[.][20000]") {
  CheckRecords(100'000, 20'000, absl::Seconds(1));
}
TEST_CASE("20,000 mutated connections by gRPC", "[.][20000]") {
  CheckCalls(100'000, 20'000, absl::Seconds(1));
}

}  // namespace
}  // namespace baton
