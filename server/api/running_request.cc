#include "server/api/running_request.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/log.h"
#include "server/access/key_holder.h"
#include "server/api/request_deadlines.h"

namespace baton {
namespace {

double Ms(absl::Duration d) { return absl::ToDoubleMilliseconds(d); }

}  // namespace

void RunningRequest::SetDeadline(absl::Duration max) {
  const auto asked = RequestTimeout(call.request.timeout);
  deadline = arrived + std::min(max, asked.value_or(max));
}

ApiError RunningRequest::TooLate() const {
  return HttpError(
      504,
      absl::StrCat("The request was not done within ", absl::FormatDuration(deadline - arrived),
                   "; see ", kTimeoutHeader, ", and server.request_timeout."),
      "timeout");
}

void RunningRequest::OnChoiceEnd(size_t choice, const EmitEnd& end) {
  choices[choice].ended = true;
  if (is_traced()) choices[choice].timeline = end.timeline;
  ++n_ended;
  last_ended = choice;
  last_end = end;
  n_reused += end.timeline.reused_tokens;
}

// Tells the parts of the time to the first token that the router's process took. A request that
// found its workers at once was planned and sent before `sent`, which the wire's time has in it;
// the workers may have begun meanwhile.
void RunningRequest::TellOwnStages(const Choice& choice, FinishedRequest* finished) const {
  const Timeline& timeline = finished->timeline;
  const bool waited = timeline.queue_to_first > absl::ZeroDuration();
  const absl::Duration planned =
      waited ? absl::ZeroDuration() : std::min(choice.sent - choice.submitted, timeline.wire);
  finished->plan_time = choice.submitted - arrived - text_time + planned;
  finished->wire_time = timeline.wire - planned;
  finished->deliver_time =
      std::max(absl::ZeroDuration(), choice.first_token - choice.submitted - timeline.ttft);
}

std::optional<absl::Duration> RunningRequest::OnToken(size_t index, absl::Time now) {
  Choice& choice = choices[index];
  const absl::Time before = std::exchange(choice.last_token, now);
  if (choice.first_token == absl::InfinitePast()) {
    choice.first_token = now;
    if (!ttft) ttft = now - arrived;
    return std::nullopt;
  }
  const absl::Duration gap = now - before;
  if (before == choice.first_token && choice.gaps.n == 0) choice.second_gap = gap;
  choice.gaps.Add(gap, limits.itl);
  return gap;
}

FinishedRequest RunningRequest::Finished(absl::Time now) const {
  FinishedRequest finished;
  finished.endpoint = api->name;
  if (call.request.holder != nullptr) finished.key = call.request.holder->name;
  finished.stream = stream;
  if (answer) {
    const GeneratedText& text = answer->text(last_ended);
    finished.finish = text.FinishReason(last_end.reason);
    finished.n_choices = static_cast<int64_t>(answer->n_choices());
    finished.n_prompt = answer->n_prompt();
    finished.n_tokens = answer->n_tokens();
    finished.n_last_tokens = text.n_tokens();
    finished.n_per_prompt = static_cast<int64_t>(answer->n_per_prompt());
    finished.n_looked_up = finished.n_prompt * finished.n_per_prompt;
    finished.n_reused = n_reused;
    for (size_t i = 0; i < answer->n_choices(); ++i)
      finished.max_choice_tokens = std::max(finished.max_choice_tokens, answer->text(i).n_tokens());
  }
  if (!choices.empty()) {
    const Choice& last = choices[last_ended];
    if (last.first_token != absl::InfinitePast()) finished.first_token = last.first_token - arrived;
    if (last.gaps.n > 0) finished.second_gap = last.second_gap;
  }
  finished.in_ttft = limits.ttft == absl::ZeroDuration() || (ttft && *ttft <= limits.ttft);
  finished.in_itl = limits.itl == absl::ZeroDuration() ||
                    std::all_of(choices.begin(), choices.end(), [&](const Choice& choice) {
                      return choice.gaps.Meets(limits.itl);
                    });
  finished.max_tokens = max_tokens;
  finished.text_time = text_time;
  finished.total = now - arrived;
  finished.timeline = last_end.timeline;
  if (finished.first_token) TellOwnStages(choices[last_ended], &finished);
  return finished;
}

FinishedRequest RunningRequest::Failed(int http_status, absl::Time now) const {
  FinishedRequest finished = Finished(now);
  finished.failed = stream_started;
  finished.http_status = stream_started ? 200 : http_status;
  finished.finish = "error";
  // Stages are told at the end of a choice, which may not have come.
  finished.first_token.reset();
  finished.second_gap.reset();
  finished.n_last_tokens = 0;
  return finished;
}

std::string RunningRequest::log_name(std::string_view of_choice) const {
  const TraceContext& trace = call.request.trace;
  const std::string name = id() + std::string(of_choice);
  return trace.is_known() ? absl::StrCat(name, " trace ", trace.log_text()) : name;
}

void RunningRequest::Log(const FinishedRequest& f) const {
  if (!LogEnabled(LogLevel::kInfo)) return;
  const Timeline& t = f.timeline;
  LogInfo(
      "request %s %d %s  prompt %d  reused %d  output %d  choices %d  ms: text %.2f  route %.2f  "
      "prefill queue %.2f  prefill %.2f  transfer %.2f  decode queue %.2f  decode %.2f  "
      "ttft %.2f  total %.2f  unaccounted %.2f  via %s%s %s  attempts %d  ranks %d  rounds %d  "
      "slices %s  push %s  "
      "first token %.2f predicted %s of it queue %.2f  between tokens %.2f predicted %.2f",
      log_name(), f.http_status, std::string(f.finish), f.n_prompt, t.reused_tokens, f.n_tokens,
      f.n_choices, Ms(f.text_time), Ms(t.router_queue), Ms(t.prefill_queue), Ms(t.prefill),
      Ms(t.transfer), Ms(t.decode_queue), Ms(t.decode), Ms(t.ttft), Ms(f.total),
      Ms(t.unaccounted() + f.total - f.text_time - t.total),
      t.prefill_heads.empty() ? "" : t.prefill_heads + "+",
      t.prefill_worker.empty() ? "-" : t.prefill_worker,
      t.decode_worker.empty() ? "-" : t.decode_worker, t.attempts, t.slices.size(), t.rounds,
      t.slices.empty() ? "-" : absl::StrJoin(t.slices, ","), std::string(NameOf(t.push)),
      Ms(t.took),
      t.predicted > absl::ZeroDuration() ? absl::StrFormat("%.2f", Ms(t.predicted)) : "-",
      Ms(t.predicted_queue), f.n_tokens > 1 ? Ms((t.total - t.ttft) / (f.n_tokens - 1)) : 0,
      Ms(t.predicted_gap));
}

}  // namespace baton
