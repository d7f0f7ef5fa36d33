// Makes a prompt's messages: commands to the transfer room, events to the router. Functions without
// state for the engine thread; only MakeArrived changes the prompt.
#pragma once

#include <cstdint>
#include <string>
#include <variant>

#include "absl/time/time.h"
#include "engine/sampling/sampler.h"
#include "kvtransfer/protocol/transfer_events.h"
#include "prefill_worker/prompt.h"
#include "proto/messages.h"

namespace baton {

// TransferCommand: to the transfer room. WorkerEvent: to the router. HandoffArrived: the finished
// KV of a prompt whose sink is this worker, for its decode batch; the pages are the batch's from
// now.
using PrefillEffect = std::variant<TransferCommand, WorkerEvent, HandoffArrived>;

OpenHandoff MakeOpen(const KvOutput& output);
// From this command on the slice's inflow may land in the prompt's pages, which are all held.
AwaitInflow MakeAwait(const Prompt& prompt, const PromptSlice& slice, int page_tokens);
// Planes [plane, plane + n_planes) of the prompt's pages [first_page, end_page), which are of the
// output, are final.
SendCells MakeCells(const Prompt& prompt, const KvOutput& output, int plane, int n_planes,
                    int first_page, int end_page);
// first_token: 0 unless the output ends with the prompt.
CommitHandoff MakeCommit(const PromptSlice& slice, const KvOutput& output, int32_t first_token);
// Moves the prompt's pages, and its first token, to the decode batch of this worker.
HandoffArrived MakeArrived(Prompt* prompt);

PromptComputed MakeComputed(const Prompt& prompt, absl::Time now);
PartEnded MakeEnded(const Prompt& prompt, EndReason reason, std::string message);

}  // namespace baton
