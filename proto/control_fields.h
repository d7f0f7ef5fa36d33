// Shared code of the codecs of both directions: checks of fields, whose errors are InvalidArgument
// and name field and value, and messages that travel both ways. Pure functions, any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>

#include "common/request_limits.h"
#include "common/status.h"
#include "proto/messages.h"

namespace baton {

namespace wire {
class TransferPeer;
}  // namespace wire

inline constexpr int64_t kMaxCount = std::numeric_limits<int32_t>::max();

absl::Status CheckRange(const char* field, int64_t value, int64_t min, int64_t max);
absl::Status CheckFloat(const char* field, double value, double min, double max);
// Checks a field against its row of the table of request limits, under the field's name on the
// wire.
absl::Status CheckField(const char* field, double value, const FieldLimit& limit);
absl::Status CheckLength(const char* field, size_t length, size_t max);
// Names travel into logs and metrics, so they must be printable ASCII of at most
// ControlLimits::kNameBytes.
absl::Status CheckName(const char* field, const std::string& name);
absl::Status CheckPresent(const char* field, bool present);
// Token ids must not be negative; the worker checks them against its vocabulary.
absl::Status CheckTokens(const char* field, std::span<const int32_t> tokens);

void EncodePeer(const TransferPeer& in, wire::TransferPeer* out);
absl::StatusOr<TransferPeer> DecodePeer(const wire::TransferPeer& in);

}  // namespace baton
