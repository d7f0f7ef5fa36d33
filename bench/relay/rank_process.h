// A process of the relay benchmark: this program again, with lines of text in and out. Killed with
// the object, and ends with its parent. One thread.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>

#include "common/status.h"

namespace baton {

// Where the process writes its lines; it reads them from stdin.
inline constexpr int kAnswerDescriptor = 3;

class RankProcess {
 public:
  // `program bench relay-rank`.
  static absl::StatusOr<std::unique_ptr<RankProcess>> Start(const std::string& program);
  ~RankProcess();
  RankProcess(const RankProcess&) = delete;
  RankProcess& operator=(const RankProcess&) = delete;

  absl::Status Send(const std::string& line);
  // The next line; an error when it ended, or said nothing for so long.
  absl::StatusOr<std::string> Hear(double seconds);

 private:
  RankProcess(pid_t pid, int input, int output) : pid_(pid), input_(input), output_(output) {}
  pid_t pid_;
  int input_, output_;  // its own
  std::string partial_;
};

}  // namespace baton
