#include "proto/control_codec.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "control.pb.h"
#include "proto/control_fields.h"
#include "proto/router_message_codec.h"
#include "proto/worker_event_codec.h"

namespace baton {
namespace {

template <typename Wire>
absl::StatusOr<Wire> ParseWire(std::string_view bytes) {
  if (bytes.size() > ControlLimits::kMessageBytes)
    return absl::InvalidArgumentError(
        absl::StrFormat("control message has %d bytes, at most %d are allowed", bytes.size(),
                        ControlLimits::kMessageBytes));
  Wire parsed;
  if (!parsed.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())))
    return absl::InvalidArgumentError("control message is not a valid protobuf");
  return parsed;
}

}  // namespace

void EncodeReport(const WorkerReport& report, wire::WorkerReport* out) {
  out->Clear();
  out->mutable_events()->Reserve(static_cast<int>(report.events.size()));
  for (const WorkerEvent& event : report.events) EncodeEvent(event, out->add_events());
}

absl::StatusOr<WorkerReport> DecodeReport(const wire::WorkerReport& in) {
  RETURN_IF_ERROR(CheckLength("report.events", in.events_size(), ControlLimits::kEventsPerReport));
  WorkerReport report;
  report.events.reserve(in.events_size());
  for (const wire::WorkerEvent& event : in.events()) {
    ASSIGN_OR_RETURN(report.events.emplace_back(), DecodeEvent(event));
  }
  return report;
}

void EncodeMessages(std::span<const RouterMessage> messages, wire::RouterMessages* out) {
  out->Clear();
  for (const RouterMessage& message : messages) EncodeMessage(message, out->add_messages());
}

absl::StatusOr<std::vector<RouterMessage>> DecodeMessages(const wire::RouterMessages& in) {
  RETURN_IF_ERROR(CheckLength("messages", in.messages_size(), ControlLimits::kMessagesPerBatch));
  std::vector<RouterMessage> messages;
  messages.reserve(in.messages_size());
  for (const wire::RouterMessage& message : in.messages()) {
    ASSIGN_OR_RETURN(messages.emplace_back(), DecodeMessage(message));
  }
  return messages;
}

size_t BatchLength(std::span<const RouterMessage> messages) {
  size_t tokens = 0;
  const size_t most = std::min(messages.size(), ControlLimits::kMessagesPerBatch);
  for (size_t i = 0; i < most; ++i) {
    if (const auto* prefill = std::get_if<PrefillRequest>(&messages[i]))
      tokens += prefill->tokens.size();
    if (i > 0 && tokens > ControlLimits::kTokensPerBatch) return i;
  }
  return most;
}

std::string SerializeReport(const WorkerReport& report) {
  wire::WorkerReport out;
  EncodeReport(report, &out);
  return out.SerializeAsString();
}

absl::StatusOr<WorkerReport> ParseReport(std::string_view bytes) {
  ASSIGN_OR_RETURN(const wire::WorkerReport in, ParseWire<wire::WorkerReport>(bytes));
  return DecodeReport(in);
}

std::string SerializeMessages(std::span<const RouterMessage> messages) {
  wire::RouterMessages out;
  EncodeMessages(messages, &out);
  return out.SerializeAsString();
}

absl::StatusOr<std::vector<RouterMessage>> ParseMessages(std::string_view bytes) {
  ASSIGN_OR_RETURN(const wire::RouterMessages in, ParseWire<wire::RouterMessages>(bytes));
  return DecodeMessages(in);
}

}  // namespace baton
