#include "proto/control_fields.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "control.pb.h"
#include "proto/control_codec.h"

namespace baton {

absl::Status CheckRange(const char* field, int64_t value, int64_t min, int64_t max) {
  if (value >= min && value <= max) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrFormat("%s is %d, must be in [%d, %d]", field, value, min, max));
}

absl::Status CheckFloat(const char* field, double value, double min, double max) {
  if (value >= min && value <= max) return absl::OkStatus();  // false for NaN
  return absl::InvalidArgumentError(
      absl::StrFormat("%s is %g, must be in [%g, %g]", field, value, min, max));
}

absl::Status CheckField(const char* field, double value, const FieldLimit& limit) {
  return CheckLimit({field, limit.min, limit.max}, value);
}

absl::Status CheckLength(const char* field, size_t length, size_t max) {
  if (length <= max) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrFormat("%s has %d entries, at most %d are allowed", field, length, max));
}

absl::Status CheckName(const char* field, const std::string& name) {
  RETURN_IF_ERROR(CheckLength(field, name.size(), ControlLimits::kNameBytes));
  if (std::all_of(name.begin(), name.end(), [](char c) { return c >= ' ' && c <= '~'; }))
    return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrFormat("%s has bytes that are not printable ASCII", field));
}

absl::Status CheckPresent(const char* field, bool present) {
  if (present) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat("%s is missing", field));
}

absl::Status CheckTokens(const char* field, std::span<const int32_t> tokens) {
  if (std::all_of(tokens.begin(), tokens.end(), [](int32_t token) { return token >= 0; }))
    return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat("%s has a negative token id", field));
}

void EncodePeer(const TransferPeer& in, wire::TransferPeer* out) {
  out->set_incarnation(in.incarnation);
  out->set_address(in.address);
}

absl::StatusOr<TransferPeer> DecodePeer(const wire::TransferPeer& in) {
  RETURN_IF_ERROR(CheckName("address", in.address()));
  return TransferPeer{.incarnation = in.incarnation(), .address = in.address()};
}

}  // namespace baton
