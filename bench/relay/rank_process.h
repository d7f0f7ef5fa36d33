// A process of the relay benchmark: this program again, with lines of text in and out. The
// destructor kills it; it also ends with its parent. One thread.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>

#include "common/status.h"

namespace baton {

// The descriptor to which the process writes its lines; it reads orders from stdin.
inline constexpr int kAnswerDescriptor = 3;

class RankProcess {
 public:
  // `program bench relay-rank`.
  static absl::StatusOr<std::unique_ptr<RankProcess>> Start(const std::string& program);
  ~RankProcess();
  RankProcess(const RankProcess&) = delete;
  RankProcess& operator=(const RankProcess&) = delete;

  absl::Status Send(const std::string& line);
  // Returns the next line. Error: the process ended, or wrote nothing for `seconds`.
  absl::StatusOr<std::string> Hear(double seconds);

 private:
  RankProcess(pid_t pid, int input, int output) : pid_(pid), input_(input), output_(output) {}
  pid_t pid_;
  int input_, output_;  // this end of the process's pipes
  std::string partial_;
};

}  // namespace baton
