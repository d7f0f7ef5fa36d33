#include "prefill_worker/prompt_messages.h"

#include <utility>

namespace baton {

OpenHandoff MakeOpen(const KvOutput& output) {
  return {.ticket = output.ticket,
          .peer = output.peer.incarnation,
          .peer_address = output.peer.address};
}

AwaitInflow MakeAwait(const Prompt& prompt, const PromptSlice& slice, int page_tokens) {
  AwaitInflow await{.ticket_id = slice.inflow_id,
                    .epoch = prompt.request.epoch,
                    .pages = {},
                    .n_planes = slice.inflow.planes,
                    .n_pages = slice.inflow.pages};
  await.pages.assign(prompt.pages.begin() + slice.lacks_from / page_tokens,
                     prompt.pages.begin() + slice.begin / page_tokens);
  return await;
}

SendCells MakeCells(const Prompt& prompt, const KvOutput& output, int plane, int n_planes,
                    int first_page, int end_page) {
  // The transfer room counts from the promise's first page.
  SendCells cells{.ticket_id = output.ticket.id,
                  .plane = plane,
                  .n_planes = n_planes,
                  .first_page = first_page - output.first_page + output.ticket.first_page,
                  .pages = {}};
  cells.pages.assign(prompt.pages.begin() + first_page, prompt.pages.begin() + end_page);
  return cells;
}

CommitHandoff MakeCommit(const PromptSlice& slice, const KvOutput& output, int32_t first_token) {
  return {.ticket_id = output.ticket.id,
          .record = {.first_token = first_token, .n_tokens = slice.end}};
}

HandoffArrived MakeArrived(Prompt* prompt) {
  HandoffArrived arrived;
  arrived.ticket_id = prompt->first_output()->to.ticket.promise;
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
  part.ticket_id = prompt.broken;
  part.message = std::move(message);
  part.transfer_us = prompt.transfer_us;
  part.recomputed_tokens = prompt.recomputed;
  part.reused_tokens = prompt.reused;
  return part;
}

}  // namespace baton
