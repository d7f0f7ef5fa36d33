// What is said of a prompt: commands to the transfer room, events to the router. Pure functions.
#pragma once

#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "engine/sampling/sampler.h"
#include "kvtransfer/protocol/transfer_events.h"
#include "prefill_worker/prompt.h"
#include "proto/messages.h"

namespace baton {

OpenHandoff MakeOpen(const PromptRound& round);
OpenHandoff MakeOpenPush(const PromptRound& round);
// The round's inflow may land in its pages from now on.
AwaitInflow MakeAwait(const Prompt& prompt, const PromptRound& round, int page_tokens);
// Planes [plane, plane + n_planes) of the prompt's pages [first_page, end_page) are final. Those of
// the handoff count from `from` on.
SendCells MakeCells(const Prompt& prompt, const TicketId& ticket, int from, int plane, int n_planes,
                    int first_page, int end_page);
CommitHandoff MakeCommit(const PromptRound& round, int32_t first_token);
CommitHandoff MakeCommitPush(const PromptRound& round);
// Its pages go to the decode batch of this worker.
HandoffArrived MakeArrived(Prompt* prompt);

PromptComputed MakeComputed(const Prompt& prompt, absl::Time now);
PartEnded MakeEnded(const Prompt& prompt, EndReason reason, std::string message);

}  // namespace baton
