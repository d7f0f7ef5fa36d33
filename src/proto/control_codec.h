// Control messages between plain structs (messages.h) and the wire (control.proto). Encoding cannot
// fail. Decoding trusts nothing: every field is checked against the limits below before a struct is
// made, and the error names message and field. Pure functions, any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/status.h"
#include "proto/messages.h"

namespace baton {

namespace wire {
class WorkerReport;
class RouterMessages;
}  // namespace wire

// Limits of one message on the wire; a message outside is refused whole.
struct ControlLimits {
  static constexpr size_t kMessageBytes = 32u << 20;
  static constexpr size_t kEventsPerReport = 65536;
  static constexpr size_t kMessagesPerBatch = 4096;
  static constexpr size_t kTokensPerBatch = 4u << 20;  // prompt tokens of one batch, at least one
                                                       // request's
  static constexpr int32_t kPromptTokens = 4 << 20;    // also the largest position and context
  static constexpr size_t kStopTokens = 1024;
  static constexpr size_t kLinks = 1024;
  static constexpr size_t kRelayRounds = 256;  // before a rank's last
  static constexpr size_t kNameBytes = 256;    // names, addresses, ids
  static constexpr size_t kReasonBytes = 4096;
  static constexpr int32_t kPageTokens = 4096;
};

void EncodeReport(const WorkerReport& report, wire::WorkerReport* out);
absl::StatusOr<WorkerReport> DecodeReport(const wire::WorkerReport& in);

void EncodeMessages(std::span<const RouterMessage> messages, wire::RouterMessages* out);
absl::StatusOr<std::vector<RouterMessage>> DecodeMessages(const wire::RouterMessages& in);

// How many leading messages fit into one batch (never 0 unless there are none).
size_t BatchLength(std::span<const RouterMessage> messages);

// The same over bytes.
std::string SerializeReport(const WorkerReport& report);
absl::StatusOr<WorkerReport> ParseReport(std::string_view bytes);
std::string SerializeMessages(std::span<const RouterMessage> messages);
absl::StatusOr<std::vector<RouterMessage>> ParseMessages(std::string_view bytes);

}  // namespace baton
