// baton_chaos: makes faults in a real cluster under load and requires the right answers.
//   baton_chaos --profile kill --seconds 600 --seed 1 --model models/demo
// Without --seed one is drawn; the first line tells it.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <random>

#include "tests/e2e/chaos/chaos_run.h"

int main(int argc, char** argv) {
  CLI::App app{
      "Breaks a real baton cluster (2 prefill + 2 decode workers) under load and compares "
      "every answer with an undisturbed run's."};
  std::string profile = "mixed";
  double seconds = 60;
  int64_t n_cancels = -1;
  int n_clients = 0;
  baton::ChaosOptions options;
  options.model = BATON_SOURCE_DIR "/models/demo";
  options.log_folder = "/tmp";
  app.add_option("--profile", profile, "kill, pause, mixed, pools, cancel or network");
  app.add_option("--seconds", seconds, "length of the load; of cancel: the max it may take");
  options.seed = std::random_device()() % 1'000'000;
  app.add_option("--seed", options.seed, "of requests, clients and faults; without it, drawn");
  app.add_option("--model", options.model, "folder or random:<config.json>");
  app.add_option("--clients", n_clients, "clients at once; 0 = the profile's");
  app.add_option("--cancels", n_cancels, "clients that go away, of the profile cancel");
  app.add_option("--log-folder", options.log_folder, "where logs are kept after a violation");
  CLI11_PARSE(app, argc, argv);
  auto found = baton::FindProfile(profile);
  if (!found.ok()) {
    std::fprintf(stderr, "baton_chaos: %s\n", std::string(found.status().message()).c_str());
    return 2;
  }
  options.profile = *std::move(found);
  options.length = absl::Seconds(seconds);
  if (n_clients > 0) options.profile.n_clients = n_clients;
  if (n_cancels > 0 && options.profile.n_cancels > 0) options.profile.n_cancels = n_cancels;
  return baton::RunChaos(options);
}
