#include "proto/worker_event_codec.h"

#include <utility>
#include <variant>

#include "absl/strings/str_format.h"
#include "common/request_limits.h"
#include "control.pb.h"
#include "proto/control_codec.h"
#include "proto/control_fields.h"

namespace baton {
namespace {

constexpr int64_t kMaxMicroseconds = int64_t{1} << 50;  // 35 years
constexpr int64_t kMaxLayers = 1 << 16;
// Bounds that keep predictions from a fit finite and positive.
constexpr double kMinTokenSeconds = 1e-15, kMaxSeconds = 1e6, kMaxPairs = 1e18;
constexpr double kMaxRate = 1e15;  // bytes per second
constexpr double kMaxCpuShare = 1e6;

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

constexpr std::pair<PartFault, wire::PartFault> kFaults[] = {
    {PartFault::kOwn, wire::PART_FAULT_OWN},
    {PartFault::kHandoff, wire::PART_FAULT_HANDOFF},
    {PartFault::kPeer, wire::PART_FAULT_PEER},
    {PartFault::kPages, wire::PART_FAULT_PAGES},
    {PartFault::kDraining, wire::PART_FAULT_DRAINING},
    {PartFault::kUnreadable, wire::PART_FAULT_UNREADABLE},
    {PartFault::kGrammar, wire::PART_FAULT_GRAMMAR}};

wire::PartFault WireFault(PartFault fault) {
  for (const auto& [ours, wires] : kFaults)
    if (ours == fault) return wires;
  return wire::PART_FAULT_OWN;
}

absl::StatusOr<PartFault> DecodeFault(int fault) {
  for (const auto& [ours, wires] : kFaults)
    if (wires == fault) return ours;
  return absl::InvalidArgumentError(absl::StrFormat("part_ended.fault %d is unknown", fault));
}

void Encode(const WorkerAnnounce& in, wire::WorkerEvent* out) {
  wire::WorkerAnnounce* announce = out->mutable_announce();
  announce->set_incarnation(in.incarnation);
  announce->set_name(in.name);
  announce->set_role(WireRole(in.role));
  EncodePeer(in.transfer, announce->mutable_transfer());
  announce->set_model_fingerprint(in.model_fingerprint);
  announce->set_numerics_id(in.numerics_id);
  announce->set_layout_id(in.layout_id);
  announce->set_page_tokens(in.page_tokens);
  announce->set_pages_total(in.pages_total);
  announce->set_max_context(in.max_context);
  announce->set_max_batch(in.max_batch);
  announce->set_n_layers(in.n_layers);
  announce->set_kv_token_bytes(in.kv_token_bytes);
  announce->set_max_slice_tokens(in.max_slice_tokens);
  announce->set_link_bytes_per_second(in.link_bytes_per_second);
  announce->set_reuses_kv(in.reuses_kv);
  announce->set_cpu_group(in.cpu_group);
  announce->set_cpu_share(in.cpu_share);
  announce->set_wire_version(kControlVersion);
}

absl::StatusOr<WorkerEvent> Decode(const wire::WorkerAnnounce& in) {
  if (in.wire_version() != kControlVersion)
    return absl::InvalidArgumentError(absl::StrFormat(
        "announce.wire_version is %d, this router speaks %d: run the same version of baton "
        "everywhere",
        in.wire_version(), kControlVersion));
  RETURN_IF_ERROR(CheckPresent("announce.incarnation", in.incarnation() != 0));
  RETURN_IF_ERROR(CheckPresent("announce.transfer", in.has_transfer()));
  RETURN_IF_ERROR(CheckName("announce.name", in.name()));
  RETURN_IF_ERROR(CheckName("announce.numerics_id", in.numerics_id()));
  RETURN_IF_ERROR(CheckName("announce.layout_id", in.layout_id()));
  RETURN_IF_ERROR(
      CheckRange("announce.page_tokens", in.page_tokens(), 1, ControlLimits::kPageTokens));
  RETURN_IF_ERROR(CheckRange("announce.pages_total", in.pages_total(), 0, kMaxCount));
  RETURN_IF_ERROR(
      CheckRange("announce.max_context", in.max_context(), 1, RequestLimits::kContextTokens));
  RETURN_IF_ERROR(CheckRange("announce.max_batch", in.max_batch(), 0, kMaxCount));
  RETURN_IF_ERROR(CheckRange("announce.n_layers", in.n_layers(), 1, kMaxLayers));
  RETURN_IF_ERROR(CheckRange("announce.kv_token_bytes", in.kv_token_bytes(), 1, kMaxCount));
  RETURN_IF_ERROR(CheckRange("announce.max_slice_tokens", in.max_slice_tokens(), 0, kMaxCount));
  RETURN_IF_ERROR(
      CheckFloat("announce.link_bytes_per_second", in.link_bytes_per_second(), 0, kMaxRate));
  WorkerAnnounce out{.incarnation = in.incarnation(), .name = in.name()};
  ASSIGN_OR_RETURN(out.role, DecodeRole(in.role()));
  ASSIGN_OR_RETURN(out.transfer, DecodePeer(in.transfer()));
  out.model_fingerprint = in.model_fingerprint();
  out.numerics_id = in.numerics_id();
  out.layout_id = in.layout_id();
  out.page_tokens = in.page_tokens();
  out.pages_total = in.pages_total();
  out.max_context = in.max_context();
  out.max_batch = in.max_batch();
  out.n_layers = in.n_layers();
  out.kv_token_bytes = in.kv_token_bytes();
  out.max_slice_tokens = in.max_slice_tokens();
  out.link_bytes_per_second = in.link_bytes_per_second();
  out.reuses_kv = in.reuses_kv();
  RETURN_IF_ERROR(CheckFloat("announce.cpu_share", in.cpu_share(), 0, kMaxCpuShare));
  out.cpu_group = in.cpu_group();
  out.cpu_share = in.cpu_share();
  return WorkerEvent(std::move(out));
}

void Encode(const PrefillFit& in, wire::PrefillFit* out) {
  out->set_token(in.token);
  out->set_pair(in.pair);
  out->set_floor(in.floor);
  out->set_error(in.error);
  out->set_n_seen(in.n_seen);
  out->set_n_tokens(in.n_tokens);
}

absl::StatusOr<PrefillFit> Decode(const wire::PrefillFit& in) {
  RETURN_IF_ERROR(CheckRange("load.prefill_fit.n_seen", in.n_seen(), 0, kMaxCount));
  RETURN_IF_ERROR(CheckRange("load.prefill_fit.n_tokens", in.n_tokens(), 0, kMaxCount));
  const double min_token = in.n_seen() > 0 ? kMinTokenSeconds : 0;
  RETURN_IF_ERROR(CheckFloat("load.prefill_fit.token", in.token(), min_token, kMaxSeconds));
  RETURN_IF_ERROR(CheckFloat("load.prefill_fit.pair", in.pair(), 0, kMaxSeconds));
  RETURN_IF_ERROR(CheckFloat("load.prefill_fit.floor", in.floor(), 0, kMaxSeconds));
  RETURN_IF_ERROR(CheckFloat("load.prefill_fit.error", in.error(), 0, kMaxSeconds));
  return PrefillFit{.token = in.token(),
                    .pair = in.pair(),
                    .floor = in.floor(),
                    .error = in.error(),
                    .n_seen = in.n_seen(),
                    .n_tokens = in.n_tokens()};
}

void Encode(const LinkRate& in, wire::LinkRate* out) {
  out->set_peer(in.peer);
  out->set_bytes_per_second(in.bytes_per_second);
  out->set_round_trip_us(in.round_trip_us);
}

absl::StatusOr<LinkRate> Decode(const wire::LinkRate& in) {
  RETURN_IF_ERROR(CheckFloat("load.links.bytes_per_second", in.bytes_per_second(), 1, kMaxRate));
  RETURN_IF_ERROR(CheckRange("load.links.round_trip_us", in.round_trip_us(), 0, kMaxMicroseconds));
  return LinkRate{.peer = in.peer(),
                  .bytes_per_second = in.bytes_per_second(),
                  .round_trip_us = in.round_trip_us()};
}

void Encode(const WorkerLoad& in, wire::WorkerEvent* out) {
  wire::WorkerLoad* load = out->mutable_load();
  load->set_prefill_queued_tokens(in.prefill_queued_tokens);
  load->set_decode_rows(in.decode_rows);
  load->set_decode_waiting(in.decode_waiting);
  load->set_pages_free(in.pages_free);
  load->set_prefill_queued_pairs(in.prefill_queued_pairs);
  for (const LinkRate& link : in.links) Encode(link, load->add_links());
  if (in.prefill_fit.n_seen > 0) Encode(in.prefill_fit, load->mutable_prefill_fit());
  load->set_decode_step_ms(in.decode_step_ms);
  load->set_draining(in.draining);
}

absl::StatusOr<WorkerEvent> Decode(const wire::WorkerLoad& in) {
  RETURN_IF_ERROR(
      CheckRange("load.prefill_queued_tokens", in.prefill_queued_tokens(), 0, kMaxCount));
  RETURN_IF_ERROR(CheckRange("load.decode_rows", in.decode_rows(), 0, kMaxCount));
  RETURN_IF_ERROR(CheckRange("load.decode_waiting", in.decode_waiting(), 0, kMaxCount));
  RETURN_IF_ERROR(CheckRange("load.pages_free", in.pages_free(), 0, kMaxCount));
  RETURN_IF_ERROR(CheckFloat("load.prefill_queued_pairs", in.prefill_queued_pairs(), 0, kMaxPairs));
  RETURN_IF_ERROR(CheckFloat("load.decode_step_ms", in.decode_step_ms(), 0, 1e9f));
  WorkerLoad out{.prefill_queued_tokens = in.prefill_queued_tokens(),
                 .prefill_queued_pairs = in.prefill_queued_pairs(),
                 .decode_rows = in.decode_rows(),
                 .decode_waiting = in.decode_waiting(),
                 .pages_free = in.pages_free(),
                 .decode_step_ms = in.decode_step_ms(),
                 .draining = in.draining()};
  ASSIGN_OR_RETURN(out.prefill_fit, Decode(in.prefill_fit()));
  RETURN_IF_ERROR(CheckLength("load.links", in.links_size(), ControlLimits::kLinks));
  for (const wire::LinkRate& link : in.links()) {
    ASSIGN_OR_RETURN(out.links.emplace_back(), Decode(link));
  }
  return WorkerEvent(std::move(out));
}

void Encode(const TokenOut& in, wire::WorkerEvent* out) {
  wire::TokenOut* token = out->mutable_token();
  token->set_request_id(in.request_id);
  token->set_epoch(in.epoch);
  token->set_position(in.position);
  token->set_token(in.token);
  token->set_logprob(in.logprob);
  token->set_digest(in.digest);
  for (const TokenLogprob& entry : in.logprobs) {
    token->add_logprob_tokens(entry.token);
    token->add_logprobs(entry.logprob);
  }
}

absl::StatusOr<WorkerEvent> Decode(const wire::TokenOut& in) {
  RETURN_IF_ERROR(CheckRange("token.position", in.position(), 1, RequestLimits::kContextTokens));
  RETURN_IF_ERROR(CheckRange("token.token", in.token(), 0, kMaxCount));
  RETURN_IF_ERROR(
      CheckField("token.logprobs count", in.logprobs_size(), RequestLimits::kTokenLogprobs));
  RETURN_IF_ERROR(CheckRange("token.logprob_tokens count", in.logprob_tokens_size(),
                             in.logprobs_size(), in.logprobs_size()));
  RETURN_IF_ERROR(CheckTokens("token.logprob_tokens",
                              {in.logprob_tokens().data(), size_t(in.logprob_tokens_size())}));
  TokenOut out{.request_id = in.request_id(),
               .epoch = in.epoch(),
               .position = in.position(),
               .token = in.token(),
               .logprob = in.logprob(),
               .digest = in.digest()};
  out.logprobs.reserve(static_cast<size_t>(in.logprobs_size()));
  for (int i = 0; i < in.logprobs_size(); ++i)
    out.logprobs.push_back({in.logprob_tokens(i), in.logprobs(i)});
  return WorkerEvent(std::move(out));
}

void Encode(const PromptComputed& in, wire::WorkerEvent* out) {
  wire::PromptComputed* computed = out->mutable_prompt_computed();
  computed->set_request_id(in.request_id);
  computed->set_epoch(in.epoch);
  computed->set_queue_us(in.queue_us);
  computed->set_compute_us(in.compute_us);
  computed->set_reused_tokens(in.reused_tokens);
}

absl::StatusOr<WorkerEvent> Decode(const wire::PromptComputed& in) {
  RETURN_IF_ERROR(CheckRange("prompt_computed.queue_us", in.queue_us(), 0, kMaxMicroseconds));
  RETURN_IF_ERROR(CheckRange("prompt_computed.compute_us", in.compute_us(), 0, kMaxMicroseconds));
  RETURN_IF_ERROR(CheckRange("prompt_computed.reused_tokens", in.reused_tokens(), 0, kMaxCount));
  return WorkerEvent(PromptComputed{.request_id = in.request_id(),
                                    .epoch = in.epoch(),
                                    .queue_us = in.queue_us(),
                                    .compute_us = in.compute_us(),
                                    .reused_tokens = in.reused_tokens()});
}

void Encode(const PromptLogprobs& in, wire::WorkerEvent* out) {
  wire::PromptLogprobs* scored = out->mutable_prompt_logprobs();
  scored->set_request_id(in.request_id);
  scored->set_epoch(in.epoch);
  scored->set_position(in.position);
  for (const PromptLogprob& token : in.tokens) {
    scored->add_logprobs(token.logprob);
    scored->add_ranks(token.rank);
    for (const TokenLogprob& entry : token.top) {
      scored->add_top_tokens(entry.token);
      scored->add_top_logprobs(entry.logprob);
    }
  }
}

absl::StatusOr<WorkerEvent> Decode(const wire::PromptLogprobs& in) {
  const int n = in.logprobs_size(), n_top = in.top_tokens_size();
  RETURN_IF_ERROR(
      CheckRange("prompt_logprobs.position", in.position(), 1, RequestLimits::kContextTokens));
  RETURN_IF_ERROR(CheckRange("prompt_logprobs.logprobs count", n, 1, PromptLogprobs::kMaxTokens));
  RETURN_IF_ERROR(CheckRange("prompt_logprobs.ranks count", in.ranks_size(), n, n));
  RETURN_IF_ERROR(
      CheckRange("prompt_logprobs.top_logprobs count", in.top_logprobs_size(), n_top, n_top));
  RETURN_IF_ERROR(CheckRange("prompt_logprobs.top_tokens, left over of a division among the tokens",
                             n_top % n, 0, 0));
  RETURN_IF_ERROR(
      CheckField("prompt_logprobs.top_tokens of a token", n_top / n, RequestLimits::kTopLogprobs));
  RETURN_IF_ERROR(
      CheckTokens("prompt_logprobs.top_tokens", {in.top_tokens().data(), size_t(n_top)}));
  PromptLogprobs out{.request_id = in.request_id(), .epoch = in.epoch(), .position = in.position()};
  out.tokens.reserve(static_cast<size_t>(n));
  for (int i = 0, at = 0; i < n; ++i) {
    RETURN_IF_ERROR(CheckRange("prompt_logprobs.ranks", in.ranks(i), 1, kMaxCount));
    PromptLogprob& token = out.tokens.emplace_back();
    token.logprob = in.logprobs(i);
    token.rank = in.ranks(i);
    token.top.reserve(static_cast<size_t>(n_top / n));
    for (; at < (i + 1) * (n_top / n); ++at)
      token.top.push_back({in.top_tokens(at), in.top_logprobs(at)});
  }
  return WorkerEvent(std::move(out));
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
  ended->set_ticket_id_high(in.ticket_id.high);
  ended->set_ticket_id_low(in.ticket_id.low);
  ended->set_recomputed_tokens(in.recomputed_tokens);
  ended->set_reused_tokens(in.reused_tokens);
}

absl::StatusOr<WorkerEvent> Decode(const wire::PartEnded& in) {
  RETURN_IF_ERROR(
      CheckLength("part_ended.message", in.message().size(), ControlLimits::kReasonBytes));
  RETURN_IF_ERROR(CheckRange("part_ended.queue_us", in.queue_us(), 0, kMaxMicroseconds));
  RETURN_IF_ERROR(CheckRange("part_ended.compute_us", in.compute_us(), 0, kMaxMicroseconds));
  RETURN_IF_ERROR(CheckRange("part_ended.transfer_us", in.transfer_us(), 0, kMaxMicroseconds));
  PartEnded out{
      .request_id = in.request_id(), .epoch = in.epoch(), .was_prefill = in.was_prefill()};
  ASSIGN_OR_RETURN(out.reason, DecodeReason(in.reason()));
  out.message = in.message();
  out.queue_us = in.queue_us();
  out.compute_us = in.compute_us();
  out.transfer_us = in.transfer_us();
  ASSIGN_OR_RETURN(out.fault, DecodeFault(in.fault()));
  out.ticket_id = {.high = in.ticket_id_high(), .low = in.ticket_id_low()};
  RETURN_IF_ERROR(CheckRange("part_ended.recomputed_tokens", in.recomputed_tokens(), 0,
                             RequestLimits::kContextTokens));
  out.recomputed_tokens = in.recomputed_tokens();
  RETURN_IF_ERROR(
      CheckRange("part_ended.reused_tokens", in.reused_tokens(), 0, RequestLimits::kContextTokens));
  out.reused_tokens = in.reused_tokens();
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
      CheckRange("no_room.expected_wait_us", in.expected_wait_us(), 0, kMaxMicroseconds));
  return WorkerEvent(NoRoomNotice{.request_id = in.request_id(),
                                  .epoch = in.epoch(),
                                  .expected_wait_us = in.expected_wait_us()});
}

}  // namespace

void EncodeEvent(const WorkerEvent& in, wire::WorkerEvent* out) {
  std::visit([out](const auto& value) { Encode(value, out); }, in);
}

absl::StatusOr<WorkerEvent> DecodeEvent(const wire::WorkerEvent& in) {
  switch (in.kind_case()) {
    case wire::WorkerEvent::kAnnounce:
      return Decode(in.announce());
    case wire::WorkerEvent::kLoad:
      return Decode(in.load());
    case wire::WorkerEvent::kToken:
      return Decode(in.token());
    case wire::WorkerEvent::kPromptComputed:
      return Decode(in.prompt_computed());
    case wire::WorkerEvent::kPromptLogprobs:
      return Decode(in.prompt_logprobs());
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

}  // namespace baton
