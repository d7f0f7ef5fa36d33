#include "tests/e2e/crowd_rig.h"

#include <unistd.h>

#include <boost/json.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "absl/strings/str_cat.h"
#include "tests/e2e/stream_crowd.h"
#include "tests/support/hash_backend.h"

namespace baton {
namespace {

constexpr int kContext = 1 << 20, kDemoVocab = 2048;

// Steps take a fixed time, as those of a large batch nearly do.
class PacedBackend : public HashBackend {
 public:
  explicit PacedBackend(std::chrono::microseconds step) : HashBackend(64, 1, {64}), step_(step) {
    set_limits({.max_step_tokens = 4096});
    set_max_positions(kContext);
    set_vocab(kDemoVocab);
  }
  void RunLayers(int from, int to) override {
    std::this_thread::sleep_for(step_);
    HashBackend::RunLayers(from, to);
  }

 private:
  const std::chrono::microseconds step_;
};

// The demo model's tokenizer, with a context that takes a prompt of a megabyte.
void WriteModel(const std::filesystem::path& folder) {
  std::filesystem::copy(BATON_SOURCE_DIR "/models/demo", folder);
  std::stringstream text;
  text << std::ifstream(folder / "config.json").rdbuf();
  boost::json::value config = boost::json::parse(text.str());
  config.as_object()["max_position_embeddings"] = kContext;
  std::ofstream(folder / "config.json") << boost::json::serialize(config);
}

absl::StatusOr<std::vector<std::unique_ptr<Worker>>> StartWorkers(const ServedBaton& router,
                                                                  const ClusterKey& key,
                                                                  std::chrono::microseconds step) {
  const int port = router.control_port();
  if (port == 0) return absl::InternalError("no control port:\n" + router.log());
  std::vector<std::unique_ptr<Worker>> workers;
  for (const Role role : {Role::kPrefill, Role::kPrefill, Role::kDecode}) {
    WorkerOptions options;
    options.engine.threads = 1;
    options.core.decode.max_batch = kCrowdStreams + 64;
    WorkerStart start;
    start.role = role;
    start.name = absl::StrCat(role == Role::kDecode ? "decode" : "prefill", workers.size());
    start.routers = {absl::StrCat("127.0.0.1:", port)};
    start.key = key;
    start.kv_pages = 1 << 17;
    const auto pace = role == Role::kDecode ? step : std::chrono::microseconds(100);
    ASSIGN_OR_RETURN(workers.emplace_back(),
                     Worker::Start(options, start, std::make_unique<PacedBackend>(pace)));
  }
  return workers;
}

}  // namespace

absl::StatusOr<std::unique_ptr<CrowdRig>> CrowdRig::Start(
    std::chrono::microseconds step, std::vector<std::string> more,
    const std::function<bool(const ServedBaton&)>& is_ready) {
  static int n_rigs = 0;
  const std::filesystem::path folder = std::filesystem::temp_directory_path() /
                                       absl::StrCat("baton-crowd-", ::getpid(), "-", ++n_rigs);
  std::filesystem::create_directory(folder);
  WriteModel(folder / "model");
  std::ofstream(folder / "key") << std::string(64, '1');
  std::filesystem::permissions(folder / "key", std::filesystem::perms::owner_read);
  const ClusterKey key = [] {
    ClusterKey bytes;
    bytes.fill(0x11);
    return bytes;
  }();
  std::vector<std::string> args = {folder / "model", "--cluster.key_file", folder / "key",
                                   "--router.relay_min_tokens=0", "--router.max_waiting=4096"};
  args.insert(args.end(), more.begin(), more.end());
  auto rig = std::make_unique<CrowdRig>();
  auto router = ServedBaton::StartRouter(args);
  std::filesystem::remove_all(folder);
  RETURN_IF_ERROR(router.status());
  rig->router = *std::move(router);
  ASSIGN_OR_RETURN(rig->workers, StartWorkers(*rig->router, key, step));
  const bool joined = WaitUntil(absl::Seconds(20), [&] {
    if (is_ready) return is_ready(*rig->router);
    const auto health = rig->router->client().Get("/health");
    return health.ok() && health->status == 200;
  });
  if (!joined) return absl::UnavailableError("the workers did not join:\n" + rig->router->log());
  return rig;
}

double CpuSeconds(pid_t pid) {
  std::stringstream text;
  text << std::ifstream(absl::StrCat("/proc/", pid, "/stat")).rdbuf();
  const std::string line = text.str();
  std::istringstream fields(line.substr(line.rfind(')') + 2));
  std::string skipped;
  for (int i = 3; i < 14; ++i) fields >> skipped;
  double user = 0, system = 0;
  fields >> user >> system;
  return (user + system) / static_cast<double>(::sysconf(_SC_CLK_TCK));
}

}  // namespace baton
