// What is said of a prompt: commands to the transfer room, events to the router. Pure functions.
#pragma once

#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "engine/sampler.h"
#include "kvtransfer/transfer.h"
#include "prefill_worker/prompt.h"
#include "proto/messages.h"

namespace baton {

OpenHandoff MakeOpen(const Prompt& prompt);
OpenHandoff MakeOpenPush(const Prompt& prompt);
// Its inflow may land in its first pages from now on.
AwaitInflow MakeAwait(const Prompt& prompt, int page_tokens);
// Planes [plane, plane + n_planes) of its pages [first_page, end_page) are final.
SendCells MakeCells(const Prompt& prompt, int plane, int n_planes, int first_page, int end_page);
// The same to its push, whose pages count from its slice's first.
SendCells MakePushedCells(const Prompt& prompt, int plane, int n_planes, int first_page,
                          int end_page);
CommitHandoff MakeCommit(const Prompt& prompt, int32_t first_token);
CommitHandoff MakeCommitPush(const Prompt& prompt);
// Its pages go to the decode batch of this worker.
HandoffArrived MakeArrived(Prompt* prompt, int32_t first_token);

PromptComputed MakeComputed(const Prompt& prompt, absl::Time now);
PartEnded MakeEnded(const Prompt& prompt, EndReason reason, std::string message);

}  // namespace baton
