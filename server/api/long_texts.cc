#include "server/api/long_texts.h"

#include <memory>
#include <utility>
#include <vector>

namespace baton {
namespace {

TextCalls::Caller CallerOf(const RunningRequest& running) {
  return {running.call.exchange, running.call.request.client};
}

}  // namespace

// Counts what a waiting job holds, not what it will write: one long text must not take the room of
// all others in the pool.
size_t HeldBytes(const EmitToken& token) {
  size_t n = sizeof(token);
  for (const PromptLogprob& prompt : token.prompt_logprobs)
    n += sizeof(prompt) + prompt.top.size() * sizeof(TokenLogprob);
  return n;
}

// Events that wait are at most the request's own tokens and ends.
bool LongTexts::Holds(RunningRequest* running, size_t choice, const EmitToken& token) {
  if (running->writing != RunningRequest::Writing::kNothing) {
    running->held.emplace_back(token);
    return true;
  }
  const size_t bytes = running->answer->PromptBytes(choice, token);
  if (bytes <= Answer::kLongText) return false;
  const auto shared = std::make_shared<const EmitToken>(token);
  const bool runs = calls_->RunOnPool(
      CallerOf(*running), HeldBytes(token),
      [this, running, choice, shared, answer = running->answer]() -> TextCalls::Finish {
        auto written =
            std::make_shared<std::vector<std::string>>(answer->WritePrompt(choice, *shared));
        return [this, running, choice, shared, written] {
          running->writing = RunningRequest::Writing::kNothing;
          running->answer->TakePrompt(choice, std::move(*written));
          running->held.insert(running->held.begin(), *shared);
          TellHeld(running);
        };
      });
  if (runs) running->writing = RunningRequest::Writing::kPrompt;
  return runs;
}

bool LongTexts::Holds(RunningRequest* running, const EmitEnd& end) {
  if (running->writing != RunningRequest::Writing::kPrompt) return false;
  running->held.emplace_back(end);
  return true;
}

void LongTexts::WriteEnd(RunningRequest* running, Told told) {
  Write(
      running, running->answer->EndBytes(), [answer = running->answer] { return answer->OnEnd(); },
      std::move(told));
}

void LongTexts::WriteError(RunningRequest* running, const ApiError& error, Told told) {
  Write(
      running, running->answer->ErrorBytes(),
      [answer = running->answer, error] { return answer->OnError(error); }, std::move(told));
}

void LongTexts::Write(RunningRequest* running, size_t bytes, std::function<std::string()> write,
                      Told told) {
  const bool runs = bytes > Answer::kLongText &&
                    calls_->RunOnPool(CallerOf(*running), Answer::kLongText,
                                      [write, told]() -> TextCalls::Finish {
                                        auto text = std::make_shared<std::string>(write());
                                        return [told, text] { told(std::move(*text)); };
                                      });
  if (!runs) {
    told(write());
    return;
  }
  running->writing = RunningRequest::Writing::kEnd;
}

void LongTexts::Drop(RunningRequest* running, bool retold) {
  calls_->OnGone(running->call.exchange);
  running->writing = RunningRequest::Writing::kNothing;
  if (retold) {
    TellHeld(running);
  } else {
    running->held.clear();
  }
}

// The request may end, and an event may wait again, while the events are told.
void LongTexts::TellHeld(RunningRequest* running) {
  const auto held = std::exchange(running->held, {});
  for (const auto& event : held) {
    if (const auto* token = std::get_if<EmitToken>(&event)) {
      listener_->OnToken(*token);
    } else {
      listener_->OnEnd(std::get<EmitEnd>(event));
    }
  }
}

}  // namespace baton
