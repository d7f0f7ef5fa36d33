#include "prefill_worker/kv_sender.h"

#include <algorithm>
#include <utility>

namespace baton {

void KvSender::Open(SliceOutput* output) {
  output->is_open = true;
  Emit(OpenHandoff{.ticket = output->to.ticket,
                   .peer = output->to.peer.incarnation,
                   .peer_address = output->to.peer.address});
}

void KvSender::Await(Prompt* prompt) {
  for (PromptSlice& slice : prompt->slices) {
    if (!slice.has_inflow()) continue;
    slice.inflow_open = true;
    AwaitInflow await{.ticket_id = slice.inflow_id,
                      .epoch = prompt->request.epoch,
                      .pages = {},
                      .n_planes = slice.inflow.planes,
                      .n_pages = slice.inflow.pages};
    await.pages.assign(prompt->pages.begin() + slice.lacks_from / layout_.page_tokens,
                       prompt->pages.begin() + slice.begin / layout_.page_tokens);
    Emit(std::move(await));
  }
}

void KvSender::BeginSlice(Prompt* prompt) {
  PromptSlice& slice = prompt->slice();
  for (SliceOutput& output : slice.outputs)
    if (!output.is_open && output.to.peer.incarnation != self_) Open(&output);
  // The decode worker got what was there before the slice meanwhile.
  if (prompt->is_for_rank())
    AnnounceTo(*prompt, slice, 0, layout_.n_layers(), 0, slice.lacks_from / layout_.page_tokens);
  if (!slice.has_inflow() || slice.in_steps)
    AnnounceTokens(*prompt, 0, layout_.n_layers(), slice.lacks_from, slice.first_own());
}

void KvSender::AnnounceTokens(const Prompt& prompt, int plane, int n_planes, int begin, int end) {
  Announce(prompt, plane, n_planes, begin / layout_.page_tokens, prompt.FinalPages(end, layout_));
}

void KvSender::AnnounceProjected(const Prompt& prompt) {
  const PromptSlice& slice = prompt.slice();
  const int begin = slice.first_own();
  if (!slice.run) return AnnounceTokens(prompt, 0, layout_.n_layers(), begin, slice.end);
  const int layers = slice.run->projected_layers();
  AnnounceTokens(prompt, 0, layers, begin, slice.end);
  AnnounceTokens(prompt, layers, 1, begin, begin + slice.run->projected_rows());
}

void KvSender::PassOn(const Prompt& prompt, const InflowProgress& before) {
  const PromptSlice& slice = prompt.slice();
  const InflowProgress& now = slice.inflow;
  const int from = slice.lacks_from / layout_.page_tokens;
  const int end = slice.begin / layout_.page_tokens;
  if (now.planes == before.planes)
    return Announce(prompt, now.planes, 1, from + before.pages, from + now.pages);
  Announce(prompt, before.planes, 1, from + before.pages, end);
  Announce(prompt, before.planes + 1, now.planes - before.planes - 1, from, end);
  Announce(prompt, now.planes, 1, from, from + now.pages);
}

void KvSender::Announce(const Prompt& prompt, int plane, int n_planes, int first_page,
                        int end_page) {
  AnnounceTo(prompt, prompt.slice(), plane, n_planes, first_page, end_page);
  // The decode worker, which computes nothing before the last slice is there, gets all KV at once.
  if (prompt.request.wants_first_token && !prompt.is_last_slice())
    AnnounceTo(prompt, prompt.slices.back(), plane, n_planes, first_page, end_page);
}

// By the open outputs of `slice`, to each what is in its range.
void KvSender::AnnounceTo(const Prompt& prompt, const PromptSlice& slice, int plane, int n_planes,
                          int first_page, int end_page) {
  for (const SliceOutput& output : slice.outputs) {
    const int from = std::max(first_page, output.to.first_page);
    const int to = std::min(end_page, output.end_page());
    if (!output.is_open || n_planes <= 0 || from >= to) continue;
    // The transfer room counts from the promise's first page.
    SendCells cells{.ticket_id = output.id(),
                    .plane = plane,
                    .n_planes = n_planes,
                    .first_page = from - output.to.first_page + output.to.ticket.first_page,
                    .pages = {}};
    cells.pages.assign(prompt.pages.begin() + from, prompt.pages.begin() + to);
    Emit(std::move(cells));
  }
}

// A rank in the middle may have computed its slice before the last layer of its inflow is there: it
// only passes that on. What is the slice alone waits for nothing.
void KvSender::CommitFinal(Prompt* prompt) {
  PromptSlice& slice = prompt->slice();
  const bool misses_inflow = slice.misses_inflow(layout_.n_layers());
  const int own_page = slice.begin / layout_.page_tokens;
  for (SliceOutput& output : slice.outputs)
    if (!output.committed && (!misses_inflow || output.to.first_page == own_page))
      Commit(*prompt, &output);
}

void KvSender::Commit(const Prompt& prompt, SliceOutput* output) {
  output->committed = true;
  Emit(
      CommitHandoff{.ticket_id = output->id(),
                    .record = {.first_token = prompt.first_token, .n_tokens = prompt.slice().end}});
}

void KvSender::Cancel(const Prompt& prompt) {
  const auto cancel = [&](const TicketId& ticket) {
    Emit(CancelHandoff{.ticket_id = ticket, .epoch = prompt.request.epoch});
  };
  for (const PromptSlice& slice : prompt.slices) {
    for (const SliceOutput& output : slice.outputs)
      if (output.is_open) cancel(output.id());
    if (slice.inflow_open) cancel(slice.inflow_id);
  }
}

}  // namespace baton
