// Converts control messages between plain structs (messages.h) and the wire (control.proto), by the
// lists of their fields (control_fields.h). Encoding cannot fail. Decoding trusts nothing: every
// field is checked against the limits below, and those of requests (common/request_limits.h).
// Errors are InvalidArgument and name message and field. Pure functions, any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "common/request_limits.h"
#include "common/status.h"
#include "proto/messages.h"

namespace baton {

namespace wire {
class WorkerReport;
class RouterMessages;
}  // namespace wire

// Raised with every field that a reader must not overlook.
inline constexpr uint32_t kControlVersion = 11;

// Limits of a batch, and of fields that are not part of a request.
struct ControlLimits {
  static constexpr size_t kMessageBytes = 32u << 20;
  static constexpr size_t kBatchBytes = 4u << 20;  // of several messages to a worker
  static constexpr size_t kEventsPerReport = 65536;
  static constexpr size_t kMessagesPerBatch = 4096;
  static constexpr size_t kLinks = 1024;
  static constexpr size_t kSlices = 257;      // of one worker
  static constexpr size_t kSliceOutputs = 2;  // the next slice's worker, the decode worker
  static constexpr size_t kNameBytes = 256;   // names, addresses, ids
  static constexpr size_t kReasonBytes = 4096;
  static constexpr int32_t kPageTokens = 4096;
  static constexpr double kItlStretch = 1000;
};

// Appends the report's events, and returns a bound of the bytes by which *out grows. The engine's
// turn replaces the one that is there.
size_t AppendReport(const WorkerReport& report, wire::WorkerReport* out);
absl::StatusOr<WorkerReport> DecodeReport(const wire::WorkerReport& in);

// Encodes as many leading messages as one batch may have, and returns how many. One always fits:
// 0 only for no messages.
size_t EncodeMessages(std::span<const RouterMessage> messages, wire::RouterMessages* out);
// An unreadable message about a request costs that request and nothing else: `unreadable` has its
// part, ended (PartFault::kUnreadable), for the worker to send back. Any other fault makes the
// sender's other messages untrustworthy too, and is an error.
struct DecodedMessages {
  std::vector<RouterMessage> messages;  // in order
  std::vector<PartEnded> unreadable;
};
absl::StatusOr<DecodedMessages> DecodeMessages(const wire::RouterMessages& in);

}  // namespace baton
