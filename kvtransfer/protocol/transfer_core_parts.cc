// Handoffs in parts of TransferCore. Every rank of a relay hands its own slice to the decode
// worker: the main handoff is promised all pages, and parts from other sources land in some of
// them. OPENs of main handoff and parts come in any order; all complete together, or fail together.
#include <algorithm>
#include <utility>

#include "common/check.h"
#include "kvtransfer/protocol/transfer_core.h"

namespace baton {

TransferCore::SinkKey TransferCore::FindMain(const Ticket& part) const {
  const auto it = sink_of_.find(part.part_of);
  return it != sink_of_.end() && sinks_.at(it->second).ticket().epoch == part.epoch ? it->second
                                                                                    : 0;
}

absl::Status TransferCore::CheckMain(const Ticket& part) const {
  if (const Tombstones::Entry* entry = tombstones_.Find(part.part_of, part.epoch)) {
    if (entry->epoch > part.epoch) return Superseded();
    return entry->status.ok() ? absl::AbortedError("the handoff is complete without this part")
                              : entry->status;
  }
  const auto it = sink_of_.find(part.part_of);
  if (it != sink_of_.end() && sinks_.at(it->second).ticket().epoch > part.epoch)
    return Superseded();
  return HasLaterPart(part.part_of, part.epoch) ? Superseded() : absl::OkStatus();
}

bool TransferCore::HasLaterPart(const TicketId& main, Epoch epoch) const {
  const auto it = parts_of_.find(main);
  return it != parts_of_.end() &&
         std::any_of(it->second.begin(), it->second.end(), [&](const OpenPart& part) {
           return sinks_.at(part.key).ticket().epoch > epoch;
         });
}

void TransferCore::BeginPart(SinkKey key, int64_t now_us) {
  HandoffSink& part = sinks_.at(key);
  parts_of_[part.ticket().part_of].push_back({key});
  const SinkKey main = FindMain(part.ticket());
  if (main != 0 && sinks_.at(main).promised()) return BindPart(key, main, now_us);
  HandoffEffects effects;
  part.NoRoom(expected_wait_us_, &effects);
  ApplySink(key, std::move(effects), now_us);
}

void TransferCore::BindParts(SinkKey main, int64_t now_us) {
  const auto sink = sinks_.find(main);
  if (sink == sinks_.end()) return;
  const auto it = parts_of_.find(sink->second.ticket().id);
  if (it == parts_of_.end()) return;
  const std::vector<OpenPart> parts = it->second;
  for (const OpenPart& part : parts) {
    const auto at = sinks_.find(part.key);
    if (at == sinks_.end() || at->second.failed() || FindMain(at->second.ticket()) != main)
      continue;  // among them all, once one does not fit
    BindPart(part.key, main, now_us);
  }
}

void TransferCore::BindPart(SinkKey key, SinkKey main, int64_t now_us) {
  HandoffSink& part = sinks_.at(key);
  HandoffSink& whole = sinks_.at(main);
  if (absl::Status status = whole.CheckPart(part.ticket()); !status.ok())
    return AbortSink(key, std::move(status), HandoffSink::PeerNotice::kCancel, now_us);
  for (OpenPart& open : parts_of_.at(part.ticket().part_of))
    if (open.key == key) open.main = main;
  HandoffEffects effects;
  part.Await(whole.BeginPart(part.ticket()), now_us, &effects);
  ApplySink(key, std::move(effects), now_us);
}

void TransferCore::OnPartEnded(SinkKey key, const HandoffSink& part, int64_t now_us) {
  const auto it = parts_of_.find(part.ticket().part_of);
  const auto open = std::find_if(it->second.begin(), it->second.end(),
                                 [key](const OpenPart& other) { return other.key == key; });
  const auto main = sinks_.find(open->main);
  it->second.erase(open);
  if (it->second.empty()) parts_of_.erase(it);
  if (main == sinks_.end()) return;
  HandoffEffects effects;
  main->second.PartEnded(part, now_us, &receive_pool_, &effects);
  ApplySink(main->first, std::move(effects), now_us);
}

void TransferCore::FailTogether(const Ticket& ticket, const absl::Status& status, int64_t now_us) {
  if (!ticket.is_part()) return AbortParts(ticket.id, ticket.epoch, status, now_us);
  tombstones_.Add(ticket.part_of, ticket.epoch, status);  // also if its OPEN has not arrived yet
  const SinkKey main = FindMain(ticket);
  if (main != 0 && !sinks_.at(main).failed())
    AbortSink(main, status, HandoffSink::PeerNotice::kCancel, now_us);
  AbortParts(ticket.part_of, ticket.epoch, status, now_us);
}

void TransferCore::AbortParts(const TicketId& main, Epoch epoch, const absl::Status& status,
                              int64_t now_us) {
  const auto it = parts_of_.find(main);
  if (it == parts_of_.end()) return;
  const std::vector<OpenPart> parts = it->second;
  for (const OpenPart& part : parts) {
    const auto at = sinks_.find(part.key);
    if (at != sinks_.end() && !at->second.failed() && at->second.ticket().epoch <= epoch)
      AbortSink(part.key, status, HandoffSink::PeerNotice::kCancel, now_us);
  }
}

}  // namespace baton
