// The processes under test, independent of how they were started.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "bench/load/http_client.h"
#include "common/status.h"

namespace baton {

struct Member {
  std::string name;  // "router", "prefill0", "decode1"
  pid_t pid = 0;
  std::optional<HttpUrl> metrics;  // address of /metrics; none: not up yet
  bool is_router() const { return name == "router"; }
  bool is_prefill() const { return name.starts_with("prefill"); }
};

class Cluster {
 public:
  virtual ~Cluster() = default;
  virtual HttpUrl url() const = 0;  // URL of the API
  // Returns the processes that live now, the router first, then by name.
  virtual std::vector<Member> Members() = 0;
  virtual std::string Log() const = 0;  // the output of all processes
  // Sends SIGTERM to all; an error when a process does not end well. Kills the processes that are
  // left.
  virtual absl::Status Stop() = 0;
};

inline constexpr int kPrefillWorkers = 2, kDecodeWorkers = 2;

}  // namespace baton
