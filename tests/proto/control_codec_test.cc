// The control codec: every field survives the wire, and outside bytes cannot harm.
#include "proto/control_codec.h"

#include <catch2/catch.hpp>

#include <limits>
#include <random>

#include "tests/proto/every_message.h"
#include "tests/support/control_bytes.h"

namespace baton {
namespace {

using Catch::Contains;

void CheckPrefill(const PrefillRequest& a, const PrefillRequest& b) {
  CHECK(a.request_id == b.request_id);
  CHECK(a.epoch == b.epoch);
  CHECK(a.tokens == b.tokens);
  CHECK(a.sampling == b.sampling);
  CHECK(a.want_digests == b.want_digests);
  CHECK(a.cache_salt == b.cache_salt);
  CHECK(a.max_total_tokens == b.max_total_tokens);
  CHECK(a.slices == b.slices);
  CHECK(a.wants_first_token == b.wants_first_token);
  CHECK(a.pages_at_once == b.pages_at_once);
}

void CheckDecode(const DecodeRequest& a, const DecodeRequest& b) {
  CHECK(a.request_id == b.request_id);
  CHECK(a.epoch == b.epoch);
  CHECK(a.ticket_id == b.ticket_id);
  CHECK(a.tokens == b.tokens);
  CHECK(a.max_tokens == b.max_tokens);
  CHECK(a.cache_salt == b.cache_salt);
  CHECK(a.sampling == b.sampling);
  CHECK(a.stop_tokens == b.stop_tokens);
  CHECK(a.want_digests == b.want_digests);
}

// Changes the wire form of a valid message and returns the codec's refusal: of the request (the
// other messages are still read), or of all.
std::string Refusal(void (*change)(wire::RouterMessages*)) {
  wire::RouterMessages messages = Encoded(EveryMessage());
  change(&messages);
  const auto decoded = DecodeMessages(messages);
  if (!decoded.ok()) {
    CHECK(decoded.status().code() == absl::StatusCode::kInvalidArgument);
    return std::string(decoded.status().message());
  }
  CHECK(decoded->messages.size() == EveryMessage().size() - 1);
  REQUIRE(decoded->unreadable.size() == 1);
  const PartEnded& part = decoded->unreadable[0];
  CHECK(part.fault == PartFault::kUnreadable);
  CHECK(part.reason == EndReason::kFailed);
  for (const wire::RouterMessage& message : messages.messages()) {
    if (part.was_prefill && message.has_prefill())
      CHECK(part.request_id == message.prefill().request_id());
    if (!part.was_prefill && message.has_decode())
      CHECK(part.request_id == message.decode().request_id());
  }
  return part.message;
}
std::string Refusal(void (*change)(wire::WorkerReport*)) {
  wire::WorkerReport report = Encoded(EveryEvent());
  change(&report);
  const auto decoded = DecodeReport(report);
  CHECK(decoded.status().code() == absl::StatusCode::kInvalidArgument);
  return std::string(decoded.status().message());
}

// Returns a head's last slice, and the handoff of it to the next rank.
wire::SliceSpec* HeadSlice(wire::RouterMessages* messages) {
  return messages->mutable_messages(3)->mutable_prefill()->mutable_slices(2);
}
wire::Ticket* HeadTicket(wire::RouterMessages* messages) {
  return HeadSlice(messages)->mutable_outputs(0)->mutable_ticket();
}

}  // namespace

TEST_CASE("router messages survive the wire field by field") {
  const std::vector<RouterMessage> in = EveryMessage();
  const auto out = ParseMessages(SerializeMessages(in));
  REQUIRE(out.ok());
  CHECK(out->unreadable.empty());
  REQUIRE(out->messages.size() == in.size());
  CheckPrefill(std::get<PrefillRequest>(out->messages.at(0)), std::get<PrefillRequest>(in[0]));
  const auto& prefill = std::get<PrefillRequest>(out->messages.at(0));
  CHECK(VerifyTicket(ClusterKey{1}, prefill.slices[0].outputs[0].ticket));
  CheckDecode(std::get<DecodeRequest>(out->messages.at(1)), std::get<DecodeRequest>(in[1]));
  CHECK(std::get<CancelRequest>(out->messages.at(2)).request_id == 4);
  CHECK(std::get<CancelRequest>(out->messages.at(2)).epoch == 5);
  CheckPrefill(std::get<PrefillRequest>(out->messages.at(3)), std::get<PrefillRequest>(in[3]));
  CHECK(std::holds_alternative<TellPages>(out->messages.at(4)));
}

TEST_CASE("worker events survive the wire field by field") {
  const WorkerReport in = EveryEvent();
  const auto out = ParseReport(SerializeReport(in));
  REQUIRE(out.ok());
  REQUIRE(out->events.size() == in.events.size());
  CHECK(out->engine.turns == ~0ull);
  CHECK(out->engine.age_us == 5);
  CHECK(out->engine.expected_us == 6);
  const auto& announce = std::get<WorkerAnnounce>(out->events[0]);
  CHECK(announce.incarnation == 1);
  CHECK(announce.name == "prefill0");
  CHECK(announce.role == Role::kPrefill);
  CHECK(announce.transfer.address == "127.0.0.1:9");
  CHECK(announce.model_fingerprint == ~0ull);
  CHECK(announce.numerics_id == "cpu-x86");
  CHECK(announce.layout_id == "bf16");
  CHECK(announce.page_tokens == 64);
  CHECK(announce.pages_total == 100);
  CHECK(announce.max_context == 4096);
  CHECK(announce.max_batch == 32);
  CHECK(announce.prefill_cost == PrefillCost{.n_layers = 28, .kv_bytes = 2048});
  CHECK(announce.max_slice_tokens == 8192);
  CHECK(announce.itl_stretch == 1.5);
  CHECK(announce.min_mixed_tokens == 32);
  CHECK(announce.link_bytes_per_second == 1.5e9);
  CHECK(announce.reuses_kv);
  CHECK(announce.short_range_tokens == 4096);
  const auto& load = std::get<WorkerLoad>(out->events[1]);
  CHECK(load.prefill_queued_tokens == 1);
  CHECK(load.decode_rows == 2);
  CHECK(load.decode_waiting == 3);
  CHECK(load.pages_free == 4);
  CHECK(load.prefill_queued_pairs == 1e7);
  CHECK(load.prefill_cost == std::get<WorkerLoad>(in.events[1]).prefill_cost);
  CHECK(load.links == std::get<WorkerLoad>(in.events[1]).links);
  CHECK(load.fitted_tokens == 700);
  CHECK(load.prompt_step_seconds == 0.1);
  CHECK(load.step_cost == std::get<WorkerLoad>(in.events[1]).step_cost);
  CHECK(load.draining);
  const auto& token = std::get<TokenOut>(out->events[2]);
  CHECK(token.request_id == ~0ull);
  CHECK(token.epoch == 2);
  CHECK(token.position == 3);
  CHECK(token.token == 4);
  CHECK(token.logprob == -0.5f);
  CHECK(token.digest == 77);
  const auto& ended = std::get<PartEnded>(out->events[3]);
  CHECK(ended.was_prefill);
  CHECK(ended.reason == EndReason::kFailed);
  CHECK(ended.fault == PartFault::kHandoff);
  CHECK(ended.ticket_id == TicketId{.high = 7, .low = ~0ull});
  CHECK(ended.message == "bytes that are no UTF-8: \xFF\xC0");
  CHECK(ended.queue_us == 1);
  CHECK(ended.recomputed_tokens == 4);
  CHECK(ended.reused_tokens == 5);
  CHECK(ended.compute_us == 2);
  CHECK(ended.transfer_us == 3);
  CHECK(ended.exposed_us == 6);
  CHECK(ended.first_step_us == 7);
  CHECK(std::get<NoRoomNotice>(out->events[4]).expected_wait_us == 3);
  const auto& computed = std::get<PromptComputed>(out->events[5]);
  CHECK(computed.request_id == 4);
  CHECK(computed.epoch == 5);
  CHECK(computed.queue_us == 6);
  CHECK(computed.compute_us == 7);
  CHECK(computed.reused_tokens == 8);
  CHECK(computed.inbox_us == 9);
  CHECK(computed.draw_us == 10);
  const auto& pages = std::get<CachedPages>(out->events[6]);
  CHECK(pages.number == ~0ull);
  CHECK(pages.restart);
  CHECK(pages.lost == std::vector<PageName>{{1, ~0ull}});
  CHECK(pages.entered == std::vector<PageName>{{~0ull, 2}, {3, 4}});
}

TEST_CASE("every role, every end reason and every fault survives") {
  for (const Role role : {Role::kPrefill, Role::kDecode, Role::kBoth}) {
    WorkerReport report = EveryEvent();
    std::get<WorkerAnnounce>(report.events[0]).role = role;
    const auto out = ParseReport(SerializeReport(report));
    REQUIRE(out.ok());
    CHECK(std::get<WorkerAnnounce>(out->events[0]).role == role);
  }
  for (const EndReason reason : {EndReason::kStopToken, EndReason::kLength, EndReason::kCancelled,
                                 EndReason::kFailed, EndReason::kPreempted}) {
    const auto out = ParseReport(SerializeReport({.events = {PartEnded{.reason = reason}}}));
    REQUIRE(out.ok());
    CHECK(std::get<PartEnded>(out->events[0]).reason == reason);
  }
  for (const PartFault fault :
       {PartFault::kOwn, PartFault::kHandoff, PartFault::kPeer, PartFault::kPages,
        PartFault::kDraining, PartFault::kUnreadable, PartFault::kGrammar}) {
    const auto out = ParseReport(SerializeReport({.events = {PartEnded{.fault = fault}}}));
    REQUIRE(out.ok());
    CHECK(std::get<PartEnded>(out->events[0]).fault == fault);
  }
}

TEST_CASE("a router message out of range is refused by the name of its field") {
  using M = wire::RouterMessages;
  CHECK_THAT(Refusal([](M* m) { m->mutable_messages(0)->mutable_prefill()->clear_tokens(); }),
             Contains("prefill.tokens"));
  CHECK_THAT(Refusal([](M* m) {
               m->mutable_messages(0)->mutable_prefill()->mutable_tokens()->Set(1, -1);
             }),
             Contains("prefill.tokens"));
  CHECK_THAT(Refusal([](M* m) { HeadTicket(m)->set_mac("short"); }), Contains("ticket.mac"));
  CHECK_THAT(Refusal([](M* m) {
               m->mutable_messages(0)->mutable_prefill()->mutable_sampling()->set_temperature(
                   std::numeric_limits<float>::quiet_NaN());
             }),
             Contains("sampling.temperature"));
  CHECK_THAT(Refusal([](M* m) {
               m->mutable_messages(0)->mutable_prefill()->mutable_sampling()->set_top_p(0);
             }),
             Contains("sampling.top_p"));
  CHECK_THAT(Refusal([](M* m) { m->mutable_messages(1)->mutable_decode()->clear_tokens(); }),
             Contains("decode.tokens"));
  CHECK_THAT(Refusal([](M* m) { m->mutable_messages(1)->mutable_decode()->set_max_tokens(-1); }),
             Contains("decode.max_tokens"));
  CHECK_THAT(Refusal([](M* m) {
               for (int i = 0; i < 2000; ++i)
                 m->mutable_messages(1)->mutable_decode()->add_stop_tokens(i);
             }),
             Contains("decode.stop_tokens"));
  CHECK_THAT(Refusal([](M* m) { m->mutable_messages(3)->clear_kind(); }), Contains("kind"));
  CHECK_THAT(Refusal([](M* m) {
               for (int i = 0; i < 5000; ++i) m->add_messages()->mutable_tell_pages();
             }),
             Contains("messages"));
}

TEST_CASE("a slice and its handoffs are refused out of range") {
  using M = wire::RouterMessages;
  CHECK_THAT(Refusal([](M* m) { HeadSlice(m)->set_end(4); }), Contains("prefill.slices.end is 4"));
  CHECK_THAT(Refusal([](M* m) { HeadSlice(m)->set_end(0); }), Contains("prefill.slices.end"));
  CHECK_THAT(Refusal([](M* m) { HeadSlice(m)->set_begin(3); }), Contains("prefill.slices.begin"));
  CHECK_THAT(Refusal([](M* m) { HeadSlice(m)->set_begin(-1); }), Contains("prefill.slices.begin"));
  CHECK_THAT(Refusal([](M* m) { HeadSlice(m)->mutable_outputs(0)->clear_ticket(); }),
             Contains("prefill.slices.outputs.ticket"));
  CHECK_THAT(Refusal([](M* m) { HeadSlice(m)->mutable_outputs(1)->clear_peer(); }),
             Contains("prefill.slices.outputs.peer"));
  CHECK_THAT(Refusal([](M* m) { HeadSlice(m)->mutable_outputs(1)->set_first_page(-1); }),
             Contains("prefill.slices.outputs.first_page"));
  CHECK_THAT(Refusal([](M* m) { *HeadSlice(m)->add_outputs() = HeadSlice(m)->outputs(0); }),
             Contains("prefill.slices.outputs has 3 entries"));
  CHECK_THAT(Refusal([](M* m) { HeadTicket(m)->set_first_page(3); }),
             Contains("ticket.first_page"));
  CHECK_THAT(Refusal([](M* m) { HeadTicket(m)->set_n_pages(3); }), Contains("ticket.n_pages"));
  CHECK_THAT(Refusal([](M* m) { HeadTicket(m)->set_n_pages(0); }), Contains("ticket.n_pages"));
  CHECK_THAT(Refusal([](M* m) { HeadTicket(m)->set_kv_pages(0); }), Contains("ticket"));
  // No page is promised, or all that KV fills.
  CHECK_THAT(Refusal([](M* m) { HeadTicket(m)->set_promise_pages(1); }),
             Contains("ticket.promise_pages"));
  CHECK_THAT(Refusal([](M* m) { HeadTicket(m)->set_promise_pages(-1); }),
             Contains("ticket.promise_pages"));
  CHECK_THAT(Refusal([](M* m) {
               for (int i = 0; i < 255; ++i)
                 *m->mutable_messages(3)->mutable_prefill()->add_slices() = *HeadSlice(m);
             }),
             Contains("prefill.slices has 258 entries"));
}

TEST_CASE("a worker event out of range is refused by the name of its field") {
  using R = wire::WorkerReport;
  static constexpr auto kAnnounce = [](R* r) { return r->mutable_events(0)->mutable_announce(); };
  static constexpr auto kLoad = [](R* r) { return r->mutable_events(1)->mutable_load(); };
  CHECK_THAT(Refusal([](R* r) { kAnnounce(r)->set_incarnation(0); }),
             Contains("announce.incarnation"));
  CHECK_THAT(Refusal([](R* r) { kAnnounce(r)->clear_role(); }), Contains("announce.role"));
  CHECK_THAT(Refusal([](R* r) { kAnnounce(r)->set_page_tokens(0); }),
             Contains("announce.page_tokens"));
  CHECK_THAT(Refusal([](R* r) { kAnnounce(r)->set_name(std::string(300, 'x')); }),
             Contains("announce.name"));
  CHECK_THAT(Refusal([](R* r) { kAnnounce(r)->set_name("a\nb"); }), Contains("announce.name"));
  CHECK_THAT(Refusal([](R* r) { kAnnounce(r)->set_max_slice_tokens(-1); }),
             Contains("announce.max_slice_tokens"));
  CHECK_THAT(Refusal([](R* r) { r->clear_engine(); }), Contains("engine is missing"));
  CHECK_THAT(Refusal([](R* r) { r->mutable_engine()->set_age_us(-1); }), Contains("engine.age_us"));
  CHECK_THAT(Refusal([](R* r) { r->mutable_engine()->set_expected_us(int64_t{1} << 60); }),
             Contains("engine.expected_us"));
  CHECK_THAT(Refusal([](R* r) { kLoad(r)->set_pages_free(-1); }), Contains("load.pages_free"));
  CHECK_THAT(Refusal([](R* r) { kLoad(r)->mutable_prefill_cost()->set_n_layers(0); }),
             Contains("load.prefill_cost.n_layers"));
  CHECK_THAT(Refusal([](R* r) { kLoad(r)->mutable_prefill_cost()->set_token(1e-16); }),
             Contains("load.prefill_cost.token"));
  CHECK_THAT(Refusal([](R* r) { kLoad(r)->mutable_prefill_cost()->set_pair(-1e-9); }),
             Contains("load.prefill_cost.pair"));
  CHECK_THAT(
      Refusal([](R* r) {
        kLoad(r)->mutable_prefill_cost()->set_kv_bytes(std::numeric_limits<double>::quiet_NaN());
      }),
      Contains("load.prefill_cost.kv_bytes"));
  CHECK_THAT(Refusal([](R* r) { kLoad(r)->mutable_links(0)->set_bytes_per_second(0); }),
             Contains("load.links.bytes_per_second"));
  CHECK_THAT(Refusal([](R* r) {
               for (int i = 0; i < 2000; ++i) kLoad(r)->add_links()->set_bytes_per_second(5);
             }),
             Contains("load.links"));
  CHECK_THAT(Refusal([](R* r) {
               kLoad(r)->set_prefill_queued_pairs(std::numeric_limits<double>::infinity());
             }),
             Contains("load.prefill_queued_pairs"));
  CHECK_THAT(Refusal([](R* r) {
               r->mutable_events(1)->mutable_load()->mutable_step_cost()->set_base(
                   std::numeric_limits<double>::infinity());
             }),
             Contains("load.step_cost.base"));
  CHECK_THAT(Refusal([](R* r) { r->mutable_events(2)->mutable_token()->set_token(-1); }),
             Contains("token.token"));
  CHECK_THAT(Refusal([](R* r) { r->mutable_events(2)->mutable_token()->set_position(0); }),
             Contains("token.position"));
  static constexpr auto kEnded = [](R* r) { return r->mutable_events(3)->mutable_part_ended(); };
  CHECK_THAT(Refusal([](R* r) { kEnded(r)->clear_reason(); }), Contains("part_ended.reason"));
  CHECK_THAT(Refusal([](R* r) { kEnded(r)->clear_fault(); }), Contains("part_ended.fault"));
  CHECK_THAT(Refusal([](R* r) { kEnded(r)->set_recomputed_tokens(-1); }),
             Contains("part_ended.recomputed_tokens"));
  CHECK_THAT(Refusal([](R* r) { kEnded(r)->set_reused_tokens(-1); }),
             Contains("part_ended.reused_tokens"));
  CHECK_THAT(Refusal([](R* r) { kEnded(r)->set_queue_us(-1); }), Contains("part_ended.queue_us"));
  CHECK_THAT(
      Refusal([](R* r) { r->mutable_events(5)->mutable_prompt_computed()->set_compute_us(-1); }),
      Contains("prompt_computed.compute_us"));
  CHECK_THAT(
      Refusal([](R* r) { r->mutable_events(4)->mutable_no_room()->set_expected_wait_us(-1); }),
      Contains("no_room.expected_wait_us"));
  static constexpr auto kPages = [](R* r) { return r->mutable_events(6)->mutable_cached_pages(); };
  CHECK_THAT(Refusal([](R* r) {
               for (int i = 0; i < 1024; ++i) kPages(r)->add_lost();
             }),
             Contains("cached_pages.lost has 1025 entries"));
  CHECK_THAT(Refusal([](R* r) {
               for (int i = 0; i < 1024; ++i) kPages(r)->add_entered();
             }),
             Contains("cached_pages.entered has 1026 entries"));
  CHECK_THAT(Refusal([](R* r) { r->add_events(); }), Contains("kind"));
}

TEST_CASE("a long error text is cut, not refused") {
  const auto out = ParseReport(SerializeReport(
      {.events = {PartEnded{.reason = EndReason::kFailed, .message = std::string(10000, 'x')}}}));
  REQUIRE(out.ok());
  CHECK(std::get<PartEnded>(out->events[0]).message.size() == ControlLimits::kReasonBytes);
}

TEST_CASE("changed and cut bytes are decoded or refused, never worse") {
  const std::string messages = SerializeMessages(EveryMessage());
  const std::string report = SerializeReport(EveryEvent());
  std::mt19937_64 random(7);
  int decoded = 0, refused = 0;
  const auto count = [&](bool ok) { ++(ok ? decoded : refused); };
  for (int run = 0; run < 20000; ++run) {
    for (std::string bytes : {messages, report}) {
      const bool is_report = bytes == report;
      for (uint64_t n = random() % 4; n > 0; --n)
        bytes[random() % bytes.size()] = static_cast<char>(random());
      if (random() % 4 == 0) bytes.resize(random() % bytes.size());
      if (random() % 8 == 0) bytes += bytes.substr(random() % (bytes.size() + 1));
      if (is_report) {
        count(ParseReport(bytes).ok());
      } else {
        const auto parsed = ParseMessages(bytes);
        count(parsed.ok() && parsed->unreadable.empty());
      }
    }
  }
  CHECK(decoded > 1000);
  CHECK(refused > 1000);
}

TEST_CASE("batches are cut by messages and by bytes, and one message always fits") {
  wire::RouterMessages batch;
  CHECK(EncodeMessages({}, &batch) == 0);
  const std::vector<RouterMessage> many(5000, CancelRequest{});
  CHECK(EncodeMessages(many, &batch) == ControlLimits::kMessagesPerBatch);
  CHECK(batch.messages_size() == static_cast<int>(ControlLimits::kMessagesPerBatch));

  const auto list = [](const FieldLimit& limit) {
    return std::vector<int32_t>(static_cast<size_t>(limit.max),
                                std::numeric_limits<int32_t>::max());
  };
  PrefillRequest largest = std::get<PrefillRequest>(EveryMessage()[3]);
  largest.tokens = list(RequestLimits::kPromptTokens);
  largest.stop_tokens = list(RequestLimits::kStopTokens);
  SliceSpec slice = largest.slices[2];
  for (KvOutput& output : slice.outputs)
    output.peer.address = std::string(ControlLimits::kNameBytes, 'x');
  largest.slices.assign(ControlLimits::kSlices, slice);
  SamplingParams& sampling = largest.sampling;
  for (int32_t i = 0; i < static_cast<int32_t>(RequestLimits::kLogitBiases.max); ++i)
    sampling.logit_bias.push_back({(1 << 30) + i, 1});
  for (int32_t i = 0; i < static_cast<int32_t>(RequestLimits::kAllowedTokens.max); ++i)
    sampling.allowed_tokens.push_back((1 << 30) + i);
  sampling.bad_words.assign(static_cast<size_t>(RequestLimits::kBadWords.max),
                            list(RequestLimits::kBadWordTokens));
  sampling.logprob_tokens = list(RequestLimits::kLogprobTokens);
  sampling.grammar = {GrammarKind::kRegex, std::string(kMaxGrammarBytes, 'a')};
  const std::vector<RouterMessage> long_prompts(2, largest);
  CHECK(EncodeMessages(long_prompts, &batch) == 1);
  CHECK(batch.ByteSizeLong() <= ControlLimits::kMessageBytes);
  const auto decoded = DecodeMessages(batch);
  REQUIRE(decoded.ok());
  CHECK(decoded->messages.size() == 1);
  // A request beyond its limits fits no batch, and goes alone.
  const std::vector<RouterMessage> beyond(
      2, PrefillRequest{.tokens = std::vector<int32_t>(ControlLimits::kMessageBytes)});
  CHECK(EncodeMessages(beyond, &batch) == 1);
}

TEST_CASE("the bytes of a report are those it adds to a message, or a few more") {
  wire::WorkerReport out;
  size_t bytes = 0;
  for (int i = 0; i < 3; ++i) bytes += AppendReport(EveryEvent(), &out);
  CHECK(static_cast<size_t>(out.events_size()) == 3 * EveryEvent().events.size());
  CHECK(out.ByteSizeLong() <= bytes);
  CHECK(out.ByteSizeLong() + 8 * static_cast<size_t>(out.events_size()) >= bytes);
}

}  // namespace baton
