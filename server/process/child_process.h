// One role process: started by fork and exec of this program, ends with its parent. Owned by the
// supervisor's one thread.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>
#include <vector>

#include "common/status.h"
#include "server/process/launch_spec.h"

namespace baton {

class ChildProcess {
 public:
  // Runs `program SUBCOMMAND --start-descriptor 3 --report-descriptor 4`. The process reads the
  // order from descriptor 3. Internal: the system refused; the error names the call. A program that
  // cannot be run is no error here: the process ends with status 127.
  static absl::StatusOr<ChildProcess> Start(const std::string& program,
                                            const std::string& subcommand, const LaunchSpec& order);
  ~ChildProcess();  // closes the report pipe; the process stays
  ChildProcess(ChildProcess&& other) noexcept;
  ChildProcess& operator=(ChildProcess&& other) noexcept;

  pid_t pid() const { return pid_; }
  int report_descriptor() const { return report_; }  // non-blocking; -1 once it has ended
  // Returns the reports that have arrived whole, without waiting. Closes the descriptor at the
  // pipe's end.
  std::vector<StartReport> ReadReports();
  void Signal(int signal) const;

 private:
  ChildProcess(pid_t pid, int report) : pid_(pid), report_(report) {}
  pid_t pid_;
  int report_;
  std::string partial_line_;
};

}  // namespace baton
