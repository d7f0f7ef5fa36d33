// Converts control messages between plain structs (messages.h) and the wire (control.proto).
// Encoding cannot fail. Decoding trusts nothing: every field is checked against the limits below,
// and those of requests (common/request_limits.h), before a struct is made. Errors are
// InvalidArgument and name message and field. Pure functions, any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
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
inline constexpr uint32_t kControlVersion = 5;

// Limits of a batch, and of fields that are not part of a request.
struct ControlLimits {
  static constexpr size_t kMessageBytes = 32u << 20;
  static constexpr size_t kEventsPerReport = 65536;
  static constexpr size_t kMessagesPerBatch = 4096;
  static constexpr size_t kTokensPerBatch = 4u << 20;  // prompt tokens of one batch, at least one
                                                       // request's
  static constexpr size_t kLinks = 1024;
  static constexpr size_t kSlices = 257;      // of one worker
  static constexpr size_t kSliceOutputs = 2;  // the next slice's worker, the decode worker
  static constexpr size_t kNameBytes = 256;   // names, addresses, ids
  static constexpr size_t kReasonBytes = 4096;
  static constexpr int32_t kPageTokens = 4096;
};

void EncodeReport(const WorkerReport& report, wire::WorkerReport* out);
absl::StatusOr<WorkerReport> DecodeReport(const wire::WorkerReport& in);

void EncodeMessages(std::span<const RouterMessage> messages, wire::RouterMessages* out);
// An unreadable message about a request costs that request and nothing else: `unreadable` has its
// part, ended (PartFault::kUnreadable), for the worker to send back. Any other fault makes the
// sender's other messages untrustworthy too, and is an error.
struct DecodedMessages {
  std::vector<RouterMessage> messages;  // in order
  std::vector<PartEnded> unreadable;
};
absl::StatusOr<DecodedMessages> DecodeMessages(const wire::RouterMessages& in);

// Returns a bound of the encoded size of an event.
size_t MaxEventBytes(const WorkerEvent& event);
// Returns how many leading messages fit into one batch. One always fits: 0 only for no messages.
size_t BatchLength(std::span<const RouterMessage> messages);

// Serialised forms of a report.
std::string SerializeReport(const WorkerReport& report);
absl::StatusOr<WorkerReport> ParseReport(std::string_view bytes);
std::string SerializeMessages(std::span<const RouterMessage> messages);
absl::StatusOr<DecodedMessages> ParseMessages(std::string_view bytes);

}  // namespace baton
