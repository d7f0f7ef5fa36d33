// `baton serve`: starts every role of one machine as a process of its own, before any library
// starts a thread here, tells the roles what they need, starts anew what dies, has them read
// settings again at SIGHUP, and takes all of them down in order: the router first. One thread,
// asleep in poll.
#pragma once

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "server/config/config.h"
#include "server/config/config_reload.h"

namespace baton {

struct SupervisorOptions {
  Config config;                       // model resolved
  ConfigReload* reload = nullptr;      // read at SIGHUP; null: only roles read again
  std::vector<std::string> arguments;  // of the command line, by which roles read it again
  std::string program = "/proc/self/exe";
  bool is_terminal = false;                            // draw a progress bar
  absl::Duration min_pause = absl::Milliseconds(100);  // before a dead role is started again
  absl::Duration max_pause = absl::Seconds(5);         // the pause doubles up to here
};

// Runs until SIGTERM or SIGINT and then drains for server.shutdown_timeout; a second signal kills.
// Called while the process has one thread. Returns the exit status: 0 after an orderly end; 1 when
// a role ended before the cluster was ready (its message is on stderr).
int RunSupervisor(SupervisorOptions options);

}  // namespace baton
