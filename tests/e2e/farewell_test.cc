// A worker process that is told to stop, at a router of the test's own: requests that were on their
// way when it said that it drains are refused as such, and are no parts of a lost worker.
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <csignal>
#include <filesystem>

#include "tests/e2e/served_baton.h"
#include "tests/support/control_ends.h"
#include "tests/support/temp_folder.h"

namespace baton {
namespace {

namespace fs = std::filesystem;

constexpr RouterId kRouter = 3;

// Waits for the worker's next event of a kind. Nothing: its stream has ended.
template <typename Wanted>
std::optional<Wanted> Told(RouterEnd* router, const std::function<bool(const Wanted&)>& is_it) {
  for (;;) {
    const std::optional<ControlEvent> event = router->NextAny(absl::Seconds(30));
    REQUIRE(event.has_value());
    if (std::holds_alternative<WorkerLost>(*event)) return std::nullopt;
    const auto* reported = std::get_if<WorkerReported>(&*event);
    if (reported == nullptr) continue;
    for (const WorkerEvent& each : reported->report.events)
      if (const auto* told = std::get_if<Wanted>(&each); told != nullptr && is_it(*told))
        return *told;
  }
}

}  // namespace

TEST_CASE("a worker that ends refuses what was on its way when it said that it drains") {
  const TempFolder folder;
  folder.Write("key", std::string(64, '1'));
  fs::permissions(folder.file("key"), fs::perms::owner_read);
  ControlServerOptions options;
  options.router = kRouter;
  options.key.fill(0x11);
  RouterEnd router(options);
  const auto started = ServedBaton::StartWorker(
      "decode",
      {"--demo", "--cluster.key_file", folder.file("key"), "--cluster.router", router.address()});
  INFO(started.status().ToString());
  REQUIRE(started.ok());
  ServedBaton& worker = **started;
  const auto connected = router.Next<WorkerConnected>(absl::Seconds(30));
  REQUIRE(connected.has_value());
  REQUIRE(Told<WorkerAnnounce>(&router, [](const auto&) { return true; }).has_value());

  REQUIRE(::kill(worker.pid(), SIGTERM) == 0);
  REQUIRE(Told<WorkerLoad>(&router, [](const auto& load) { return load.draining; }).has_value());
  const RequestId request = MakeRequestId(kRouter, 1);
  router.server->Send(
      connected->worker,
      {DecodeRequest{.request_id = request, .epoch = 1, .tokens = {1, 2}, .max_tokens = 2}});
  const auto ended =
      Told<PartEnded>(&router, [&](const auto& part) { return part.request_id == request; });
  REQUIRE(ended.has_value());
  CHECK(ended->reason == EndReason::kFailed);
  CHECK(ended->fault == PartFault::kDraining);

  const absl::StatusOr<int> status = worker.WaitForEnd(absl::Seconds(30));
  REQUIRE(status.ok());
  CHECK(WIFEXITED(*status));
  CHECK(WEXITSTATUS(*status) == 0);
}

}  // namespace baton
