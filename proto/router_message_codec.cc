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
  RETURN_IF_ERROR(CheckRange("ticket.n_pages", in.n_pages(), 1, in.kv_pages() - in.first_page()));
  // Promised are pages for all KV; or none, where the receiver names pages of its own.
  if (in.promise_pages() != 0)
    RETURN_IF_ERROR(
        CheckRange("ticket.promise_pages", in.promise_pages(), in.kv_pages(), kMaxCount));
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

void Encode(const SliceSpec& in, wire::SliceSpec* out) {
  out->set_begin(in.begin);
  out->set_end(in.end);
  out->set_inflow_high(in.inflow.high);
  out->set_inflow_low(in.inflow.low);
  for (const KvOutput& output : in.outputs) {
    wire::KvOutput* added = out->add_outputs();
    Encode(output.ticket, added->mutable_ticket());
    EncodePeer(output.peer, added->mutable_peer());
    added->set_first_page(output.first_page);
  }
}

absl::StatusOr<SliceSpec> Decode(const wire::SliceSpec& in, int n_tokens) {
  RETURN_IF_ERROR(CheckRange("prefill.slices.end", in.end(), 1, n_tokens));
  RETURN_IF_ERROR(CheckRange("prefill.slices.begin", in.begin(), 0, in.end() - 1));
  RETURN_IF_ERROR(
      CheckLength("prefill.slices.outputs", in.outputs_size(), ControlLimits::kSliceOutputs));
  SliceSpec out{.begin = in.begin(),
                .end = in.end(),
                .inflow = {.high = in.inflow_high(), .low = in.inflow_low()}};
  for (const wire::KvOutput& output : in.outputs()) {
    RETURN_IF_ERROR(CheckPresent("prefill.slices.outputs.ticket", output.has_ticket()));
    RETURN_IF_ERROR(CheckPresent("prefill.slices.outputs.peer", output.has_peer()));
    RETURN_IF_ERROR(
        CheckRange("prefill.slices.outputs.first_page", output.first_page(), 0, in.end()));
    KvOutput& added = out.outputs.emplace_back(KvOutput{.first_page = output.first_page()});
    ASSIGN_OR_RETURN(added.ticket, Decode(output.ticket()));
    ASSIGN_OR_RETURN(added.peer, DecodePeer(output.peer()));
  }
  return out;
}

void Encode(const PrefillRequest& in, wire::RouterMessage* out) {
  wire::PrefillRequest* prefill = out->mutable_prefill();
  prefill->set_request_id(in.request_id);
  prefill->set_epoch(in.epoch);
  prefill->mutable_tokens()->Add(in.tokens.begin(), in.tokens.end());
  Encode(in.sampling, prefill->mutable_sampling());
  prefill->set_want_digests(in.want_digests);
  prefill->set_prompt_logprobs(in.prompt_logprobs);
  prefill->set_cache_salt(in.cache_salt);
  prefill->set_max_total_tokens(in.max_total_tokens);
  for (const SliceSpec& slice : in.slices) Encode(slice, prefill->add_slices());
  prefill->set_wants_first_token(in.wants_first_token);
  prefill->set_pages_at_once(in.pages_at_once);
  prefill->set_n_generated(in.n_generated);
  prefill->mutable_stop_tokens()->Add(in.stop_tokens.begin(), in.stop_tokens.end());
}

absl::StatusOr<RouterMessage> Decode(const wire::PrefillRequest& in) {
  RETURN_IF_ERROR(CheckPresent("prefill.sampling", in.has_sampling()));
  RETURN_IF_ERROR(
      CheckField("prefill.tokens count", in.tokens_size(), RequestLimits::kPromptTokens));
  RETURN_IF_ERROR(CheckTokens("prefill.tokens", SpanOf(in.tokens())));
  RETURN_IF_ERROR(CheckRange("prefill.n_generated", in.n_generated(), 0, in.tokens_size() - 1));
  RETURN_IF_ERROR(CheckStopTokens("prefill.stop_tokens", in.stop_tokens()));
  RETURN_IF_ERROR(
      CheckField("prefill.prompt_logprobs", in.prompt_logprobs(), RequestLimits::kPromptLogprobs));
  PrefillRequest out{.request_id = in.request_id(), .epoch = in.epoch()};
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
  out.wants_first_token = in.wants_first_token();
  out.pages_at_once = in.pages_at_once();
  RETURN_IF_ERROR(CheckLength("prefill.slices", in.slices_size(), ControlLimits::kSlices));
  for (const wire::SliceSpec& slice : in.slices()) {
    ASSIGN_OR_RETURN(SliceSpec decoded, Decode(slice, in.tokens_size()));
    out.slices.push_back(std::move(decoded));
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
