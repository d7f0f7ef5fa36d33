#include "tests/e2e/chaos/profile.h"

namespace baton {
namespace {

// Limit for a client that does not read; short, so that a run meets it often.
constexpr char kWriteTimeout[] = "--server.write_timeout=3s";
// Two workers prefill prompts of at least this length.
constexpr char kRelays[] = "--router.relay_min_tokens=100";
constexpr char kRelaysAlways[] = "--lab.relay_min_ranks=2";
// Every request is handed over, so that faults come in the middle of it; other profiles leave that
// to the router.
constexpr char kHandsOver[] = "--router.local=false";

double& Weight(Profile* profile, FaultKind kind) {
  return profile->weights[static_cast<int>(kind)];
}

Profile Kill() {
  Profile profile;
  profile.server_args = {kHandsOver};
  profile.mean_interval = absl::Seconds(3.5);
  Weight(&profile, FaultKind::kKill) = 1;
  profile.bounds_stalls = true;
  return profile;
}

Profile Pause() {
  Profile profile;
  profile.mean_interval = absl::Seconds(6);
  Weight(&profile, FaultKind::kPause) = 1;
  return profile;
}

Profile Mixed() {
  Profile profile;
  profile.server_args = {kWriteTimeout, kRelays, kRelaysAlways};
  profile.leaving = 0.1;
  profile.slow = 0.05;
  profile.not_reading = 0.02;
  profile.mean_interval = absl::Seconds(3.5);
  Weight(&profile, FaultKind::kKill) = 5;
  Weight(&profile, FaultKind::kPause) = 3;
  Weight(&profile, FaultKind::kTerminate) = 2;
  return profile;
}

// 32 clients need about 20,000 tokens of KV on two decode workers with 1,536 each.
Profile Pools() {
  Profile profile;
  profile.server_args = {"--page-tokens=16", "--max-model-len=2048", "--max-num-seqs=16",
                         "--prefill.kv_memory=3MiB", "--decode.kv_memory=3MiB"};
  profile.n_clients = 32;
  profile.catalogue.long_min = 300;
  profile.catalogue.long_max = 1400;
  profile.catalogue.max_output = 120;
  profile.leaving = 0.1;
  profile.impossible = 0.05;
  return profile;
}

Profile Cancel() {
  Profile profile;
  profile.n_clients = 24;
  profile.leaving = 0.98;
  profile.catalogue.long_min = 200;
  profile.catalogue.long_max = 800;
  profile.catalogue.max_output = 64;
  profile.n_cancels = 100000;
  return profile;
}

Profile Network() {
  Profile profile;
  profile.server_args = {kHandsOver};
  profile.needs_lab = true;
  profile.mean_interval = absl::Seconds(8);
  profile.min_lasting = absl::Milliseconds(200);
  profile.max_lasting = absl::Seconds(8);
  Weight(&profile, FaultKind::kCutLink) = 3;
  Weight(&profile, FaultKind::kBlackHole) = 3;
  Weight(&profile, FaultKind::kOneWay) = 2;
  Weight(&profile, FaultKind::kSlowLink) = 1;
  Weight(&profile, FaultKind::kMute) = 1;
  return profile;
}

constexpr struct {
  const char* name;
  Profile (*make)();
} kProfiles[] = {{"kill", Kill},   {"pause", Pause},   {"mixed", Mixed},
                 {"pools", Pools}, {"cancel", Cancel}, {"network", Network}};

}  // namespace

const char* FaultName(FaultKind kind) {
  static constexpr const char* kNames[kFaultKinds] = {"kill -9",    "pause",
                                                      "SIGTERM",    "link cut",
                                                      "black hole", "one-way black hole",
                                                      "slow link",  "mute control stream"};
  return kNames[static_cast<int>(kind)];
}

absl::StatusOr<Profile> FindProfile(const std::string& name) {
  for (const auto& [known, make] : kProfiles) {
    if (name != known) continue;
    Profile profile = make();
    profile.name = name;
    return profile;
  }
  return absl::InvalidArgumentError("there is no profile " + name +
                                    "; kill, pause, mixed, pools, cancel and network are there");
}

}  // namespace baton
