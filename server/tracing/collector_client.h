// POSTs to a collector, one connection each, on the calling thread. Plain sockets and the resolver
// of the C library: a name that does not resolve, a connection that nobody takes and a server that
// does not answer all end with the time limit.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "absl/time/time.h"
#include "common/status.h"
#include "server/tracing/tracing_options.h"

namespace baton {

class CollectorClient {
 public:
  explicit CollectorClient(CollectorAddress address);
  ~CollectorClient();
  CollectorClient(const CollectorClient&) = delete;
  CollectorClient& operator=(const CollectorClient&) = delete;

  // Returns the answer's HTTP status. Errors (Unavailable, DeadlineExceeded) say what failed, and
  // where.
  absl::StatusOr<int> Post(std::string_view json, absl::Duration timeout);

 private:
  struct Lookup;
  absl::StatusOr<int> Connect(absl::Time deadline);  // a descriptor
  absl::Status Resolve(absl::Time deadline);
  absl::Status Error(const char* what) const;

  const CollectorAddress address_;
  std::unique_ptr<Lookup> lookup_;  // the last one; it may be under way when its Post has ended
};

}  // namespace baton
