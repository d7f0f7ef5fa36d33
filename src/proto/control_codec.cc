#include "proto/control_codec.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_format.h"
#include "control.pb.h"

namespace baton {
namespace {

constexpr int64_t kMostCount = std::numeric_limits<int32_t>::max();
constexpr int64_t kMostMicroseconds = int64_t{1} << 50;  // 35 years

// --- checks -----------------------------------------------------------------------------------

absl::Status CheckRange(const char* field, int64_t value, int64_t least, int64_t most) {
  if (value >= least && value <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrFormat("%s is %d, must be in [%d, %d]", field, value, least, most));
}

absl::Status CheckFloat(const char* field, float value, float least, float most) {
  if (value >= least && value <= most) return absl::OkStatus();  // false for NaN
  return absl::InvalidArgumentError(
      absl::StrFormat("%s is %g, must be in [%g, %g]", field, value, least, most));
}

absl::Status CheckLength(const char* field, size_t length, size_t most) {
  if (length <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrFormat("%s has %d entries, at most %d are allowed", field, length, most));
}

// Names travel into logs and metrics: printable ASCII.
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

absl::Status CheckTokens(const char* field,
                         const google::protobuf::RepeatedField<int32_t>& tokens) {
  if (std::all_of(tokens.begin(), tokens.end(), [](int32_t token) { return token >= 0; }))
    return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat("%s has a negative token id", field));
}

// --- parts shared by messages -----------------------------------------------------------------

void Encode(const SamplingParams& in, wire::SamplingParams* out) {
  out->set_temperature(in.temperature);
  out->set_top_k(in.top_k);
  out->set_top_p(in.top_p);
  out->set_seed(in.seed);
}

absl::StatusOr<SamplingParams> Decode(const wire::SamplingParams& in) {
  constexpr float kMost = std::numeric_limits<float>::max();
  RETURN_IF_ERROR(CheckFloat("sampling.temperature", in.temperature(), 0, kMost));
  RETURN_IF_ERROR(
      CheckFloat("sampling.top_p", in.top_p(), std::numeric_limits<float>::denorm_min(), 1));
  return SamplingParams{
      .temperature = in.temperature(), .top_k = in.top_k(), .top_p = in.top_p(), .seed = in.seed()};
}

void Encode(const TransferPeer& in, wire::TransferPeer* out) {
  out->set_incarnation(in.incarnation);
  out->set_address(in.address);
}

absl::StatusOr<TransferPeer> Decode(const wire::TransferPeer& in) {
  RETURN_IF_ERROR(CheckName("address", in.address()));
  return TransferPeer{.incarnation = in.incarnation(), .address = in.address()};
}

void Encode(const Ticket& in, wire::Ticket* out) {
  out->set_id_high(in.id.high);
  out->set_id_low(in.id.low);
  out->set_epoch(in.epoch);
  out->set_request_id(in.request_id);
  out->set_sink(in.sink);
  out->set_kv_pages(in.kv_pages);
  out->set_promise_pages(in.promise_pages);
  out->set_mac(in.mac.data(), in.mac.size());
}

absl::StatusOr<Ticket> Decode(const wire::Ticket& in) {
  RETURN_IF_ERROR(CheckRange("ticket.kv_pages", in.kv_pages(), 0, kMostCount));
  Ticket out{.id = {.high = in.id_high(), .low = in.id_low()},
             .epoch = in.epoch(),
             .request_id = in.request_id(),
             .sink = in.sink(),
             .kv_pages = in.kv_pages(),
             .promise_pages = in.promise_pages()};
  if (in.mac().size() != out.mac.size())
    return absl::InvalidArgumentError(
        absl::StrFormat("ticket.mac has %d bytes, must have %d", in.mac().size(), out.mac.size()));
  std::copy(in.mac().begin(), in.mac().end(), out.mac.begin());
  return out;
}

// --- router to worker -------------------------------------------------------------------------

void Encode(const Inflow& in, wire::Inflow* out) {
  out->set_ticket_id_high(in.ticket_id.high);
  out->set_ticket_id_low(in.ticket_id.low);
  out->set_tokens(in.tokens);
}

absl::StatusOr<Inflow> Decode(const wire::Inflow& in, int n_tokens) {
  RETURN_IF_ERROR(CheckRange("prefill.inflow.tokens", in.tokens(), 0, n_tokens - 1));
  return Inflow{.ticket_id = {.high = in.ticket_id_high(), .low = in.ticket_id_low()},
                .tokens = in.tokens()};
}

// A head's ticket promises nothing: its pages are the tail's own. Every other one covers at least
// what the handoff fills.
absl::Status CheckPromise(const wire::PrefillRequest& in) {
  const wire::Ticket& ticket = in.ticket();
  if (!in.is_head())
    return CheckRange("ticket.promise_pages", ticket.promise_pages(), ticket.kv_pages(),
                      kMostCount);
  RETURN_IF_ERROR(CheckRange("ticket.kv_pages of a head", ticket.kv_pages(), 1, kMostCount));
  return CheckRange("ticket.promise_pages of a head", ticket.promise_pages(), 0, 0);
}

void Encode(const PrefillRequest& in, wire::RouterMessage* out) {
  wire::PrefillRequest* prefill = out->mutable_prefill();
  prefill->set_request_id(in.request_id);
  prefill->set_epoch(in.epoch);
  Encode(in.ticket, prefill->mutable_ticket());
  Encode(in.sink, prefill->mutable_sink());
  prefill->mutable_tokens()->Add(in.tokens.begin(), in.tokens.end());
  Encode(in.sampling, prefill->mutable_sampling());
  prefill->set_want_digests(in.want_digests);
  prefill->set_cache_salt(in.cache_salt);
  prefill->set_most_tokens(in.most_tokens);
  if (in.inflow.tokens > 0) Encode(in.inflow, prefill->mutable_inflow());
  prefill->set_is_head(in.is_head);
}

absl::StatusOr<RouterMessage> Decode(const wire::PrefillRequest& in) {
  RETURN_IF_ERROR(CheckPresent("prefill.ticket", in.has_ticket()));
  RETURN_IF_ERROR(CheckPresent("prefill.sink", in.has_sink()));
  RETURN_IF_ERROR(CheckPresent("prefill.sampling", in.has_sampling()));
  RETURN_IF_ERROR(
      CheckRange("prefill.tokens count", in.tokens_size(), 1, ControlLimits::kPromptTokens));
  RETURN_IF_ERROR(CheckTokens("prefill.tokens", in.tokens()));
  RETURN_IF_ERROR(CheckPromise(in));
  PrefillRequest out{.request_id = in.request_id(), .epoch = in.epoch()};
  ASSIGN_OR_RETURN(out.ticket, Decode(in.ticket()));
  ASSIGN_OR_RETURN(out.sink, Decode(in.sink()));
  ASSIGN_OR_RETURN(out.sampling, Decode(in.sampling()));
  out.tokens.assign(in.tokens().begin(), in.tokens().end());
  out.want_digests = in.want_digests();
  out.cache_salt = in.cache_salt();
  RETURN_IF_ERROR(CheckRange("prefill.most_tokens", in.most_tokens(), 0,
                             2 * int64_t{ControlLimits::kPromptTokens}));
  out.most_tokens = in.most_tokens();
  ASSIGN_OR_RETURN(out.inflow, Decode(in.inflow(), in.tokens_size()));
  out.is_head = in.is_head();
  return RouterMessage(std::move(out));
}

void Encode(const DecodeRequest& in, wire::RouterMessage* out) {
  wire::DecodeRequest* decode = out->mutable_decode();
  decode->set_request_id(in.request_id);
  decode->set_epoch(in.epoch);
  decode->set_ticket_id_high(in.ticket_id.high);
  decode->set_ticket_id_low(in.ticket_id.low);
  decode->set_n_prompt(in.n_prompt);
  decode->set_max_tokens(in.max_tokens);
  Encode(in.sampling, decode->mutable_sampling());
  decode->mutable_stop_tokens()->Add(in.stop_tokens.begin(), in.stop_tokens.end());
  decode->set_want_digests(in.want_digests);
}

absl::StatusOr<RouterMessage> Decode(const wire::DecodeRequest& in) {
  RETURN_IF_ERROR(CheckPresent("decode.sampling", in.has_sampling()));
  RETURN_IF_ERROR(CheckRange("decode.n_prompt", in.n_prompt(), 1, ControlLimits::kPromptTokens));
  RETURN_IF_ERROR(
      CheckRange("decode.max_tokens", in.max_tokens(), 1, ControlLimits::kPromptTokens));
  RETURN_IF_ERROR(
      CheckLength("decode.stop_tokens", in.stop_tokens_size(), ControlLimits::kStopTokens));
  RETURN_IF_ERROR(CheckTokens("decode.stop_tokens", in.stop_tokens()));
  DecodeRequest out{.request_id = in.request_id(),
                    .epoch = in.epoch(),
                    .ticket_id = {.high = in.ticket_id_high(), .low = in.ticket_id_low()},
                    .n_prompt = in.n_prompt(),
                    .max_tokens = in.max_tokens()};
  ASSIGN_OR_RETURN(out.sampling, Decode(in.sampling()));
  out.stop_tokens.assign(in.stop_tokens().begin(), in.stop_tokens().end());
  out.want_digests = in.want_digests();
  return RouterMessage(std::move(out));
}

void Encode(const CancelRequest& in, wire::RouterMessage* out) {
  out->mutable_cancel()->set_request_id(in.request_id);
  out->mutable_cancel()->set_epoch(in.epoch);
}

void Encode(const DrainWorker&, wire::RouterMessage* out) { out->mutable_drain(); }

absl::StatusOr<RouterMessage> Decode(const wire::RouterMessage& in) {
  switch (in.kind_case()) {
    case wire::RouterMessage::kPrefill:
      return Decode(in.prefill());
    case wire::RouterMessage::kDecode:
      return Decode(in.decode());
    case wire::RouterMessage::kCancel:
      return RouterMessage(
          CancelRequest{.request_id = in.cancel().request_id(), .epoch = in.cancel().epoch()});
    case wire::RouterMessage::kDrain:
      return RouterMessage(DrainWorker{});
    case wire::RouterMessage::KIND_NOT_SET:
      break;
  }
  return absl::InvalidArgumentError(
      "router message of an unknown kind: run the same version of baton everywhere");
}

// --- worker to router -------------------------------------------------------------------------

wire::Role WireRole(Role role) {
  switch (role) {
    case Role::kPrefill:
      return wire::ROLE_PREFILL;
    case Role::kDecode:
      return wire::ROLE_DECODE;
    case Role::kBoth:
      break;
  }
  return wire::ROLE_BOTH;
}

absl::StatusOr<Role> DecodeRole(int role) {
  switch (role) {
    case wire::ROLE_PREFILL:
      return Role::kPrefill;
    case wire::ROLE_DECODE:
      return Role::kDecode;
    case wire::ROLE_BOTH:
      return Role::kBoth;
    default:
      return absl::InvalidArgumentError(absl::StrFormat("announce.role %d is unknown", role));
  }
}

wire::EndReason WireReason(EndReason reason) {
  switch (reason) {
    case EndReason::kStopToken:
      return wire::END_REASON_STOP_TOKEN;
    case EndReason::kLength:
      return wire::END_REASON_LENGTH;
    case EndReason::kCancelled:
      return wire::END_REASON_CANCELLED;
    case EndReason::kPreempted:
      return wire::END_REASON_PREEMPTED;
    case EndReason::kFailed:
      break;
  }
  return wire::END_REASON_FAILED;
}

absl::StatusOr<EndReason> DecodeReason(int reason) {
  switch (reason) {
    case wire::END_REASON_STOP_TOKEN:
      return EndReason::kStopToken;
    case wire::END_REASON_LENGTH:
      return EndReason::kLength;
    case wire::END_REASON_CANCELLED:
      return EndReason::kCancelled;
    case wire::END_REASON_FAILED:
      return EndReason::kFailed;
    case wire::END_REASON_PREEMPTED:
      return EndReason::kPreempted;
    default:
      return absl::InvalidArgumentError(absl::StrFormat("part_ended.reason %d is unknown", reason));
  }
}

wire::PartFault WireFault(PartFault fault) {
  switch (fault) {
    case PartFault::kHandoff:
      return wire::PART_FAULT_HANDOFF;
    case PartFault::kDraining:
      return wire::PART_FAULT_DRAINING;
    case PartFault::kOwn:
      break;
  }
  return wire::PART_FAULT_OWN;
}

absl::StatusOr<PartFault> DecodeFault(int fault) {
  switch (fault) {
    case wire::PART_FAULT_OWN:
      return PartFault::kOwn;
    case wire::PART_FAULT_HANDOFF:
      return PartFault::kHandoff;
    case wire::PART_FAULT_DRAINING:
      return PartFault::kDraining;
    default:
      return absl::InvalidArgumentError(absl::StrFormat("part_ended.fault %d is unknown", fault));
  }
}

void Encode(const WorkerAnnounce& in, wire::WorkerEvent* out) {
  wire::WorkerAnnounce* announce = out->mutable_announce();
  announce->set_incarnation(in.incarnation);
  announce->set_name(in.name);
  announce->set_role(WireRole(in.role));
  Encode(in.transfer, announce->mutable_transfer());
  announce->set_model_fingerprint(in.model_fingerprint);
  announce->set_numerics_id(in.numerics_id);
  announce->set_layout_id(in.layout_id);
  announce->set_page_tokens(in.page_tokens);
  announce->set_pages_total(in.pages_total);
  announce->set_max_context(in.max_context);
  announce->set_max_batch(in.max_batch);
}

absl::StatusOr<WorkerEvent> Decode(const wire::WorkerAnnounce& in) {
  RETURN_IF_ERROR(CheckPresent("announce.incarnation", in.incarnation() != 0));
  RETURN_IF_ERROR(CheckPresent("announce.transfer", in.has_transfer()));
  RETURN_IF_ERROR(CheckName("announce.name", in.name()));
  RETURN_IF_ERROR(CheckName("announce.numerics_id", in.numerics_id()));
  RETURN_IF_ERROR(CheckName("announce.layout_id", in.layout_id()));
  RETURN_IF_ERROR(
      CheckRange("announce.page_tokens", in.page_tokens(), 1, ControlLimits::kPageTokens));
  RETURN_IF_ERROR(CheckRange("announce.pages_total", in.pages_total(), 0, kMostCount));
  RETURN_IF_ERROR(
      CheckRange("announce.max_context", in.max_context(), 1, ControlLimits::kPromptTokens));
  RETURN_IF_ERROR(CheckRange("announce.max_batch", in.max_batch(), 0, kMostCount));
  WorkerAnnounce out{.incarnation = in.incarnation(), .name = in.name()};
  ASSIGN_OR_RETURN(out.role, DecodeRole(in.role()));
  ASSIGN_OR_RETURN(out.transfer, Decode(in.transfer()));
  out.model_fingerprint = in.model_fingerprint();
  out.numerics_id = in.numerics_id();
  out.layout_id = in.layout_id();
  out.page_tokens = in.page_tokens();
  out.pages_total = in.pages_total();
  out.max_context = in.max_context();
  out.max_batch = in.max_batch();
  return WorkerEvent(std::move(out));
}

void Encode(const WorkerLoad& in, wire::WorkerEvent* out) {
  wire::WorkerLoad* load = out->mutable_load();
  load->set_prefill_queued_tokens(in.prefill_queued_tokens);
  load->set_decode_rows(in.decode_rows);
  load->set_decode_waiting(in.decode_waiting);
  load->set_pages_free(in.pages_free);
  load->set_prefill_tokens_per_s(in.prefill_tokens_per_s);
  load->set_decode_step_ms(in.decode_step_ms);
  load->set_draining(in.draining);
}

absl::StatusOr<WorkerEvent> Decode(const wire::WorkerLoad& in) {
  RETURN_IF_ERROR(
      CheckRange("load.prefill_queued_tokens", in.prefill_queued_tokens(), 0, kMostCount));
  RETURN_IF_ERROR(CheckRange("load.decode_rows", in.decode_rows(), 0, kMostCount));
  RETURN_IF_ERROR(CheckRange("load.decode_waiting", in.decode_waiting(), 0, kMostCount));
  RETURN_IF_ERROR(CheckRange("load.pages_free", in.pages_free(), 0, kMostCount));
  RETURN_IF_ERROR(CheckFloat("load.prefill_tokens_per_s", in.prefill_tokens_per_s(), 0, 1e12f));
  RETURN_IF_ERROR(CheckFloat("load.decode_step_ms", in.decode_step_ms(), 0, 1e9f));
  return WorkerEvent(WorkerLoad{.prefill_queued_tokens = in.prefill_queued_tokens(),
                                .decode_rows = in.decode_rows(),
                                .decode_waiting = in.decode_waiting(),
                                .pages_free = in.pages_free(),
                                .prefill_tokens_per_s = in.prefill_tokens_per_s(),
                                .decode_step_ms = in.decode_step_ms(),
                                .draining = in.draining()});
}

void Encode(const TokenOut& in, wire::WorkerEvent* out) {
  wire::TokenOut* token = out->mutable_token();
  token->set_request_id(in.request_id);
  token->set_epoch(in.epoch);
  token->set_position(in.position);
  token->set_token(in.token);
  token->set_logprob(in.logprob);
  token->set_digest(in.digest);
}

absl::StatusOr<WorkerEvent> Decode(const wire::TokenOut& in) {
  RETURN_IF_ERROR(
      CheckRange("token.position", in.position(), 1, 2 * int64_t{ControlLimits::kPromptTokens}));
  RETURN_IF_ERROR(CheckRange("token.token", in.token(), 0, kMostCount));
  return WorkerEvent(TokenOut{.request_id = in.request_id(),
                              .epoch = in.epoch(),
                              .position = in.position(),
                              .token = in.token(),
                              .logprob = in.logprob(),
                              .digest = in.digest()});
}

void Encode(const PromptComputed& in, wire::WorkerEvent* out) {
  wire::PromptComputed* computed = out->mutable_prompt_computed();
  computed->set_request_id(in.request_id);
  computed->set_epoch(in.epoch);
  computed->set_queue_us(in.queue_us);
  computed->set_compute_us(in.compute_us);
}

absl::StatusOr<WorkerEvent> Decode(const wire::PromptComputed& in) {
  RETURN_IF_ERROR(CheckRange("prompt_computed.queue_us", in.queue_us(), 0, kMostMicroseconds));
  RETURN_IF_ERROR(CheckRange("prompt_computed.compute_us", in.compute_us(), 0, kMostMicroseconds));
  return WorkerEvent(PromptComputed{.request_id = in.request_id(),
                                    .epoch = in.epoch(),
                                    .queue_us = in.queue_us(),
                                    .compute_us = in.compute_us()});
}

void Encode(const PartEnded& in, wire::WorkerEvent* out) {
  wire::PartEnded* ended = out->mutable_part_ended();
  ended->set_request_id(in.request_id);
  ended->set_epoch(in.epoch);
  ended->set_was_prefill(in.was_prefill);
  ended->set_reason(WireReason(in.reason));
  ended->set_message(in.message.substr(0, ControlLimits::kReasonBytes));
  ended->set_queue_us(in.queue_us);
  ended->set_compute_us(in.compute_us);
  ended->set_transfer_us(in.transfer_us);
  ended->set_fault(WireFault(in.fault));
}

absl::StatusOr<WorkerEvent> Decode(const wire::PartEnded& in) {
  RETURN_IF_ERROR(
      CheckLength("part_ended.message", in.message().size(), ControlLimits::kReasonBytes));
  RETURN_IF_ERROR(CheckRange("part_ended.queue_us", in.queue_us(), 0, kMostMicroseconds));
  RETURN_IF_ERROR(CheckRange("part_ended.compute_us", in.compute_us(), 0, kMostMicroseconds));
  RETURN_IF_ERROR(CheckRange("part_ended.transfer_us", in.transfer_us(), 0, kMostMicroseconds));
  PartEnded out{
      .request_id = in.request_id(), .epoch = in.epoch(), .was_prefill = in.was_prefill()};
  ASSIGN_OR_RETURN(out.reason, DecodeReason(in.reason()));
  out.message = in.message();
  out.queue_us = in.queue_us();
  out.compute_us = in.compute_us();
  out.transfer_us = in.transfer_us();
  ASSIGN_OR_RETURN(out.fault, DecodeFault(in.fault()));
  return WorkerEvent(std::move(out));
}

void Encode(const NoRoomNotice& in, wire::WorkerEvent* out) {
  wire::NoRoomNotice* notice = out->mutable_no_room();
  notice->set_request_id(in.request_id);
  notice->set_epoch(in.epoch);
  notice->set_expected_wait_us(in.expected_wait_us);
}

absl::StatusOr<WorkerEvent> Decode(const wire::NoRoomNotice& in) {
  RETURN_IF_ERROR(
      CheckRange("no_room.expected_wait_us", in.expected_wait_us(), 0, kMostMicroseconds));
  return WorkerEvent(NoRoomNotice{.request_id = in.request_id(),
                                  .epoch = in.epoch(),
                                  .expected_wait_us = in.expected_wait_us()});
}

absl::StatusOr<WorkerEvent> Decode(const wire::WorkerEvent& in) {
  switch (in.kind_case()) {
    case wire::WorkerEvent::kAnnounce:
      return Decode(in.announce());
    case wire::WorkerEvent::kLoad:
      return Decode(in.load());
    case wire::WorkerEvent::kToken:
      return Decode(in.token());
    case wire::WorkerEvent::kPromptComputed:
      return Decode(in.prompt_computed());
    case wire::WorkerEvent::kPartEnded:
      return Decode(in.part_ended());
    case wire::WorkerEvent::kNoRoom:
      return Decode(in.no_room());
    case wire::WorkerEvent::KIND_NOT_SET:
      break;
  }
  return absl::InvalidArgumentError(
      "worker event of an unknown kind: run the same version of baton everywhere");
}

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
  for (const WorkerEvent& event : report.events)
    std::visit([out](const auto& value) { Encode(value, out->add_events()); }, event);
}

absl::StatusOr<WorkerReport> DecodeReport(const wire::WorkerReport& in) {
  RETURN_IF_ERROR(CheckLength("report.events", in.events_size(), ControlLimits::kEventsPerReport));
  WorkerReport report;
  report.events.reserve(in.events_size());
  for (const wire::WorkerEvent& event : in.events()) {
    ASSIGN_OR_RETURN(report.events.emplace_back(), Decode(event));
  }
  return report;
}

void EncodeMessages(std::span<const RouterMessage> messages, wire::RouterMessages* out) {
  out->Clear();
  for (const RouterMessage& message : messages)
    std::visit([out](const auto& value) { Encode(value, out->add_messages()); }, message);
}

absl::StatusOr<std::vector<RouterMessage>> DecodeMessages(const wire::RouterMessages& in) {
  RETURN_IF_ERROR(CheckLength("messages", in.messages_size(), ControlLimits::kMessagesPerBatch));
  std::vector<RouterMessage> messages;
  messages.reserve(in.messages_size());
  for (const wire::RouterMessage& message : in.messages()) {
    ASSIGN_OR_RETURN(messages.emplace_back(), Decode(message));
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
