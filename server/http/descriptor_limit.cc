#include "server/http/descriptor_limit.h"

#include <sys/resource.h>

#include <algorithm>
#include <limits>

namespace baton {

int RaiseDescriptorLimit(int reserve) {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
  ::getrlimit(RLIMIT_NOFILE, &limit);
  const auto n =
      static_cast<int64_t>(std::min<rlim_t>(limit.rlim_cur, std::numeric_limits<int>::max()));
  return static_cast<int>(std::max<int64_t>(16, n - reserve));
}

}  // namespace baton
