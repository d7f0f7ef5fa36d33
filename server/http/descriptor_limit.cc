#include "server/http/descriptor_limit.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

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

void GrowDescriptorTable(int n) {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  const int highest = static_cast<int>(std::min(limit.rlim_cur, static_cast<rlim_t>(n))) - 1;
  const int any = ::open("/", O_PATH | O_CLOEXEC);
  const int copy = ::fcntl(any, F_DUPFD_CLOEXEC, highest);  // the table has its number now
  if (copy >= 0) ::close(copy);
  if (any >= 0) ::close(any);
}

}  // namespace baton
