// A sequence of the DecodeBatch: one attempt at a request, from the first word of it to its end.
// Engine thread. sequence.cc has the table of its states, with deadlines.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "common/ids.h"
#include "common/state_machine.h"
#include "common/status.h"
#include "common/token_grammar.h"
#include "decode_worker/decode_options.h"
#include "engine/kv/kv_pool.h"
#include "engine/kv/prefix_index.h"
#include "engine/sampling/sequence_sampling.h"
#include "kvtransfer/protocol/transfer_events.h"
#include "proto/messages.h"

namespace baton {

enum class SequenceState {
  kExpected,  // the router named it; the KV is not here
  kOrphan,    // the KV came before the router's request
  kReady,     // request and KV are here; waits for a row
  kDecoding,  // has a row
  kEnded      // reported and removed at once
};

const MachineTable& SequenceTable();

struct Sequence {
  using Key = std::pair<RequestId, Epoch>;
  Sequence(const Key& name, TransitionCounts* transitions)
      : key(name), state(SequenceTable(), transitions) {}

  const Key key;
  MachineState<SequenceState> state;
  absl::Time progress;                   // since then it has got nowhere
  std::optional<DecodeRequest> request;  // without its tokens, once they are indexed
  int32_t n_prompt = 0;                  // its tokens
  SharedGrammar grammar;
  std::shared_ptr<SequenceSampling> sampling;  // from kReady on
  std::optional<HandoffArrived> kv;
  absl::Time arrived, first_step;
  absl::Duration first_step_took;  // zero: not over
  int32_t token = 0;               // the newest known, not yet in the KV
  int32_t position = 0;            // of `token`
  int ahead = 0;                   // its rows in steps under way
  int logits = -1;                 // of its row in the step before; -1: it has none there
  int32_t trimmed = 0;             // leading pages of the table, which fell out of the window
  PrefixChain chain;               // of its pages in the index
  std::vector<int32_t> tail;       // tokens with KV after the chain: fewer than a page has

  // Time at which it ends if it gets nowhere.
  absl::Time Deadline(const DecodeOptions& options) const;
  // Pages of the request up to its end.
  int PagesToEnd(const KvLayout& layout) const;
  // True if its pages reach to its end, so that it is never preempted.
  bool IsCovered(const KvLayout& layout) const;
  // Tokens it can write into the pages it has, behind those under way.
  int RoomLeft(const KvLayout& layout) const;
  // Tokens still to be made, those under way among them.
  int TokensLeft() const { return n_prompt + request->max_tokens - 1 - position; }
  // False: it ends by length with what is under way.
  bool WantsRow() const { return TokensLeft() > ahead; }
  // The reason why it ends with `token`; empty: it goes on.
  std::optional<EndReason> EndsWithToken() const;
  RopeRange RangeIn(const RopeDesc& rope) const {
    return rope.RangeOf(int64_t{n_prompt} + request->max_tokens);
  }
  // KV of these tokens, the next ones, is in its pages: enters those that are full now.
  void Written(std::span<const int32_t> tokens, PrefixIndex* index, int page_tokens);
  // Enters the page that is not full.
  void EnterTail(PrefixIndex* index);
  // Gives back the pages that no further token sees.
  void Trim(KvPool* pool);
};

// InvalidArgument: the request cannot be met, or the KV that came is not its.
absl::Status CheckRequest(const DecodeRequest& request, int32_t vocab);
absl::Status CheckKv(const DecodeRequest& request, const HandoffArrived& kv, int32_t vocab,
                     const KvLayout& layout);

}  // namespace baton
