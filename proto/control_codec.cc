#include "proto/control_codec.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "absl/strings/str_format.h"
#include "control.pb.h"
#include "proto/control_fields.h"
#include "proto/field_visitors.h"
#include "proto/refusal.h"

namespace baton {
namespace {

constexpr size_t kFraming = 6;  // bytes of a tag and a length, at most

// Encodes a message or an event, and returns a bound of the bytes that it takes in its batch.
template <typename Kinds, typename Wire>
size_t Encode(const Kinds& message, Wire* out) {
  FieldWriter(out).OneOf(message);
  return out->ByteSizeLong() + kFraming;
}

template <typename Kinds, typename Wire>
absl::Status Decode(const Wire& in, Kinds& out) {
  absl::Status status;
  FieldReader(in, &status).OneOf(out);
  return status;
}

absl::Status CheckCount(const char* list, int n, size_t max) {
  if (static_cast<size_t>(n) <= max) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrFormat("%s has %d entries, at most %d are allowed", list, n, max));
}

}  // namespace

size_t AppendReport(const WorkerReport& report, wire::WorkerReport* out) {
  size_t bytes = 0;
  for (const WorkerEvent& event : report.events) bytes += Encode(event, out->add_events());
  FieldWriter engine(out->mutable_engine());
  Fields(engine, report.engine);
  return bytes + out->engine().ByteSizeLong() + kFraming;
}

absl::StatusOr<WorkerReport> DecodeReport(const wire::WorkerReport& in) {
  RETURN_IF_ERROR(CheckCount("report.events", in.events_size(), ControlLimits::kEventsPerReport));
  WorkerReport report;
  report.events.reserve(static_cast<size_t>(in.events_size()));
  for (const wire::WorkerEvent& event : in.events())
    RETURN_IF_ERROR(Decode(event, report.events.emplace_back()));
  absl::Status status;
  FieldReader(in, &status).Message(wire::WorkerReport::kEngineFieldNumber, report.engine);
  RETURN_IF_ERROR(status);
  return report;
}

size_t EncodeMessages(std::span<const RouterMessage> messages, wire::RouterMessages* out) {
  out->Clear();
  size_t n = 0, bytes = 0;
  for (; n < std::min(messages.size(), ControlLimits::kMessagesPerBatch); ++n) {
    bytes += Encode(messages[n], out->add_messages());
    if (n == 0 || bytes <= ControlLimits::kBatchBytes) continue;
    out->mutable_messages()->RemoveLast();
    break;
  }
  return n;
}

absl::StatusOr<DecodedMessages> DecodeMessages(const wire::RouterMessages& in) {
  RETURN_IF_ERROR(CheckCount("messages", in.messages_size(), ControlLimits::kMessagesPerBatch));
  DecodedMessages out;
  out.messages.reserve(static_cast<size_t>(in.messages_size()));
  for (const wire::RouterMessage& message : in.messages()) {
    RouterMessage& decoded = out.messages.emplace_back();
    const absl::Status status = Decode(message, decoded);
    if (status.ok()) continue;
    if (message.has_prefill()) {
      out.unreadable.push_back(
          RefusalOf(std::get<PrefillRequest>(decoded), status, PartFault::kUnreadable));
    } else if (message.has_decode()) {
      out.unreadable.push_back(
          RefusalOf(std::get<DecodeRequest>(decoded), status, PartFault::kUnreadable));
    } else {
      return status;
    }
    out.messages.pop_back();
  }
  return out;
}

}  // namespace baton
