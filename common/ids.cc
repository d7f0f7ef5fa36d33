#include "common/ids.h"

#include <sys/random.h>

#include "common/check.h"

namespace baton {

uint64_t RandomId() {
  uint64_t id = 0;
  while (id == 0) BATON_CHECK(::getrandom(&id, sizeof(id), 0) == sizeof(id));
  return id;
}

}  // namespace baton
