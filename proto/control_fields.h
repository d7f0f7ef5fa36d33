// The fields of every message of the control wire, listed once for FieldWriter and FieldReader
// (`io`): number in control.proto, member of the struct, allowed values. A bound may depend on a
// field that is listed before. Checks of several fields follow the fields.
#pragma once

#include <concepts>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/request_limits.h"
#include "proto/control_codec.h"
#include "proto/field_visitors.h"
#include "proto/messages.h"

namespace baton {

// M is the message T: const for the writer.
template <typename M, typename T>
concept Of = std::same_as<std::remove_const_t<M>, T>;

inline constexpr double kMaxCount = std::numeric_limits<int32_t>::max();
inline constexpr Bounds kAnyCount(0, kMaxCount), kAnyTokens(0, RequestLimits::kContextTokens);
inline constexpr Bounds kAnyPosition(1, RequestLimits::kContextTokens);
inline constexpr Bounds kMicroseconds(0, int64_t{1} << 50);  // 35 years
inline constexpr double kMaxRate = 1e15;                     // bytes per second
inline constexpr Bounds kSeconds(0, 1e6);

// --- both ways

// A list in a list: the tokens of a bad word.
void Fields(auto& io, Of<std::vector<int32_t>> auto& tokens) {
  io.Tokens(1, tokens, RequestLimits::kBadWordTokens);
}

void Fields(auto& io, Of<TransferPeer> auto& m) {
  io.Field(1, m.incarnation);
  io.Name(2, m.address);
}

void Fields(auto& io, Of<TokenLogprob> auto& m) {
  io.Field(1, m.token, RequestLimits::kTokenId);
  io.Field(2, m.logprob);
}

// --- router to worker

void Fields(auto& io, Of<LogitBias> auto& m) {
  io.Field(1, m.token, RequestLimits::kTokenId);
  io.Field(2, m.bias);
}

void Fields(auto& io, Of<SamplingParams> auto& m) {
  io.Field(1, m.temperature);
  io.Field(2, m.top_k);
  io.Field(3, m.top_p);
  io.Field(4, m.seed);
  io.Field(5, m.min_p);
  io.Field(6, m.presence_penalty);
  io.Field(7, m.frequency_penalty);
  io.Field(8, m.repetition_penalty);
  io.Field(9, m.min_tokens);
  io.List(10, m.logit_bias, RequestLimits::kLogitBiases);
  io.Tokens(11, m.allowed_tokens, RequestLimits::kAllowedTokens);
  io.List(12, m.bad_words, RequestLimits::kBadWords);
  io.Field(13, m.vocab_end);
  io.Field(14, m.top_logprobs);
  io.Tokens(15, m.logprob_tokens, RequestLimits::kLogprobTokens);
  io.Field(16, m.grammar.kind);
  io.Field(17, m.grammar.text);
  io.Field(18, m.reasoning.max_tokens);
  io.Field(19, m.reasoning.begin);
  io.Field(20, m.reasoning.end);
  io.Check([&m] { return CheckSampling(m); });
}

void Fields(auto& io, Of<Ticket> auto& m) {
  io.Field(1, m.id.high);
  io.Field(2, m.id.low);
  io.Field(3, m.epoch);
  io.Field(4, m.request_id);
  io.Field(5, m.sink);
  io.Field(6, m.kv_pages, kAnyCount);
  io.Field(7, m.promise_pages, kAnyCount);
  io.Bytes(8, m.mac);
  io.Field(9, m.promise.high);
  io.Field(10, m.promise.low);
  io.Field(11, m.first_page, Bounds(0, m.kv_pages));
  io.Field(12, m.n_pages, Bounds(1, m.kv_pages - m.first_page));
  io.Field(13, m.held_pages, Bounds(0, m.kv_pages));
  io.Field(14, m.source);
  io.Field(15, m.expires_us, kMicroseconds);
  io.Field(16, m.key_id);
  // Promised are pages for all KV; or none, where the receiver names pages of its own.
  io.Require(7, m.promise_pages == 0 || m.promise_pages >= m.kv_pages,
             "is neither 0 nor at least kv_pages");
}

void Fields(auto& io, Of<KvOutput> auto& m, int32_t slice_end) {
  io.Message(1, m.ticket);
  io.Message(2, m.peer);
  io.Field(3, m.first_page, Bounds(0, slice_end));
}

void Fields(auto& io, Of<SliceSpec> auto& m, size_t n_tokens) {
  io.Field(2, m.end, Bounds(1, static_cast<double>(n_tokens)));
  io.Field(1, m.begin, Bounds(0, m.end - 1));
  io.Field(3, m.inflow.high);
  io.Field(4, m.inflow.low);
  io.List(5, m.outputs, Bounds(0, ControlLimits::kSliceOutputs), m.end);
}

void Fields(auto& io, Of<PrefillRequest> auto& m) {
  io.Field(1, m.request_id);
  io.Field(2, m.epoch);
  io.Tokens(3, m.tokens, RequestLimits::kPromptTokens);
  io.Field(4, m.n_generated, Bounds(0, static_cast<double>(m.tokens.size()) - 1));
  io.Message(5, m.sampling);
  io.Tokens(6, m.stop_tokens, RequestLimits::kStopTokens);
  io.Field(7, m.want_digests);
  io.Field(8, m.prompt_logprobs, RequestLimits::kPromptLogprobs);
  io.Field(9, m.cache_salt);
  io.Field(10, m.max_total_tokens, kAnyTokens);
  io.List(11, m.slices, Bounds(0, ControlLimits::kSlices), m.tokens.size());
  io.Field(12, m.wants_first_token);
  io.Field(13, m.pages_at_once);
}

void Fields(auto& io, Of<DecodeRequest> auto& m) {
  io.Field(1, m.request_id);
  io.Field(2, m.epoch);
  io.Field(3, m.ticket_id.high);
  io.Field(4, m.ticket_id.low);
  io.Tokens(5, m.tokens, RequestLimits::kPromptTokens);
  io.Field(6, m.max_tokens, RequestLimits::kMaxTokens);
  io.Message(7, m.sampling);
  io.Tokens(8, m.stop_tokens, RequestLimits::kStopTokens);
  io.Field(9, m.want_digests);
  io.Field(10, m.n_generated, Bounds(0, static_cast<double>(m.tokens.size()) - 1));
  io.Field(11, m.cache_salt);
  io.Field(12, m.is_local);
}

void Fields(auto& io, Of<CancelRequest> auto& m) {
  io.Field(1, m.request_id);
  io.Field(2, m.epoch);
}

void Fields(auto&, Of<TellPages> auto&) {}

// --- worker to router

void Fields(auto& io, Of<EngineTurn> auto& m) {
  io.Field(1, m.turns);
  io.Field(2, m.age_us, kMicroseconds);
  io.Field(3, m.expected_us, kMicroseconds);
}

void Fields(auto& io, Of<WorkerAnnounce> auto& m) {
  // First: another version's fields may mean anything.
  uint32_t version = kControlVersion;
  io.Field(19, version);
  io.Require(19, version == kControlVersion,
             absl::StrCat("is ", version, ", this router speaks ", kControlVersion,
                          ": run the same version of baton everywhere"));
  io.Field(1, m.incarnation);
  io.Require(1, m.incarnation != 0, "is missing");
  io.Name(2, m.name);
  io.Field(3, m.role);
  io.Require(3, m.role != Role{}, "is missing");
  io.Message(4, m.transfer);
  io.Field(5, m.model_fingerprint);
  io.Name(6, m.numerics_id);
  io.Name(7, m.layout_id);
  io.Field(8, m.page_tokens, Bounds(1, ControlLimits::kPageTokens));
  io.Field(9, m.pages_total, kAnyCount);
  io.Field(10, m.max_context, kAnyPosition);
  io.Field(11, m.max_batch, kAnyCount);
  io.Field(12, m.max_slice_tokens, kAnyCount);
  io.Field(13, m.link_bytes_per_second, Bounds(0, kMaxRate));
  io.Field(14, m.reuses_kv);
  io.Field(15, m.cpu_group);
  io.Field(16, m.cpu_share, Bounds(0, 1e6));
  io.Message(17, m.prefill_cost);
  io.Field(18, m.short_range_tokens, kAnyCount);
  io.Field(20, m.itl_stretch, Bounds(1, ControlLimits::kItlStretch));
  io.Field(21, m.min_mixed_tokens, Bounds(1, kMaxCount));
  io.Field(22, m.clock_us, kMicroseconds);
}

// Within these bounds what is predicted from a cost is finite and positive.
void Fields(auto& io, Of<PrefillCost> auto& m) {
  io.Field(1, m.n_layers, Bounds(1, 1 << 16));
  io.Field(2, m.token, kSeconds);
  io.Require(2, !m.is_known() || m.token >= 1e-15, "is too small");
  io.Field(3, m.pair, kSeconds);
  io.Field(4, m.extra_tokens, Bounds(0, 1e15));
  io.Field(5, m.kv_bytes, Bounds(0, kMaxCount));
}

void Fields(auto& io, Of<StepCost> auto& m) {
  io.Field(1, m.base, kSeconds);
  io.Field(2, m.row, kSeconds);
  io.Field(3, m.key, kSeconds);
  io.Field(4, m.beside, Bounds(0, 1e6));
}

void Fields(auto& io, Of<LinkRate> auto& m) {
  io.Field(1, m.peer);
  io.Field(2, m.bytes_per_second, Bounds(1, kMaxRate));
  io.Field(3, m.round_trip_us, kMicroseconds);
}

void Fields(auto& io, Of<WorkerLoad> auto& m) {
  io.Field(1, m.prefill_queued_tokens, kAnyCount);
  io.Field(2, m.decode_rows, kAnyCount);
  io.Field(3, m.decode_waiting, kAnyCount);
  io.Field(4, m.pages_free, kAnyCount);
  io.Message(5, m.prefill_cost);
  io.Message(6, m.step_cost);
  io.Field(7, m.draining);
  io.Field(8, m.prefill_queued_pairs, Bounds(0, 1e18));
  io.List(9, m.links, Bounds(0, ControlLimits::kLinks));
  io.Field(10, m.fitted_tokens, kAnyCount);
  io.Field(11, m.prompt_step_seconds, kSeconds);
  io.Field(12, m.clock_us, kMicroseconds);
}

void Fields(auto& io, Of<TokenOut> auto& m) {
  io.Field(1, m.request_id);
  io.Field(2, m.epoch);
  io.Field(3, m.position, kAnyPosition);
  io.Field(4, m.token, RequestLimits::kTokenId);
  io.Field(5, m.logprob);
  io.Field(6, m.digest);
  io.List(7, m.logprobs, RequestLimits::kTokenLogprobs);
}

void Fields(auto& io, Of<PromptLogprob> auto& m) {
  io.Field(1, m.logprob);
  io.Field(2, m.rank, Bounds(1, kMaxCount));
  io.List(3, m.top, Bounds(0, RequestLimits::kTopLogprobs.max));
}

void Fields(auto& io, Of<PromptLogprobs> auto& m) {
  io.Field(1, m.request_id);
  io.Field(2, m.epoch);
  io.Field(3, m.position, kAnyPosition);
  io.List(4, m.tokens, Bounds(1, PromptLogprobs::kMaxTokens));
  for (const PromptLogprob& token : m.tokens)
    io.Require(4, token.top.size() == m.tokens[0].top.size(), "have not all as many top entries");
}

void Fields(auto& io, Of<PromptComputed> auto& m) {
  io.Field(1, m.request_id);
  io.Field(2, m.epoch);
  io.Field(3, m.queue_us, kMicroseconds);
  io.Field(4, m.compute_us, kMicroseconds);
  io.Field(5, m.reused_tokens, kAnyCount);
  io.Field(6, m.inbox_us, kMicroseconds);
  io.Field(7, m.draw_us, kMicroseconds);
}

void Fields(auto& io, Of<PartEnded> auto& m) {
  io.Field(1, m.request_id);
  io.Field(2, m.epoch);
  io.Field(3, m.was_prefill);
  io.Field(4, m.reason);
  io.Require(4, m.reason != EndReason{}, "is missing");
  io.Text(5, m.message, ControlLimits::kReasonBytes);
  io.Field(6, m.queue_us, kMicroseconds);
  io.Field(7, m.compute_us, kMicroseconds);
  io.Field(8, m.transfer_us, kMicroseconds);
  io.Field(9, m.fault);
  io.Require(9, m.fault != PartFault{}, "is missing");
  io.Field(10, m.recomputed_tokens, kAnyTokens);
  io.Field(11, m.reused_tokens, kAnyTokens);
  io.Field(12, m.ticket_id.high);
  io.Field(13, m.ticket_id.low);
  io.Field(14, m.exposed_us, kMicroseconds);
  io.Field(15, m.first_step_us, kMicroseconds);
}

void Fields(auto& io, Of<PageName> auto& m) {
  io.Field(1, m.high);
  io.Field(2, m.low);
}

void Fields(auto& io, Of<CachedPages> auto& m) {
  io.Field(1, m.number);
  io.Require(1, m.number != 0, "is missing");
  io.Field(2, m.restart);
  io.List(3, m.lost, Bounds(0, CachedPages::kMaxNames));
  io.List(4, m.entered, Bounds(0, CachedPages::kMaxNames));
}

void Fields(auto& io, Of<NoRoomNotice> auto& m) {
  io.Field(1, m.request_id);
  io.Field(2, m.epoch);
  io.Field(3, m.expected_wait_us, kMicroseconds);
}

}  // namespace baton
