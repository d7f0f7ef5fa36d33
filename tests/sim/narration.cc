#include "tests/sim/narration.h"

#include <variant>

#include "absl/strings/str_format.h"

namespace baton::sim {
namespace {

using absl::StrFormat;

std::string One(const PrefillRequest& m) {
  std::string told =
      StrFormat("prefill %x/%d of %d tokens", m.request_id, m.epoch, m.tokens.size());
  for (const SliceSpec& slice : m.slices) {
    absl::StrAppendFormat(&told, ", [%d, %d)", slice.begin, slice.end);
    for (const KvOutput& output : slice.outputs)
      absl::StrAppendFormat(&told, " for %x under %x", output.peer.incarnation,
                            output.ticket.id.high);
  }
  return told;
}
std::string One(const DecodeRequest& m) {
  return StrFormat("decode %x/%d of %d + %d tokens under %x", m.request_id, m.epoch,
                   m.tokens.size(), m.max_tokens, m.ticket_id.high);
}
std::string One(const CancelRequest& m) { return StrFormat("cancel %x/%d", m.request_id, m.epoch); }
std::string One(const TellPages&) { return "tell pages"; }

std::string One(const WorkerAnnounce& m) { return StrFormat("announce %s", m.name); }
std::string One(const WorkerLoad&) { return "load"; }
std::string One(const TokenOut& m) {
  return StrFormat("token %d of %x/%d at %d", m.token, m.request_id, m.epoch, m.position);
}
std::string One(const PromptComputed& m) {
  return StrFormat("prompt computed %x/%d", m.request_id, m.epoch);
}
std::string One(const PromptLogprobs& m) {
  return StrFormat("logprobs of %x/%d at %d+%d", m.request_id, m.epoch, m.position,
                   m.tokens.size());
}
std::string One(const PartEnded& m) {
  return StrFormat("%s ended %x/%d, reason %d %s", m.was_prefill ? "prefill" : "decode",
                   m.request_id, m.epoch, static_cast<int>(m.reason), m.message);
}
std::string One(const NoRoomNotice& m) { return StrFormat("no room %x/%d", m.request_id, m.epoch); }

std::string One(const CachedPages& m) {
  return StrFormat("pages %d%s: %d lost, %d entered", m.number, m.restart ? ", all anew" : "",
                   m.lost.size(), m.entered.size());
}

std::string One(const OpenHandoff& m) { return StrFormat("open %x", m.ticket.id.high); }
std::string One(const SendCells& m) {
  return StrFormat("send %x planes %d+%d pages %d+%d", m.ticket_id.high, m.plane, m.n_planes,
                   m.first_page, m.pages.size());
}
std::string One(const CommitHandoff& m) { return StrFormat("commit %x", m.ticket_id.high); }
std::string One(const LendPages& m) { return StrFormat("lend %d pages", m.pages.size()); }
std::string One(const LendHeld& m) {
  return StrFormat("lend the first %d pages of %x/%d, which are here", m.pages.size(),
                   m.ticket_id.high, m.epoch);
}
std::string One(const ReclaimPages& m) { return StrFormat("reclaim %d pages", m.n); }
std::string One(const ReclaimHeld&) { return "reclaim what is held"; }
std::string One(const CancelPromises& m) {
  return m.router ? StrFormat("cancel promises of router %x", *m.router) : "cancel all promises";
}
std::string One(const CancelHandoff& m) {
  return StrFormat("cancel handoff %x/%d", m.ticket_id.high, m.epoch);
}
std::string One(const AwaitInflow& m) {
  return StrFormat("await %x/%d in %d pages", m.ticket_id.high, m.epoch, m.pages.size());
}

std::string One(const HandoffPromised& m) { return StrFormat("promised %x", m.ticket_id.high); }
std::string One(const HandoffNoRoom& m) { return StrFormat("no room for %x", m.ticket_id.high); }
std::string One(const HandoffEnded& m) {
  return StrFormat("handoff ended %x: %s", m.ticket_id.high, m.status.ToString());
}
std::string One(const HandoffArrived& m) {
  return StrFormat("arrived %x for %x/%d, %d pages", m.ticket_id.high, m.request_id, m.epoch,
                   m.pages.size());
}
std::string One(const HandoffAborted& m) {
  return StrFormat("aborted %x for %x/%d: %s", m.ticket_id.high, m.request_id, m.epoch,
                   m.status.ToString());
}
std::string One(const PagesReturned& m) { return StrFormat("%d pages back", m.pages.size()); }
std::string One(const ReceivePoolChanged& m) {
  return StrFormat("receive pool %d, waiting %d, held %d", m.free_pages, m.waiting, m.held_pages);
}
std::string One(const InflowArrived& m) {
  return StrFormat("inflow %x/%d: %d planes, %d pages", m.ticket_id.high, m.epoch, m.n_planes,
                   m.n_pages);
}
std::string One(const InflowFailed& m) {
  return StrFormat("inflow %x/%d failed: %s", m.ticket_id.high, m.epoch, m.status.ToString());
}
std::string One(const LinksMeasured& m) { return StrFormat("%d links measured", m.links.size()); }

template <typename Variant>
std::string Any(const Variant& value) {
  return std::visit([](const auto& m) { return One(m); }, value);
}

}  // namespace

std::string Tell(const RouterEvent& event) {
  if (std::holds_alternative<RouterConnected>(event)) return "router connected";
  if (std::holds_alternative<RouterDisconnected>(event)) return "router lost";
  std::string out;
  for (const RouterMessage& message : std::get<RouterMessages>(event).messages)
    out += (out.empty() ? "" : "; ") + Any(message);
  return out;
}

std::string Tell(const WorkerReport& report) {
  std::string out;
  for (const WorkerEvent& event : report.events) out += (out.empty() ? "" : "; ") + Any(event);
  return out;
}

std::string Tell(const TransferCommand& command) { return Any(command); }
std::string Tell(const TransferEvent& event) { return Any(event); }

}  // namespace baton::sim
