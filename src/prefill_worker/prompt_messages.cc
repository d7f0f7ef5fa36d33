#include "prefill_worker/prompt_messages.h"

#include <utility>

#include "common/planted_bug.h"

namespace baton {

OpenHandoff MakeOpen(const Prompt& prompt) {
  return {.ticket = prompt.request.ticket,
          .peer = prompt.request.sink.incarnation,
          .peer_address = prompt.request.sink.address};
}

OpenHandoff MakeOpenPush(const Prompt& prompt) {
  const Push& push = prompt.request.push;
  return {.ticket = push.ticket, .peer = push.sink.incarnation, .peer_address = push.sink.address};
}

AwaitInflow MakeAwait(const Prompt& prompt, int page_tokens) {
  const Inflow& inflow = prompt.request.inflow;
  AwaitInflow await{.ticket_id = inflow.ticket_id,
                    .epoch = prompt.request.epoch,
                    .pages = {},
                    .n_planes = prompt.inflow.planes,
                    .n_pages = prompt.inflow.pages};
  if (Planted(PlantedBug::kKeptPageSkipped) && prompt.inflow_before.has_begun() &&
      await.n_pages + 1 < inflow.tokens / page_tokens)
    ++await.n_pages;
  await.pages.assign(prompt.pages.begin(), prompt.pages.begin() + inflow.tokens / page_tokens);
  return await;
}

SendCells MakeCells(const Prompt& prompt, int plane, int n_planes, int first_page, int end_page) {
  SendCells cells{.ticket_id = prompt.request.ticket.id,
                  .plane = plane,
                  .n_planes = n_planes,
                  .first_page = first_page,
                  .pages = {}};
  cells.pages.assign(prompt.pages.begin() + first_page, prompt.pages.begin() + end_page);
  return cells;
}

SendCells MakePushedCells(const Prompt& prompt, int plane, int n_planes, int first_page,
                          int end_page) {
  SendCells cells = MakeCells(prompt, plane, n_planes, first_page, end_page);
  cells.ticket_id = prompt.request.push.ticket.id;
  cells.first_page -= prompt.request.push.ticket.first_page;
  return cells;
}

CommitHandoff MakeCommit(const Prompt& prompt, int32_t first_token) {
  return {.ticket_id = prompt.request.ticket.id,
          .record = {.first_token = first_token, .n_tokens = prompt.size()}};
}

CommitHandoff MakeCommitPush(const Prompt& prompt) {
  return {.ticket_id = prompt.request.push.ticket.id,
          .record = {.first_token = 0, .n_tokens = prompt.size()}};
}

HandoffArrived MakeArrived(Prompt* prompt, int32_t first_token) {
  HandoffArrived arrived;
  arrived.ticket_id = prompt->request.ticket.id;
  arrived.epoch = prompt->request.epoch;
  arrived.request_id = prompt->request.request_id;
  arrived.pages = std::exchange(prompt->pages, {});
  arrived.record = {.first_token = first_token, .n_tokens = prompt->size()};
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
  return part;
}

}  // namespace baton
