#include "tests/decode_worker/sim_transfer.h"

#include <algorithm>
#include <cstring>

#include "common/check.h"

namespace baton {

int SimTransfer::AddEnd(Incarnation incarnation, KvPool* pool) {
  ends_.push_back({});
  ends_.back().incarnation = incarnation;
  ends_.back().pool = pool;
  return static_cast<int>(ends_.size()) - 1;
}

void SimTransfer::Post(int end, TransferCommand command) {
  ends_[end].commands.push_back(std::move(command));
}

bool SimTransfer::HasWork() const {
  for (size_t i = 0; i < ends_.size(); ++i)
    if (!ends_[i].commands.empty() || !ends_[i].events.empty() || CanLend(static_cast<int>(i)))
      return true;
  return std::ranges::any_of(flows_, [&](const auto& flow) { return CanCopy(flow.second); });
}

void SimTransfer::RunOne() {
  std::vector<std::function<void()>> choices;
  for (size_t i = 0; i < ends_.size(); ++i) {
    const int end = static_cast<int>(i);
    if (!ends_[i].commands.empty())
      choices.push_back([this, end] {
        TransferCommand command = std::move(ends_[end].commands.front());
        ends_[end].commands.pop_front();
        Run(end, std::move(command));
      });
    if (CanLend(end)) choices.push_back([this, end] { Lend(end); });
    if (!ends_[i].events.empty())
      choices.push_back([this, end] {
        TransferEvent event = std::move(ends_[end].events.front());
        ends_[end].events.pop_front();
        deliver(end, std::move(event));
      });
  }
  for (auto it = flows_.begin(); it != flows_.end(); ++it)
    if (CanCopy(it->second))
      choices.push_back([this, it] {
        CopyCells(it->second);
        FinishIfComplete(it);
      });
  choices[(*random_)() % choices.size()]();
}

void SimTransfer::Run(int end, TransferCommand command) {
  if (auto* open = std::get_if<OpenHandoff>(&command)) {
    Open(end, *open);
  } else if (auto* cells = std::get_if<SendCells>(&command)) {
    const auto it = flows_.find(cells->ticket_id);
    if (it == flows_.end()) return;                     // the handoff has ended
    BATON_CHECK(it->second.state == State::kPromised);  // a prefill starts only with a promise
    it->second.cells.push_back(std::move(*cells));
  } else if (auto* commit = std::get_if<CommitHandoff>(&command)) {
    const auto it = flows_.find(commit->ticket_id);
    if (it == flows_.end()) return;
    it->second.committed = true;
    it->second.record = commit->record;
    FinishIfComplete(it);
  } else if (auto* lend = std::get_if<LendPages>(&command)) {
    ends_[end].lent.push_back(std::move(*lend));
    if (CanLend(end)) Lend(end);
  } else if (auto* held = std::get_if<LendHeld>(&command)) {
    ends_[end].events.push_back(PagesReturned{std::move(held->pages)});  // all KV is sent here
  } else if (auto* reclaim = std::get_if<ReclaimPages>(&command)) {
    std::vector<int32_t>& receive_pool = ends_[end].receive_pool;
    const size_t n = std::min(receive_pool.size(), static_cast<size_t>(reclaim->n));
    ends_[end].events.push_back(
        PagesReturned{.pages = {receive_pool.end() - n, receive_pool.end()}});
    receive_pool.resize(receive_pool.size() - n);
    ReportReceivePool(end);
  } else if (std::holds_alternative<CancelPromises>(command)) {
    for (auto it = flows_.begin(); it != flows_.end();)
      if (const auto flow = it++; flow->second.sink == end)
        Fail(flow, absl::AbortedError("this worker has lost its router"));
  } else {
    const auto& cancel = std::get<CancelHandoff>(command);
    const auto it = flows_.find(cancel.ticket_id);
    if (it != flows_.end())
      Fail(it, absl::CancelledError("cancelled"));
    else
      ends_[end].cancelled.push_back(cancel.ticket_id);
  }
}

bool SimTransfer::CanLend(int end) const {
  return !ends_[end].lent.empty() && reached(end, ends_[end].lent.front().after);
}

void SimTransfer::Lend(int end) {
  const LendPages lend = std::move(ends_[end].lent.front());
  ends_[end].lent.pop_front();
  ends_[end].receive_pool.insert(ends_[end].receive_pool.end(), lend.pages.begin(),
                                 lend.pages.end());
  PromiseWaiting(end);
  ReportReceivePool(end);
}

bool SimTransfer::CanCopy(const Flow& flow) const {
  return flow.state == State::kPromised && !flow.cells.empty() &&
         reached(flow.source, flow.cells.front().after);
}

void SimTransfer::Open(int end, const OpenHandoff& open) {
  BATON_CHECK(!flows_.contains(open.ticket.id));
  int sink = -1;
  for (size_t i = 0; i < ends_.size(); ++i)
    if (ends_[i].incarnation == open.peer) sink = static_cast<int>(i);
  BATON_CHECK(sink >= 0 && sink != end);
  const auto refused = [&](int at) {
    return std::find(ends_[at].cancelled.begin(), ends_[at].cancelled.end(), open.ticket.id) !=
           ends_[at].cancelled.end();
  };
  if (refused(sink) || refused(end)) {
    ends_[end].events.push_back(
        HandoffEnded{.ticket_id = open.ticket.id, .status = absl::CancelledError("refused")});
    return;
  }
  Flow flow;
  flow.ticket = open.ticket;
  flow.source = end;
  flow.sink = sink;
  flows_[open.ticket.id] = flow;
  ends_[sink].waiting.push_back(open.ticket.id);
  PromiseWaiting(sink);
  if (flows_[open.ticket.id].state == State::kWaiting)
    ends_[end].events.push_back(HandoffNoRoom{.ticket_id = open.ticket.id});
  ReportReceivePool(sink);
}

void SimTransfer::PromiseWaiting(int sink) {
  End& end = ends_[sink];
  while (!end.waiting.empty()) {
    Flow& flow = flows_.at(end.waiting.front());
    const auto n = static_cast<size_t>(flow.ticket.promise_pages);
    if (end.receive_pool.size() < n) return;
    flow.pages.assign(end.receive_pool.end() - n, end.receive_pool.end());
    end.receive_pool.resize(end.receive_pool.size() - n);
    flow.state = State::kPromised;
    ++end.promises;
    ends_[flow.source].events.push_back(HandoffPromised{.ticket_id = flow.ticket.id});
    end.waiting.pop_front();
  }
}

void SimTransfer::CopyCells(Flow& flow) {
  const SendCells cells = std::move(flow.cells.front());
  flow.cells.pop_front();
  const KvPool& from = *ends_[flow.source].pool;
  const KvPool& to = *ends_[flow.sink].pool;
  for (size_t i = 0; i < cells.pages.size(); ++i)
    for (int plane = cells.plane; plane < cells.plane + cells.n_planes; ++plane) {
      BATON_CHECK(cells.first_page + static_cast<int>(i) < flow.ticket.kv_pages);
      std::memcpy(to.plane(flow.pages[cells.first_page + i], plane),
                  from.plane(cells.pages[i], plane),
                  static_cast<size_t>(from.layout().planes[plane].bytes));
      ++flow.cells_in;
    }
}

void SimTransfer::FinishIfComplete(Flows::iterator it) {
  Flow& flow = it->second;
  const int planes = ends_[flow.sink].pool->layout().n_layers();
  // Each cell must arrive exactly once: with more or fewer, the handoff never completes and the
  // test fails.
  if (!flow.committed || flow.cells_in != planes * flow.ticket.kv_pages || !flow.cells.empty())
    return;
  ends_[flow.sink].events.push_back(HandoffArrived{.ticket_id = flow.ticket.id,
                                                   .epoch = flow.ticket.epoch,
                                                   .request_id = flow.ticket.request_id,
                                                   .pages = flow.pages,
                                                   .record = flow.record});
  ends_[flow.source].events.push_back(
      HandoffEnded{.ticket_id = flow.ticket.id, .status = absl::OkStatus()});
  flows_.erase(it);
}

void SimTransfer::Fail(Flows::iterator it, const absl::Status& status) {
  Flow flow = std::move(it->second);
  flows_.erase(it);
  End& sink = ends_[flow.sink];
  std::erase(sink.waiting, flow.ticket.id);
  sink.receive_pool.insert(sink.receive_pool.end(), flow.pages.begin(), flow.pages.end());
  sink.events.push_back(HandoffAborted{.ticket_id = flow.ticket.id,
                                       .epoch = flow.ticket.epoch,
                                       .request_id = flow.ticket.request_id,
                                       .status = status});
  ends_[flow.source].events.push_back(HandoffEnded{.ticket_id = flow.ticket.id, .status = status});
  PromiseWaiting(flow.sink);
  ReportReceivePool(flow.sink);
}

void SimTransfer::FailAll() {
  while (!flows_.empty()) Fail(flows_.begin(), absl::UnavailableError("peer lost"));
}

void SimTransfer::ReportReceivePool(int end) {
  ends_[end].events.push_back(
      ReceivePoolChanged{.free_pages = static_cast<int32_t>(ends_[end].receive_pool.size()),
                         .waiting = static_cast<int32_t>(ends_[end].waiting.size()),
                         .promises = ends_[end].promises});
}

void SimTransfer::CloseEnd(int end) {
  if (ends_[end].receive_pool.empty()) return;
  ends_[end].events.push_back(PagesReturned{.pages = std::move(ends_[end].receive_pool)});
  ends_[end].receive_pool.clear();
}

}  // namespace baton
