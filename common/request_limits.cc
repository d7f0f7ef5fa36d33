#include "common/request_limits.h"

#include "absl/strings/str_format.h"

namespace baton {

absl::Status CheckLimit(const FieldLimit& limit, double value) {
  if (value >= limit.min && value <= limit.max) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat("%s: %.10g, must be from %.10g to %.10g",
                                                    limit.field, value, limit.min, limit.max));
}

}  // namespace baton
