// The free pages of a worker's pool that are lent to the transfer room, so that an OPEN is answered
// at once and not after the engine's current step. Decides, once per engine turn, how many pages to
// lend and how many to ask back. A plain object of the engine thread.
//
// Every page of the pool is free, held by a sequence (prefill or decode), or lent. Lent pages come
// back as the pages of an arrived handoff or in PagesReturned.
//
// Prompts of this worker and sequences of others take the same pages. Prompts come first, but while
// a sequence waits they take at most one pool's worth of pages; then none starts until a sequence
// got a promise. So neither starves: a sequence is passed by total() pages of prompts and the
// sequences before it, a prompt by one sequence per total() pages of prompts.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/kv/kv_pool.h"
#include "kvtransfer/protocol/transfer_events.h"

namespace baton {

struct LenderNeeds {
  int wanted_pages = 0;          // a prompt here waits for so many free ones: lending pauses
  int growth_pages = 0;          // rows will take them soon: kept back
  int sequence_pages = 0;        // of requests expected from other workers
  int64_t expected_wait_us = 0;  // until a newcomer without room would get it
};

class PageLender {
 public:
  // eager: lend all that is free (a worker whose role is to decode); else only what sequences that
  // wait for room need. pages_per_turn bounds how many pages are zeroed between two steps.
  PageLender(KvPool* pool, bool eager, int pages_per_turn);

  // --- events
  void Arrived(int n_pages);  // left the lender with a handoff
  void Returned(const PagesReturned& event);
  void Changed(const ReceivePoolChanged& event);
  void PromptsTook(int n_pages);  // prompts of this worker started with so many

  // Once per turn. Appends commands to *out. Returns whether another turn would lend more, so the
  // caller must not sleep.
  bool Balance(const LenderNeeds& needs, std::vector<TransferCommand>* out);
  // Asks everything back and lends nothing more.
  void Close(std::vector<TransferCommand>* out);

  // Guests were passed by prompts often enough: none may start.
  bool sequences_first() const { return waiting_ > 0 && passed_pages_ >= pool_->total(); }
  int lent() const { return lent_; }
  int waiting() const { return waiting_; }     // tickets that wait for room
  int stock() const { return receive_pool_; }  // lent and not promised, as last heard

 private:
  KvPool* const pool_;
  const bool eager_;
  const int pages_per_turn_;
  int lent_ = 0;
  int receive_pool_ = 0, waiting_ = 0;
  uint64_t promises_ = 0;
  int64_t passed_pages_ = 0;  // by prompts, while sequences waited, since the last promise
  bool reclaiming_ = false;
  bool closed_ = false;
  int64_t reported_wait_us_ = 0;
};

}  // namespace baton
