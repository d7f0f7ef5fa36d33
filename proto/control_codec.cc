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

template <typename Wire>
PartEnded UnreadablePart(const Wire& request, bool is_prefill, const absl::Status& why) {
  return {.request_id = request.request_id(),
          .epoch = request.epoch(),
          .was_prefill = is_prefill,
          .reason = EndReason::kFailed,
          .fault = PartFault::kUnreadable,
          .message = std::string(why.message())};
}

// Encoded sizes. A packed token takes five bytes, a value four; a ticket 116, a peer 12 and its
// address; the other fields of a message, tags and lengths need less than the rest of the round
// numbers.
constexpr size_t kTokenBytes = 5, kTicketBytes = 128, kPeerBytes = ControlLimits::kNameBytes + 24;
constexpr size_t kTokenValueBytes = kTokenBytes + 4;
constexpr size_t kSliceBytes = ControlLimits::kSliceOutputs * (kTicketBytes + kPeerBytes + 8) + 64;
constexpr size_t kRequestBytes = 384;
constexpr size_t kBadWordBytes = 16, kEventBytes = 96, kAnnounceBytes = 5 * kPeerBytes;

constexpr size_t MaxBytesOf(size_t n_tokens, size_t n_slices) {
  return kRequestBytes + kTokenBytes * n_tokens + kSliceBytes * n_slices;
}

constexpr size_t MaxEntries(const FieldLimit& limit) { return static_cast<size_t>(limit.max); }
constexpr size_t kMaxSamplingBytes =
    kTokenValueBytes * MaxEntries(RequestLimits::kLogitBiases) +
    MaxEntries(RequestLimits::kBadWords) *
        (kBadWordBytes + kTokenBytes * MaxEntries(RequestLimits::kBadWordTokens)) +
    kTokenBytes *
        (MaxEntries(RequestLimits::kAllowedTokens) + MaxEntries(RequestLimits::kLogprobTokens)) +
    kMaxGrammarBytes;
static_assert(MaxBytesOf(RequestLimits::kContextTokens + MaxEntries(RequestLimits::kStopTokens),
                         ControlLimits::kSlices) +
                  kMaxSamplingBytes <=
              ControlLimits::kMessageBytes);

size_t MaxBytesOf(const SamplingParams& params) {
  size_t bytes = kTokenValueBytes * params.logit_bias.size() +
                 kTokenBytes * (params.allowed_tokens.size() + params.logprob_tokens.size()) +
                 params.grammar.text.size();
  for (const std::vector<int32_t>& word : params.bad_words)
    bytes += kBadWordBytes + kTokenBytes * word.size();
  return bytes;
}

size_t MaxBytes(const RouterMessage& message) {
  if (const auto* prefill = std::get_if<PrefillRequest>(&message))
    return MaxBytesOf(prefill->tokens.size() + prefill->stop_tokens.size(),
                      prefill->slices.size()) +
           MaxBytesOf(prefill->sampling);
  if (const auto* decode = std::get_if<DecodeRequest>(&message))
    return MaxBytesOf(decode->history.size() + decode->stop_tokens.size(), 0) +
           MaxBytesOf(decode->sampling);
  return kRequestBytes;
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

absl::StatusOr<DecodedMessages> DecodeMessages(const wire::RouterMessages& in) {
  RETURN_IF_ERROR(CheckLength("messages", in.messages_size(), ControlLimits::kMessagesPerBatch));
  DecodedMessages out;
  out.messages.reserve(in.messages_size());
  for (const wire::RouterMessage& message : in.messages()) {
    absl::StatusOr<RouterMessage> decoded = DecodeMessage(message);
    if (decoded.ok()) {
      out.messages.push_back(*std::move(decoded));
    } else if (message.has_prefill()) {
      out.unreadable.push_back(UnreadablePart(message.prefill(), true, decoded.status()));
    } else if (message.has_decode()) {
      out.unreadable.push_back(UnreadablePart(message.decode(), false, decoded.status()));
    } else {
      return decoded.status();
    }
  }
  return out;
}

size_t BatchLength(std::span<const RouterMessage> messages) {
  size_t tokens = 0, bytes = 0;
  const size_t max = std::min(messages.size(), ControlLimits::kMessagesPerBatch);
  for (size_t i = 0; i < max; ++i) {
    if (const auto* prefill = std::get_if<PrefillRequest>(&messages[i]))
      tokens += prefill->tokens.size();
    if (const auto* decode = std::get_if<DecodeRequest>(&messages[i]))
      tokens += decode->history.size();
    bytes += MaxBytes(messages[i]);
    if (i > 0 && (tokens > ControlLimits::kTokensPerBatch || bytes > ControlLimits::kMessageBytes))
      return i;
  }
  return max;
}

size_t MaxEventBytes(const WorkerEvent& event) {
  if (const auto* token = std::get_if<TokenOut>(&event))
    return kEventBytes + kTokenValueBytes * token->logprobs.size();
  if (const auto* scored = std::get_if<PromptLogprobs>(&event)) {
    size_t n = 0;
    for (const PromptLogprob& token : scored->tokens) n += 1 + token.top.size();
    return kEventBytes + kTokenValueBytes * n;
  }
  if (const auto* ended = std::get_if<PartEnded>(&event))
    return kEventBytes + std::min(ended->message.size(), ControlLimits::kReasonBytes);
  if (const auto* load = std::get_if<WorkerLoad>(&event))
    return 2 * kEventBytes + kEventBytes * load->links.size();
  return std::holds_alternative<WorkerAnnounce>(event) ? kAnnounceBytes : kEventBytes;
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

absl::StatusOr<DecodedMessages> ParseMessages(std::string_view bytes) {
  ASSIGN_OR_RETURN(const wire::RouterMessages in, ParseWire<wire::RouterMessages>(bytes));
  return DecodeMessages(in);
}

}  // namespace baton
