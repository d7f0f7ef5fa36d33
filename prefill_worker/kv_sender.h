// Sends a prompt's KV where its slices' outputs say: opens handoffs, announces cells when they are
// final, commits, cancels; and names the pages where inflows land. It keeps no state of its own:
// prompts in, commands for the transfer room appended to *effects. Engine thread.
#pragma once

#include <utility>
#include <variant>
#include <vector>

#include "engine/kv/kv_layout.h"
#include "kvtransfer/protocol/transfer_events.h"
#include "prefill_worker/prompt.h"
#include "proto/messages.h"

namespace baton {

// TransferCommand: to the transfer room. WorkerEvent: to the router. HandoffArrived: the finished
// KV of a prompt whose sink is this worker, for its decode batch; the pages are the batch's from
// now.
using PrefillEffect = std::variant<TransferCommand, WorkerEvent, HandoffArrived>;

class KvSender {
 public:
  // layout and effects outlive the sender. self: an output for this worker is no handoff.
  KvSender(const KvLayout* layout, Incarnation self, std::vector<PrefillEffect>* effects)
      : layout_(*layout), self_(self), effects_(*effects) {}

  void Open(SliceOutput* output);
  // All pages are held; inflows may land from now on.
  void Await(Prompt* prompt);
  // The slice at hand begins: opens its other outputs, and announces the KV that is there already.
  void BeginSlice(Prompt* prompt);
  // Positions [begin, end) of the planes are final. Announces full pages only: one begun in an
  // earlier chunk is announced when a chunk fills it.
  void AnnounceTokens(const Prompt& prompt, int plane, int n_planes, int begin, int end);
  // Announces the part of the slice at hand that an earlier attempt computed here, or received from
  // the rank that computed it.
  void AnnounceProjected(const Prompt& prompt);
  // Passes on what has arrived of the inflow of the slice at hand since `before`.
  void PassOn(const Prompt& prompt, const InflowProgress& before);
  // Commits the outputs of the slice at hand, which is computed, that are final.
  void CommitFinal(Prompt* prompt);
  // Commits an output of the slice at hand, all of which is computed.
  void Commit(const Prompt& prompt, SliceOutput* output);
  void Cancel(const Prompt& prompt);  // all that is open

 private:
  void Announce(const Prompt& prompt, int plane, int n_planes, int first_page, int end_page);
  void AnnounceTo(const Prompt& prompt, const PromptSlice& slice, int plane, int n_planes,
                  int first_page, int end_page);
  void Emit(TransferCommand command) { effects_.emplace_back(std::move(command)); }

  const KvLayout& layout_;
  const Incarnation self_;
  std::vector<PrefillEffect>& effects_;
};

}  // namespace baton
