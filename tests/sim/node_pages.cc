// The Node's second part: the holder of each page, by the messages between the threads, and checks
// that no other part touches it.
#include <algorithm>

#include "tests/sim/node.h"
#include "tests/sim/violation.h"

namespace baton::sim {

void Node::NoteInflow(const TransferEvent& event, PagesOfTicket* inflows,
                      std::vector<Holder>* side) {
  const TicketId* ended = nullptr;
  if (const auto* arrived = std::get_if<InflowArrived>(&event))
    ended = arrived->n_planes == swarm_.n_layers ? &arrived->ticket_id : nullptr;
  if (const auto* failed = std::get_if<InflowFailed>(&event)) ended = &failed->ticket_id;
  if (ended == nullptr) return;
  const auto it = inflows->find({ended->high, ended->low});
  Require(it != inflows->end(), "worker %d: a last word about an inflow that is not open", index_);
  for (const int32_t page : it->second) {
    Require((*side)[page] == Holder::kInflow, "worker %d: page %d is no inflow's", index_, page);
    (*side)[page] = Holder::kEngine;
  }
  inflows->erase(it);
}

// Checks that the part of the index-th page that queries from first_position on see is present.
void Node::CheckEntry(int32_t entry, int index, int first_position) const {
  const int64_t end = (int64_t{index} + 1) * swarm_.page_tokens;
  Require(IsWhole(entry) || (!swarm_.windows.empty() &&
                             end <= int64_t{first_position} + 1 - swarm_.largest_window()),
          "worker %d: page %d of a sequence at %d is trimmed, window %d", index_, index,
          first_position, swarm_.largest_window());
  Require(!IsWhole(entry) || pool_->is_whole(entry), "worker %d: page %d lacks planes", index_,
          entry);
}

// Checks that every page of a piece is held and not lent, and that a page which a piece writes is
// in no other piece.
void Node::CheckStep(const StepBatch& batch) {
  const int page_tokens = pool_->layout().page_tokens;
  for (int piece = 0; piece < batch.n_pieces(); ++piece) {
    const int first_position = batch.positions[batch.piece_begin[piece]];
    const int first_written = first_position / page_tokens;
    for (int i = batch.page_begin[piece]; i < batch.page_begin[piece + 1]; ++i) {
      CheckEntry(batch.pages[i], i - batch.page_begin[piece], first_position);
      const int32_t page = PageOf(batch.pages[i]);
      if (page == kNoPage) continue;
      Require(page >= 0 && page < pool_->n_ids(), "worker %d: a step names page %d", index_, page);
      Require(pool_->is_held(page), "worker %d: a step uses free page %d", index_, page);
      Require(engine_side_[page] != Holder::kLink, "worker %d: a step uses lent page %d", index_,
              page);
      const InStep use =
          i - batch.page_begin[piece] >= first_written ? InStep::kWritten : InStep::kRead;
      Require(engine_side_[page] == Holder::kEngine || use == InStep::kRead,
              "worker %d: a step writes page %d, in which an inflow lands", index_, page);
      const bool alone = in_step_[page] == InStep::kNot ||
                         (in_step_[page] == InStep::kRead && use == InStep::kRead);
      Require(alone, "worker %d: page %d is written by one piece and in another", index_, page);
      in_step_[page] = use;
    }
  }
  for (const int32_t entry : batch.pages)
    if (entry != kNoPage) in_step_[PageOf(entry)] = InStep::kNot;
}

void Node::NoteSalts(const RouterEvent& event) {
  const auto* messages = std::get_if<RouterMessages>(&event);
  if (messages == nullptr) return;
  for (const RouterMessage& message : messages->messages)
    if (const auto* decode = std::get_if<DecodeRequest>(&message))
      salts_[{decode->ticket_id.high, decode->ticket_id.low}] = decode->cache_salt;
}

void Node::CheckHeld(const LendHeld& lend) const {
  const uint64_t salt = salts_.at({lend.ticket_id.high, lend.ticket_id.low});
  for (const int32_t page : lend.pages) {
    Require(pool_->is_held(page) && pool_->is_whole(page) && engine_side_[page] == Holder::kEngine,
            "worker %d: page %d is lent with its KV, but not the engine's", index_, page);
    const std::optional<uint64_t> of_entry = core_->index()->SaltOf(page);
    // The last one may be a copy of a page that others hold.
    const bool is_copy = !of_entry && page == lend.pages.back();
    Require(of_entry == salt || is_copy, "worker %d: page %d is of another salt", index_, page);
  }
}

void Node::CheckEngine() const {
  const WorkerMetrics m = core_->metrics();
  Require(
      pool_->held() + pool_->shared() == m.pages_prefill + m.pages_decode + m.pages_lent,
      "worker %d: %d pages held, %d more than once, but %d by prompts, %d by sequences, %d lent",
      index_, pool_->held(), pool_->shared(), m.pages_prefill, m.pages_decode, m.pages_lent);
  for (const auto& [ticket, pages] : sending_)
    for (const int32_t page : pages)
      Require(pool_->is_held(page) && pool_->is_whole(page) && engine_side_[page] != Holder::kLink,
              "worker %d: page %d was given away while handoff %x may read it", index_, page,
              ticket.first);
  for (const auto& [ticket, pages] : engine_inflows_)
    for (const int32_t page : pages)
      Require(pool_->is_held(page) && engine_side_[page] == Holder::kInflow,
              "worker %d: page %d was given away while an inflow may land in it", index_, page);
}

void Node::CheckLink() const {
  const int pooled = transfer_->receive_pool().in_pool(), bound = transfer_->bound_pages();
  Require(pooled + bound == link_pages_,
          "worker %d: %d pages lent, but %d in the pool and %d bound", index_, link_pages_, pooled,
          bound);
  Require(transfer_->receive_pool().owed() >= 0 && transfer_->receive_pool().free_pages() >= 0,
          "worker %d: receive pool oversold", index_);
  Require(copier_ == nullptr || copier_->max_under_way() <= static_cast<size_t>(swarm_.slab_slots),
          "worker %d: more copies are under way than there are slots", index_);
}

// Returns the pages with these bytes; empty: the bytes belong to a bounce slot.
std::vector<int32_t> Node::PagesAt(const std::byte* at, uint64_t n_bytes) const {
  const KvLayout& layout = pool_->layout();
  const std::byte* const base = pool_->base();
  if (at < base || at >= base + layout.page_bytes * plan_.pages) return {};
  const int32_t* const frames = pool_->frames();
  const int64_t stride = frames == nullptr ? layout.page_bytes : layout.frame_bytes();
  const auto last = static_cast<int32_t>((at - base + static_cast<int64_t>(n_bytes) - 1) / stride);
  std::vector<int32_t> pages;
  for (auto i = static_cast<int32_t>((at - base) / stride); i <= last; ++i) {
    if (frames == nullptr) {
      pages.push_back(i);
      continue;
    }
    const int32_t* const end = frames + int64_t{pool_->n_ids()} * layout.n_layers();
    const int32_t* const found = std::find(frames, end, i);
    Require(found != end, "worker %d: a receive is posted into a free frame", index_);
    pages.push_back(static_cast<int32_t>((found - frames) / layout.n_layers()));
  }
  return pages;
}

void Node::PostedWrite(OperationId operation, const std::byte* at, uint64_t n_bytes) {
  for (const int32_t page : PagesAt(at, n_bytes)) {
    Require(page < pool_->n_ids() && link_side_[page] != Holder::kEngine,
            "worker %d: a receive is posted into page %d, which is not lent", index_, page);
    posted_[operation].emplace_back(page, turns_[page]);
  }
}

void Node::LandingWrite(OperationId operation) {
  const auto it = posted_.find(operation);
  if (it == posted_.end()) return;
  for (const auto& [page, turn] : it->second)
    Require(link_side_[page] != Holder::kEngine && turns_[page] == turn,
            "worker %d: a chunk lands in page %d after it went to another owner", index_, page);
  posted_.erase(it);
}

}  // namespace baton::sim
