#include "prefill_worker/prompt_messages.h"

#include <utility>

namespace baton {

OpenHandoff MakeOpen(const PromptRound& round) {
  return {
      .ticket = round.ticket, .peer = round.sink.incarnation, .peer_address = round.sink.address};
}

OpenHandoff MakeOpenPush(const PromptRound& round) {
  const Push& push = round.push;
  return {.ticket = push.ticket, .peer = push.sink.incarnation, .peer_address = push.sink.address};
}

AwaitInflow MakeAwait(const Prompt& prompt, const PromptRound& round, int page_tokens) {
  AwaitInflow await{.ticket_id = round.inflow_ticket,
                    .epoch = prompt.request.epoch,
                    .pages = {},
                    .n_planes = round.inflow.planes,
                    .n_pages = round.inflow.pages};
  await.pages.assign(prompt.pages.begin() + round.lacks_from / page_tokens,
                     prompt.pages.begin() + round.begin / page_tokens);
  return await;
}

SendCells MakeCells(const Prompt& prompt, const TicketId& ticket, int from, int plane, int n_planes,
                    int first_page, int end_page) {
  SendCells cells{.ticket_id = ticket,
                  .plane = plane,
                  .n_planes = n_planes,
                  .first_page = first_page - from,
                  .pages = {}};
  cells.pages.assign(prompt.pages.begin() + first_page, prompt.pages.begin() + end_page);
  return cells;
}

CommitHandoff MakeCommit(const PromptRound& round, int32_t first_token) {
  return {.ticket_id = round.ticket.id,
          .record = {.first_token = first_token, .n_tokens = round.end}};
}

CommitHandoff MakeCommitPush(const PromptRound& round) {
  return {.ticket_id = round.push.ticket.id, .record = {.first_token = 0, .n_tokens = round.end}};
}

HandoffArrived MakeArrived(Prompt* prompt) {
  HandoffArrived arrived;
  arrived.ticket_id = prompt->request.ticket.id;
  arrived.epoch = prompt->request.epoch;
  arrived.request_id = prompt->request.request_id;
  arrived.pages = std::exchange(prompt->pages, {});
  arrived.record = {.first_token = prompt->first_token, .n_tokens = prompt->size()};
  return arrived;
}

PromptComputed MakeComputed(const Prompt& prompt, absl::Time now) {
  return {.request_id = prompt.request.request_id,
          .epoch = prompt.request.epoch,
          .queue_us = absl::ToInt64Microseconds(prompt.first_step - prompt.admitted),
          .compute_us = absl::ToInt64Microseconds(now - prompt.first_step),
          .reused_tokens = prompt.reused};
}

PartEnded MakeEnded(const Prompt& prompt, EndReason reason, std::string message) {
  PartEnded part;
  part.request_id = prompt.request.request_id;
  part.epoch = prompt.request.epoch;
  part.was_prefill = true;
  part.reason = reason;
  part.fault = prompt.fault;
  part.message = std::move(message);
  part.transfer_us = prompt.transfer_us;
  part.recomputed_tokens = prompt.recomputed;
  part.reused_tokens = prompt.reused;
  return part;
}

}  // namespace baton
