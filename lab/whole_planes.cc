#include "lab/whole_planes.h"

#include <algorithm>

#include "common/check.h"

namespace baton {
namespace {

std::pair<uint64_t, uint64_t> KeyOf(const TicketId& id) { return {id.high, id.low}; }

}  // namespace

// Posts outside the lock: a room on this very thread may answer with an event.
void WholePlanes::OnCommand(TransferCommand command, const Post& post) {
  if (const auto* cells = std::get_if<SendCells>(&command)) {
    std::vector<SendCells> complete;
    if (Hold(*cells, &complete)) {
      for (SendCells& plane : complete) post(std::move(plane));
      return;
    }
  } else {
    Follow(command);
  }
  post(std::move(command));
}

// Follows which hops are open.
void WholePlanes::Follow(const TransferCommand& command) {
  std::lock_guard lock(mutex_);
  if (const auto* open = std::get_if<OpenHandoff>(&command)) {
    const Ticket& ticket = open->ticket;
    if (ticket.is_named())
      hops_[KeyOf(ticket.id)] = {.first_page = ticket.first_page, .n_pages = ticket.n_pages};
  } else if (const auto* commit = std::get_if<CommitHandoff>(&command)) {
    const auto hop = hops_.extract(KeyOf(commit->ticket_id));
    BATON_CHECK(hop.empty() || hop.mapped().planes.empty());
  } else if (const auto* cancel = std::get_if<CancelHandoff>(&command)) {
    hops_.erase(KeyOf(cancel->ticket_id));
  }
}

// Takes cells of an open hop, and returns planes that they complete. False: not of an open hop.
bool WholePlanes::Hold(const SendCells& cells, std::vector<SendCells>* complete) {
  std::lock_guard lock(mutex_);
  const auto found = hops_.find(KeyOf(cells.ticket_id));
  if (found == hops_.end()) return false;
  Hop& hop = found->second;
  const auto from = static_cast<size_t>(cells.first_page - hop.first_page);
  const auto n_pages = static_cast<size_t>(hop.n_pages);
  BATON_CHECK(cells.first_page >= hop.first_page && from + cells.pages.size() <= n_pages);
  for (int32_t plane = cells.plane; plane < cells.plane + cells.n_planes; ++plane) {
    auto& [pages, n_final, after] = hop.planes[plane];
    pages.resize(n_pages);
    std::copy(cells.pages.begin(), cells.pages.end(), pages.begin() + static_cast<int64_t>(from));
    n_final += cells.pages.size();
    after = std::max(after, cells.after);
    if (n_final < n_pages) continue;
    complete->push_back({.ticket_id = cells.ticket_id,
                         .plane = plane,
                         .n_planes = 1,
                         .first_page = hop.first_page,
                         .pages = std::move(pages),
                         .after = after});
    hop.planes.erase(plane);
  }
  return true;
}

// Drops what is left of a hop that broke.
void WholePlanes::OnEvent(const TransferEvent& event) {
  const auto* const ended = std::get_if<HandoffEnded>(&event);
  if (ended == nullptr) return;
  std::lock_guard lock(mutex_);
  hops_.erase(KeyOf(ended->ticket_id));
}

bool WholePlanes::idle() const {
  std::lock_guard lock(mutex_);
  return hops_.empty();
}

}  // namespace baton
