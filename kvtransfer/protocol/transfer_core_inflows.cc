// Inflows of TransferCore. The engine's AwaitInflow and the peer's OPEN come in either order; of
// one ticket, only the latest epoch named by either of them lives.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "kvtransfer/protocol/transfer_core.h"

namespace baton {
namespace {

absl::Status CheckPages(const Ticket& ticket, const AwaitInflow& await) {
  if (ticket.is_inflow() && static_cast<size_t>(ticket.kv_pages) == await.pages.size())
    return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "the ticket is for ", ticket.kv_pages, " KV pages and a promise of ", ticket.promise_pages,
      ticket.is_part() ? ", a part" : "", ", the worker awaits an inflow of ", await.pages.size()));
}

}  // namespace

void TransferCore::On(AwaitInflow& command, int64_t now_us) {
  for (const int32_t page : command.pages) BATON_CHECK(page >= 0 && page < pool_.n_pages);
  const auto fail = [&](absl::Status status) {
    Emit(InflowFailed{command.ticket_id, command.epoch, std::move(status)});
  };
  if (absl::Status status = CheckAwait(command); !status.ok()) return fail(std::move(status));
  EndEarlier(command.ticket_id, command.epoch, now_us);
  const auto it = sink_of_.find(command.ticket_id);
  if (it == sink_of_.end() || sinks_.at(it->second).ticket().epoch != command.epoch) {
    BATON_CHECK(FindAwaited(command.ticket_id) == awaited_.end());
    awaited_.push_back(std::move(command));
    return;
  }
  const SinkKey key = it->second;
  HandoffSink& sink = sinks_.at(key);
  if (absl::Status status = CheckPages(sink.ticket(), command); !status.ok()) {
    AbortSink(key, status, HandoffSink::PeerNotice::kCancel, now_us);
    return fail(std::move(status));
  }
  HandoffEffects effects;
  sink.Await(std::move(command), now_us, &effects);
  ApplySink(key, std::move(effects), now_us);
}

std::vector<AwaitInflow>::iterator TransferCore::FindAwaited(const TicketId& id) {
  return std::find_if(awaited_.begin(), awaited_.end(),
                      [&id](const AwaitInflow& await) { return await.ticket_id == id; });
}

absl::Status TransferCore::CheckAwait(const AwaitInflow& await) {
  if (shutting_down_) return absl::UnavailableError("this worker is shutting down");
  if (const Tombstones::Entry* entry = tombstones_.Find(await.ticket_id, await.epoch))
    return entry->status.ok() ? Superseded() : entry->status;
  if (const auto it = sink_of_.find(await.ticket_id);
      it != sink_of_.end() && sinks_.at(it->second).ticket().epoch > await.epoch)
    return Superseded();
  if (const auto it = FindAwaited(await.ticket_id); it != awaited_.end() && it->epoch > await.epoch)
    return Superseded();
  return absl::OkStatus();
}

absl::Status TransferCore::CheckAwaited(const Ticket& ticket) {
  const auto it = FindAwaited(ticket.id);
  if (it == awaited_.end()) return absl::OkStatus();
  return it->epoch > ticket.epoch ? Superseded() : CheckPages(ticket, *it);
}

void TransferCore::FailAwaited(const TicketId& id, Epoch epoch, const absl::Status& status) {
  const auto it = FindAwaited(id);
  if (it == awaited_.end() || it->epoch > epoch) return;
  InflowFailed failed{id, it->epoch, status};
  awaited_.erase(it);
  Emit(std::move(failed));
}

void TransferCore::EndEarlier(const TicketId& id, Epoch epoch, int64_t now_us) {
  if (epoch == 0) return;
  if (const auto it = sink_of_.find(id);
      it != sink_of_.end() && sinks_.at(it->second).ticket().epoch < epoch)
    AbortSink(it->second, Superseded(), HandoffSink::PeerNotice::kCancel, now_us);
  AbortParts(id, epoch - 1, Superseded(), now_us);
  FailAwaited(id, epoch - 1, Superseded());
}

void TransferCore::BeginInflow(SinkKey key, int64_t now_us) {
  HandoffSink& sink = sinks_.at(key);
  HandoffEffects effects;
  if (const auto it = FindAwaited(sink.ticket().id); it != awaited_.end()) {
    AwaitInflow await = std::move(*it);
    awaited_.erase(it);
    sink.Await(std::move(await), now_us, &effects);
  } else {
    sink.NoRoom(expected_wait_us_, &effects);
  }
  ApplySink(key, std::move(effects), now_us);
}

}  // namespace baton
