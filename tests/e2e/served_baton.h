// A real `baton serve` with its child processes, started for a test on a free port and ended with
// the test. Keeps all output.
#pragma once

#include <sys/types.h>

#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/time.h"
#include "bench/load/http_client.h"
#include "common/status.h"

namespace baton {

class ServedBaton {
 public:
  // Runs `baton serve ARGS...`, with --port 0 if there is none, and waits for its ready line.
  static absl::StatusOr<std::unique_ptr<ServedBaton>> Start(
      std::vector<std::string> args, absl::Duration limit = absl::Seconds(60));
  // Runs `baton router ARGS... --port 0` and waits until it listens: workers are the test's own.
  static absl::StatusOr<std::unique_ptr<ServedBaton>> StartRouter(std::vector<std::string> args);
  // Runs `baton ROLE ARGS...`, a worker, and waits for its metrics address, which is url().
  static absl::StatusOr<std::unique_ptr<ServedBaton>> StartWorker(const std::string& role,
                                                                  std::vector<std::string> args);
  // Kills the processes that still run, with children.
  ~ServedBaton();

  const HttpUrl& url() const { return url_; }  // with TLS: host and port
  HttpClient client() const { return HttpClient(url_, absl::Seconds(120)); }
  std::string log() const { return LogFrom(0); }  // stdout and stderr so far
  std::string LogFrom(size_t offset) const;       // the log without its first `offset` bytes
  // Waits for `text` in the log. False: it did not appear within `limit`.
  bool WaitForLog(const std::string& text, absl::Duration limit) const;
  // The port where workers dial a router that runs by itself; 0: the log does not tell it.
  int control_port() const;
  pid_t pid() const { return pid_; }
  // Returns the child processes of the supervisor.
  std::vector<pid_t> Children() const;
  // Returns the child whose command line contains `word` ("prefill", "decode", "router"); 0: none.
  pid_t Child(const std::string& word) const;

  // Waits for the end of the process by itself. Returns the exit status of waitpid, or an error
  // after `limit`.
  absl::StatusOr<int> WaitForEnd(absl::Duration limit);
  // Sends SIGTERM and waits. Returns the exit status of waitpid, or an error after `limit`.
  absl::StatusOr<int> Terminate(absl::Duration limit = absl::Seconds(30));

 private:
  ServedBaton(pid_t pid, int output);
  // `ready`: what the log says before the URL.
  static absl::StatusOr<std::unique_ptr<ServedBaton>> Run(const std::string& command,
                                                          std::vector<std::string> args,
                                                          const std::string& ready,
                                                          absl::Duration limit);
  void ReadOutput();
  pid_t pid_;
  int output_;  // read end of the pipe behind stdout and stderr
  bool reaped_ = false;
  HttpUrl url_;
  mutable std::mutex mutex_;
  std::string log_;  // guarded by mutex_
  std::thread reader_;
};

}  // namespace baton
