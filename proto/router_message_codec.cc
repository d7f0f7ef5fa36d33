#include "proto/router_message_codec.h"

#include <algorithm>
#include <span>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/request_limits.h"
#include "control.pb.h"
#include "proto/control_codec.h"
#include "proto/control_fields.h"

namespace baton {
namespace {

using Tokens = google::protobuf::RepeatedField<int32_t>;

void Encode(const SamplingParams& in, wire::SamplingParams* out) {
  out->set_temperature(in.temperature);
  out->set_top_k(in.top_k);
  out->set_top_p(in.top_p);
  out->set_seed(in.seed);
  out->set_min_p(in.min_p);
  out->set_presence_penalty(in.presence_penalty);
  out->set_frequency_penalty(in.frequency_penalty);
  out->set_repetition_penalty(in.repetition_penalty);
  out->set_min_tokens(in.min_tokens);
  for (const LogitBias& entry : in.logit_bias) {
    out->add_bias_tokens(entry.token);
    out->add_biases(entry.bias);
  }
  out->mutable_allowed_tokens()->Add(in.allowed_tokens.begin(), in.allowed_tokens.end());
  for (const std::vector<int32_t>& word : in.bad_words)
    out->add_bad_words()->mutable_tokens()->Add(word.begin(), word.end());
  out->set_vocab_end(in.vocab_end);
  out->set_top_logprobs(in.top_logprobs);
  out->mutable_logprob_tokens()->Add(in.logprob_tokens.begin(), in.logprob_tokens.end());
  out->set_grammar_kind(static_cast<int32_t>(in.grammar.kind));
  out->set_grammar_text(in.grammar.text);
  out->set_reasoning_tokens(in.reasoning.max_tokens);
  out->set_reasoning_begin(in.reasoning.begin);
  out->set_reasoning_end(in.reasoning.end);
}

absl::StatusOr<SamplingParams> Decode(const wire::SamplingParams& in) {
  RETURN_IF_ERROR(CheckRange("sampling.biases count", in.biases_size(), in.bias_tokens_size(),
                             in.bias_tokens_size()));
  SamplingParams out{.temperature = in.temperature(),
                     .top_k = in.top_k(),
                     .top_p = in.top_p(),
                     .min_p = in.min_p(),
                     .seed = in.seed(),
                     .presence_penalty = in.presence_penalty(),
                     .frequency_penalty = in.frequency_penalty(),
                     .repetition_penalty = in.repetition_penalty(),
                     .min_tokens = in.min_tokens()};
  for (int i = 0; i < in.biases_size(); ++i)
    out.logit_bias.push_back({in.bias_tokens(i), in.biases(i)});
  out.allowed_tokens.assign(in.allowed_tokens().begin(), in.allowed_tokens().end());
  for (const wire::BadWord& word : in.bad_words())
    out.bad_words.emplace_back(word.tokens().begin(), word.tokens().end());
  out.vocab_end = in.vocab_end();
  out.top_logprobs = in.top_logprobs();
  out.logprob_tokens.assign(in.logprob_tokens().begin(), in.logprob_tokens().end());
  out.grammar = {static_cast<GrammarKind>(in.grammar_kind()), in.grammar_text()};
  out.reasoning = {in.reasoning_tokens(), in.reasoning_begin(), in.reasoning_end()};
  if (const absl::Status status = CheckSampling(out); !status.ok())
    return absl::InvalidArgumentError(absl::StrCat("sampling.", status.message()));
  return out;
}

std::span<const int32_t> SpanOf(const Tokens& tokens) {
  return {tokens.data(), static_cast<size_t>(tokens.size())};
}

absl::Status CheckStopTokens(const char* field, const Tokens& tokens) {
  RETURN_IF_ERROR(CheckField(field, tokens.size(), RequestLimits::kStopTokens));
  return CheckTokens(field, SpanOf(tokens));
}

void Encode(const Ticket& in, wire::Ticket* out) {
  out->set_id_high(in.id.high);
  out->set_id_low(in.id.low);
  out->set_epoch(in.epoch);
  out->set_request_id(in.request_id);
  out->set_sink(in.sink);
  out->set_kv_pages(in.kv_pages);
  out->set_promise_pages(in.promise_pages);
  out->set_promise_high(in.promise.high);
  out->set_promise_low(in.promise.low);
  out->set_first_page(in.first_page);
  out->set_n_pages(in.n_pages);
  out->set_mac(in.mac.data(), in.mac.size());
}

absl::StatusOr<Ticket> Decode(const wire::Ticket& in) {
  RETURN_IF_ERROR(CheckRange("ticket.kv_pages", in.kv_pages(), 0, kMaxCount));
  RETURN_IF_ERROR(CheckRange("ticket.first_page", in.first_page(), 0, in.kv_pages()));
  RETURN_IF_ERROR(CheckRange("ticket.n_pages", in.n_pages(), 0, in.kv_pages() - in.first_page()));
  Ticket out{.id = {.high = in.id_high(), .low = in.id_low()},
             .epoch = in.epoch(),
             .request_id = in.request_id(),
             .sink = in.sink(),
             .promise = {.high = in.promise_high(), .low = in.promise_low()},
             .kv_pages = in.kv_pages(),
             .promise_pages = in.promise_pages(),
             .first_page = in.first_page(),
             .n_pages = in.n_pages()};
  if (in.mac().size() != out.mac.size())
    return absl::InvalidArgumentError(
        absl::StrFormat("ticket.mac has %d bytes, must have %d", in.mac().size(), out.mac.size()));
  std::copy(in.mac().begin(), in.mac().end(), out.mac.begin());
  return out;
}

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

void Encode(const Push& in, wire::Push* out) {
  Encode(in.ticket, out->mutable_ticket());
  EncodePeer(in.sink, out->mutable_sink());
}

absl::StatusOr<Push> Decode(const wire::Push& in) {
  RETURN_IF_ERROR(CheckPresent("prefill.push.ticket", in.has_ticket()));
  RETURN_IF_ERROR(CheckPresent("prefill.push.sink", in.has_sink()));
  RETURN_IF_ERROR(CheckRange("prefill.push.ticket.n_pages", in.ticket().n_pages(), 1, kMaxCount));
  Push out;
  ASSIGN_OR_RETURN(out.ticket, Decode(in.ticket()));
  ASSIGN_OR_RETURN(out.sink, DecodePeer(in.sink()));
  return out;
}

// A ticket for another rank promises nothing: the pages belong to that rank.
absl::Status CheckHeadTicket(const wire::Ticket& ticket) {
  RETURN_IF_ERROR(CheckRange("ticket.kv_pages of a head", ticket.kv_pages(), 1, kMaxCount));
  return CheckRange("ticket.promise_pages of a head", ticket.promise_pages(), 0, 0);
}

// Other tickets promise at least the pages that the handoff fills.
absl::Status CheckPromise(const wire::PrefillRequest& in) {
  if (in.is_head()) return CheckHeadTicket(in.ticket());
  return CheckRange("ticket.promise_pages", in.ticket().promise_pages(), in.ticket().kv_pages(),
                    kMaxCount);
}

void Encode(const RelayRound& in, wire::RelayRound* out) {
  out->set_tokens(in.tokens);
  if (in.inflow.tokens > 0) Encode(in.inflow, out->mutable_inflow());
  if (in.ticket.kv_pages > 0) {
    Encode(in.ticket, out->mutable_ticket());
    EncodePeer(in.sink, out->mutable_sink());
  }
  if (in.push.ticket.n_pages > 0) Encode(in.push, out->mutable_push());
}

absl::StatusOr<RelayRound> Decode(const wire::RelayRound& in, int n_tokens) {
  RETURN_IF_ERROR(CheckRange("prefill.earlier.tokens", in.tokens(), 1, n_tokens - 1));
  RelayRound out{.tokens = in.tokens()};
  ASSIGN_OR_RETURN(out.inflow, Decode(in.inflow(), n_tokens));
  if (in.has_ticket() || in.has_sink()) {
    RETURN_IF_ERROR(CheckPresent("prefill.earlier.ticket", in.has_ticket()));
    RETURN_IF_ERROR(CheckPresent("prefill.earlier.sink", in.has_sink()));
    RETURN_IF_ERROR(CheckHeadTicket(in.ticket()));
    ASSIGN_OR_RETURN(out.ticket, Decode(in.ticket()));
    ASSIGN_OR_RETURN(out.sink, DecodePeer(in.sink()));
  }
  if (in.has_push()) {
    ASSIGN_OR_RETURN(out.push, Decode(in.push()));
  }
  return out;
}

void Encode(const PrefillRequest& in, wire::RouterMessage* out) {
  wire::PrefillRequest* prefill = out->mutable_prefill();
  prefill->set_request_id(in.request_id);
  prefill->set_epoch(in.epoch);
  Encode(in.ticket, prefill->mutable_ticket());
  EncodePeer(in.sink, prefill->mutable_sink());
  prefill->mutable_tokens()->Add(in.tokens.begin(), in.tokens.end());
  Encode(in.sampling, prefill->mutable_sampling());
  prefill->set_want_digests(in.want_digests);
  prefill->set_prompt_logprobs(in.prompt_logprobs);
  prefill->set_cache_salt(in.cache_salt);
  prefill->set_max_total_tokens(in.max_total_tokens);
  if (in.inflow.tokens > 0) Encode(in.inflow, prefill->mutable_inflow());
  prefill->set_is_head(in.is_head);
  if (in.push.ticket.n_pages > 0) Encode(in.push, prefill->mutable_push());
  prefill->set_pages_at_once(in.pages_at_once);
  for (const RelayRound& round : in.earlier) Encode(round, prefill->add_earlier());
  prefill->set_n_generated(in.n_generated);
  prefill->mutable_stop_tokens()->Add(in.stop_tokens.begin(), in.stop_tokens.end());
}

absl::StatusOr<RouterMessage> Decode(const wire::PrefillRequest& in) {
  RETURN_IF_ERROR(CheckPresent("prefill.ticket", in.has_ticket()));
  RETURN_IF_ERROR(CheckPresent("prefill.sink", in.has_sink()));
  RETURN_IF_ERROR(CheckPresent("prefill.sampling", in.has_sampling()));
  RETURN_IF_ERROR(
      CheckField("prefill.tokens count", in.tokens_size(), RequestLimits::kPromptTokens));
  RETURN_IF_ERROR(CheckTokens("prefill.tokens", SpanOf(in.tokens())));
  RETURN_IF_ERROR(CheckRange("prefill.n_generated", in.n_generated(), 0, in.tokens_size() - 1));
  RETURN_IF_ERROR(CheckStopTokens("prefill.stop_tokens", in.stop_tokens()));
  RETURN_IF_ERROR(
      CheckField("prefill.prompt_logprobs", in.prompt_logprobs(), RequestLimits::kPromptLogprobs));
  RETURN_IF_ERROR(CheckPromise(in));
  PrefillRequest out{.request_id = in.request_id(), .epoch = in.epoch()};
  ASSIGN_OR_RETURN(out.ticket, Decode(in.ticket()));
  ASSIGN_OR_RETURN(out.sink, DecodePeer(in.sink()));
  ASSIGN_OR_RETURN(out.sampling, Decode(in.sampling()));
  out.tokens.assign(in.tokens().begin(), in.tokens().end());
  out.n_generated = in.n_generated();
  out.stop_tokens.assign(in.stop_tokens().begin(), in.stop_tokens().end());
  out.want_digests = in.want_digests();
  out.prompt_logprobs = in.prompt_logprobs();
  out.cache_salt = in.cache_salt();
  RETURN_IF_ERROR(CheckRange("prefill.max_total_tokens", in.max_total_tokens(), 0,
                             RequestLimits::kContextTokens));
  out.max_total_tokens = in.max_total_tokens();
  ASSIGN_OR_RETURN(out.inflow, Decode(in.inflow(), in.tokens_size()));
  out.is_head = in.is_head();
  out.pages_at_once = in.pages_at_once();
  if (in.has_push()) {
    ASSIGN_OR_RETURN(out.push, Decode(in.push()));
  }
  RETURN_IF_ERROR(CheckLength("prefill.earlier", in.earlier_size(), ControlLimits::kRelayRounds));
  for (const wire::RelayRound& earlier : in.earlier()) {
    ASSIGN_OR_RETURN(RelayRound round, Decode(earlier, in.tokens_size()));
    out.earlier.push_back(std::move(round));
  }
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
  decode->set_n_generated(in.n_generated);
  decode->mutable_history()->Add(in.history.begin(), in.history.end());
}

absl::StatusOr<RouterMessage> Decode(const wire::DecodeRequest& in) {
  RETURN_IF_ERROR(CheckPresent("decode.sampling", in.has_sampling()));
  RETURN_IF_ERROR(CheckField("decode.n_prompt", in.n_prompt(), RequestLimits::kPromptTokens));
  RETURN_IF_ERROR(CheckField("decode.max_tokens", in.max_tokens(), RequestLimits::kMaxTokens));
  RETURN_IF_ERROR(CheckStopTokens("decode.stop_tokens", in.stop_tokens()));
  RETURN_IF_ERROR(CheckRange("decode.n_generated", in.n_generated(), 0, in.n_prompt() - 1));
  DecodeRequest out{.request_id = in.request_id(),
                    .epoch = in.epoch(),
                    .ticket_id = {.high = in.ticket_id_high(), .low = in.ticket_id_low()},
                    .n_prompt = in.n_prompt(),
                    .max_tokens = in.max_tokens(),
                    .n_generated = in.n_generated()};
  ASSIGN_OR_RETURN(out.sampling, Decode(in.sampling()));
  const int n_history =
      NeedsHistory(out.sampling, out.n_generated) || in.history_size() > 0 ? in.n_prompt() : 0;
  RETURN_IF_ERROR(CheckRange("decode.history count", in.history_size(), n_history, n_history));
  RETURN_IF_ERROR(CheckTokens("decode.history", SpanOf(in.history())));
  out.history.assign(in.history().begin(), in.history().end());
  out.stop_tokens.assign(in.stop_tokens().begin(), in.stop_tokens().end());
  out.want_digests = in.want_digests();
  return RouterMessage(std::move(out));
}

void Encode(const CancelRequest& in, wire::RouterMessage* out) {
  out->mutable_cancel()->set_request_id(in.request_id);
  out->mutable_cancel()->set_epoch(in.epoch);
}

void Encode(const DrainWorker&, wire::RouterMessage* out) { out->mutable_drain(); }

}  // namespace

void EncodeMessage(const RouterMessage& in, wire::RouterMessage* out) {
  std::visit([out](const auto& value) { Encode(value, out); }, in);
}

absl::StatusOr<RouterMessage> DecodeMessage(const wire::RouterMessage& in) {
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

}  // namespace baton
