#include "server/api/completion_answer.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "server/api/sse_event.h"

namespace baton {
namespace {

void WriteDigests(JsonWriter& json, const std::vector<uint64_t>& digests) {
  json.Array("baton_digests", [&] {
    for (const uint64_t digest : digests) json.Value(absl::StrFormat("%016x", digest));
  });
}

// Tokens per event of a stream: as asked for, but fewer where each has many log-probabilities
// beside it. An event of many megabytes would make a client that reads look like one that does not
// (server.max_unsent).
int64_t TokensPerEvent(const ApiRequest& request) {
  constexpr int64_t kMaxLogprobs = 2048;  // of one event; some 60 bytes each
  if (!request.top_logprobs) return request.stream_interval;
  const int64_t of_token =
      1 + *request.top_logprobs + static_cast<int64_t>(request.logprob_token_ids.size());
  return std::min(request.stream_interval, kMaxLogprobs / of_token);
}

}  // namespace

CompletionAnswer::CompletionAnswer(const CompletionForm& form, const ServedModel& model,
                                   const ApiRequest& request,
                                   const std::vector<PreparedPrompt>& prompts,
                                   const AnswerAbout& about)
    : Answer(model, request, prompts),
      form_(form),
      model_(model),
      about_(about),
      n_(static_cast<size_t>(request.n)),
      stream_(request.stream),
      include_usage_(request.include_usage),
      continuous_usage_(request.continuous_usage),
      token_ids_(request.return_token_ids),
      timings_(request.timings),
      digests_(request.digests),
      logprobs_(request.top_logprobs.has_value()),
      include_reasoning_(request.include_reasoning),
      prompt_only_(request.tells_prompt_only()),
      scores_prompt_(request.prompt_logprobs || request.echoes_logprobs()),
      tokens_per_event_(TokensPerEvent(request)),
      top_logprobs_(request.top_logprobs),
      n_beginning_(scores_prompt_ ? choices_per_prompt_ : 1),
      logprob_form_(
          {model.tokenizer.get(), request.tokens_as_ids, request.logprob_token_ids.size()}),
      choices_(n_choices()) {
  prompts_.reserve(prompts.size());
  for (const PreparedPrompt& prompt : prompts) prompts_.emplace_back(request, prompt);
}

std::string CompletionAnswer::OnToken(size_t i, const EmitToken& token) {
  const bool brings_prompt = AwaitsPrompt(i) && i == FirstOf(i);
  if (brings_prompt && choices_[i].written_beginning.empty())
    choices_[i].of_prompt = token.prompt_logprobs;
  choices_[i].has_token = true;
  const bool tells = TakeToken(i, token) && !AwaitsPrompt(i);
  if (!stream_) return "";
  std::string events;
  if (tells) events = Events(i, false);
  return brings_prompt ? events + EventsOfWaiting(i) : events;
}

// The choices after a prompt's first, `first`, that have waited for it.
std::string CompletionAnswer::EventsOfWaiting(size_t first) {
  std::string events;
  for (size_t other = first + 1; other < first + choices_per_prompt_; ++other)
    if (choices_[other].end || choices_[other].n_waiting > 0)
      events += Events(other, choices_[other].end.has_value());
  return events;
}

bool CompletionAnswer::TakeToken(size_t i, const EmitToken& token) {
  GeneratedText& text = texts_[i];
  Choice& choice = choices_[i];
  if (text.ended() || prompt_only_) return false;
  Take(i, text.Push(token.token));
  choice.logprob_sum += static_cast<double>(token.logprob);
  if (text.stop_token()) {
    choice.stop_token = token;
    return false;
  }
  Keep(&choice, token);
  if (logprobs_) {
    const int64_t offset = PromptOf(i).echo_characters() + text.token_offset();
    choice.logprobs.Add(token, text.token_bytes(), offset);
  }
  ++choice.n_waiting;
  return text.n_tokens() == 1 || choice.n_waiting >= tokens_per_event_;
}

void CompletionAnswer::Take(size_t i, AnswerPiece piece) {
  if (!include_reasoning_) piece.reasoning.clear();
  for (CallPiece& call : piece.calls)
    if (!call.name.empty()) call.id = CallId(absl::StrCat(about_.id, ".", i), call.index);
  choices_[i].piece.Add(std::move(piece));
}

void CompletionAnswer::Keep(Choice* choice, const EmitToken& token) const {
  if (token_ids_) choice->ids.push_back(token.token);
  if (digests_) choice->digests.push_back(token.digest);
}

std::string CompletionAnswer::OnChoiceEnd(size_t i, const EmitEnd& end) {
  Choice& choice = choices_[i];
  const bool brings_no_prompt = AwaitsPrompt(i) && i == FirstOf(i);
  Take(i, texts_[i].Finish());
  choice.end = end;
  last_ended_ = i;
  if (!stream_ || AwaitsPrompt(i)) return "";
  const std::string events = Events(i, true);
  return brings_no_prompt ? events + EventsOfWaiting(i) : events;
}

std::string CompletionAnswer::OnEnd() {
  if (!stream_) return Body();
  std::string events;
  if (include_usage_) {
    events = SseEvent(Envelope([&](JsonWriter& json) {
      json.Array("choices", [] {});
      WriteUsage(json, ReusedTokens());
    }));
  }
  return events + kSseDone;
}

std::string CompletionAnswer::OnError(const ApiError& error) {
  return SseEvent(ErrorBody(error)) + kSseDone;
}

template <typename Fill>
std::string CompletionAnswer::Envelope(const Fill& fill) const {
  return JsonObject([&](JsonWriter& json) {
    json.Field("id", form_.id_prefix + about_.id);
    json.Field("object", stream_ ? form_.chunk_object : form_.object);
    json.Field("created", about_.created);
    json.Field("model", model_.name);
    json.FieldOrNull("system_fingerprint", about_.system_fingerprint);
    fill(json);
  });
}

std::string CompletionAnswer::Events(size_t i, bool last) {
  Choice& choice = choices_[i];
  const bool is_first = !choice.has_begun;
  std::string events = BeginOnce(i);
  const bool has_logprobs = logprobs_ && choice.logprobs.n_taken() < texts_[i].n_told();
  const bool has_piece = !choice.piece.empty() || choice.n_waiting > 0 || has_logprobs;
  if (!last || (form_.finish != nullptr && has_piece)) events += Event(i, false);
  if (last) events += Event(i, true);
  if (!is_first) return events;
  prompt_bytes_ += events.size();
  const auto first = choices_.begin() + static_cast<ptrdiff_t>(FirstOf(i));
  const bool is_told = std::all_of(first, first + static_cast<ptrdiff_t>(choices_per_prompt_),
                                   [](const Choice& c) { return c.has_begun; });
  // clear() would keep the memory.
  if (is_told) std::vector<PromptLogprob>().swap(first->of_prompt);
  return events;
}

std::string CompletionAnswer::BeginOnce(size_t i) {
  Choice& choice = choices_[i];
  if (std::exchange(choice.has_begun, true)) return "";
  if (!choice.written_beginning.empty()) return std::exchange(choice.written_beginning, "");
  const ToldPrompt& prompt = PromptOf(i);
  const bool has_beginning = form_.begin != nullptr || prompt.is_echoed() ||
                             prompt.has_logprobs() || prompt.Bytes(0) > kLongText;
  if (!has_beginning) return "";
  return Beginning(i, TakePromptTurn(i), choices_[FirstOf(i)].of_prompt);
}

bool CompletionAnswer::TakePromptTurn(size_t i) {
  return !std::exchange(form_.prompt_beside_choices ? told_prompt_ : choices_[i].told_prompt, true);
}

std::string CompletionAnswer::Beginning(size_t i, bool tells_prompt,
                                        const std::vector<PromptLogprob>& of_prompt) const {
  const std::vector<ReportedToken> echoed = PromptOf(i).EchoedTokens(of_prompt);
  return SseEvent(Envelope([&](JsonWriter& json) {
    json.Array("choices", [&] {
      json.Object([&] {
        json.Field("index", i);
        if (form_.begin != nullptr) {
          form_.begin(json);
        } else {
          form_.piece(json, {.content = PromptOf(i).echo()});
        }
        if (echoed.empty()) {
          json.Field("logprobs", nullptr);
        } else {
          form_.logprobs(json, logprob_form_, echoed);
        }
        json.Field("finish_reason", nullptr);
        if (tells_prompt && !form_.prompt_beside_choices)
          PromptOf(i).Write(json, logprob_form_, of_prompt);
      });
    });
    if (tells_prompt && form_.prompt_beside_choices)
      PromptOf(i).Write(json, logprob_form_, of_prompt);
    WriteEventUsage(json);
  }));
}

// --- long texts ---------------------------------------------------------------------------------

size_t CompletionAnswer::PromptBytes(size_t i, const EmitToken& token) const {
  if (!stream_ || choices_[i].has_begun || !choices_[i].written_beginning.empty()) return 0;
  // The first choice of a prompt tells it for all.
  if (scores_prompt_ && i != FirstOf(i)) return 0;
  const size_t n_tell = form_.prompt_beside_choices ? 1 : n_beginning_;
  return PromptOf(i).Bytes(token.prompt_logprobs.size()) * n_tell;
}

std::vector<std::string> CompletionAnswer::WritePrompt(size_t i, const EmitToken& token) const {
  std::vector<std::string> written;
  for (size_t j = i; j < i + n_beginning_; ++j) {
    const bool tells = form_.prompt_beside_choices ? j == i && !told_prompt_ : true;
    written.push_back(Beginning(j, tells, token.prompt_logprobs));
  }
  return written;
}

void CompletionAnswer::TakePrompt(size_t i, std::vector<std::string> written) {
  for (size_t j = 0; j < written.size(); ++j) {
    TakePromptTurn(i + j);
    choices_[i + j].written_beginning = std::move(written[j]);
  }
}

size_t CompletionAnswer::EndBytes() const {
  if (stream_) return 0;
  const size_t n_logprobs =
      logprobs_ ? 1 + static_cast<size_t>(top_logprobs_.value_or(0)) + logprob_form_.n_named : 0;
  const size_t of_token = kTokenBytes + n_logprobs * kLogprobBytes + (token_ids_ ? kIdBytes : 0);
  size_t n = static_cast<size_t>(n_tokens()) * of_token;
  for (size_t i = 0; i < (form_.prompt_beside_choices ? 1 : choices_.size()); ++i)
    n += PromptOf(i).Bytes(choices_[FirstOf(i)].of_prompt.size());
  return n;
}

// --- members ------------------------------------------------------------------------------------

std::string CompletionAnswer::Event(size_t i, bool last) {
  Choice& choice = choices_[i];
  std::string event = SseEvent(Envelope([&](JsonWriter& json) {
    json.Array("choices", [&] {
      json.Object([&] {
        json.Field("index", i);
        if (last && form_.finish != nullptr) {
          form_.finish(json);
        } else {
          form_.piece(json, choice.piece);
        }
        WriteRest(json, i, last);
      });
    });
    WriteEventUsage(json);
    if (last) WriteTimings(json, *choice.end, texts_[i].n_prompt(), texts_[i].n_tokens());
  }));
  choice.piece = {};
  choice.ids.clear();
  choice.digests.clear();
  choice.n_waiting = 0;
  return event;
}

std::string CompletionAnswer::Body() {
  return Envelope([&](JsonWriter& json) {
    json.Array("choices", [&] {
      size_t index = 0;
      for (const size_t i : Chosen()) {
        json.Object([&] {
          json.Field("index", index++);
          AnswerPiece& answer = choices_[i].piece;
          answer.content.insert(0, PromptOf(i).echo());
          form_.whole(json, answer);
          WriteRest(json, i, true);
        });
      }
    });
    if (form_.prompt_beside_choices)
      PromptOf(0).Write(json, logprob_form_, choices_.front().of_prompt);
    WriteUsage(json, ReusedTokens());
    WriteTimings(json, *choices_[last_ended_].end, n_prompt(), n_tokens());
  });
}

std::vector<size_t> CompletionAnswer::Chosen() const {
  const auto mean_logprob = [this](size_t i) {
    return choices_[i].logprob_sum /
           static_cast<double>(std::max<int64_t>(1, texts_[i].n_tokens()));
  };
  std::vector<size_t> chosen;
  for (size_t first = 0; first < choices_.size(); first += choices_per_prompt_) {
    std::vector<size_t> ranked(choices_per_prompt_);
    std::iota(ranked.begin(), ranked.end(), first);
    if (n_ < choices_per_prompt_) {
      std::stable_sort(ranked.begin(), ranked.end(),
                       [&](size_t a, size_t b) { return mean_logprob(a) > mean_logprob(b); });
    }
    chosen.insert(chosen.end(), ranked.begin(), ranked.begin() + static_cast<ptrdiff_t>(n_));
  }
  return chosen;
}

void CompletionAnswer::WriteRest(JsonWriter& json, size_t i, bool last) {
  Choice& choice = choices_[i];
  if (last && choice.stop_token) Keep(&choice, *choice.stop_token);
  std::vector<ReportedToken> told = choice.logprobs.TakeUpTo(texts_[i].n_told());
  if (!stream_) {  // a stream has told them with the prompt's text
    std::vector<ReportedToken> echoed = PromptOf(i).EchoedTokens(choices_[FirstOf(i)].of_prompt);
    told.insert(told.begin(), std::make_move_iterator(echoed.begin()),
                std::make_move_iterator(echoed.end()));
  }
  if (logprobs_ && (!told.empty() || !stream_)) {
    form_.logprobs(json, logprob_form_, told);
  } else {
    json.Field("logprobs", nullptr);
  }
  WriteFinish(json, i, last);
  if (token_ids_) {
    if (!stream_ || !choice.ids.empty()) WriteIds(json, "token_ids", choice.ids);
  }
  if (!form_.prompt_beside_choices && TakePromptTurn(i))
    PromptOf(i).Write(json, logprob_form_, choices_[FirstOf(i)].of_prompt);
  if (digests_ && (!stream_ || !choice.digests.empty())) WriteDigests(json, choice.digests);
}

// finish_reason and stop_reason. The latter as vLLM: the stop string, the id of a stop token that
// the client asked for, else null.
void CompletionAnswer::WriteFinish(JsonWriter& json, size_t i, bool last) const {
  if (!last) {
    json.Field("finish_reason", nullptr);
    return;
  }
  const GeneratedText& text = texts_[i];
  const EndReason reason = choices_[i].end->reason;
  json.Field("finish_reason", text.FinishReason(reason));
  const std::vector<int32_t>& eos = model_.eos_tokens;
  if (text.stopped()) {
    json.Field("stop_reason", *text.stop_string());
  } else if (reason == EndReason::kStopToken && text.stop_token() &&
             std::find(eos.begin(), eos.end(), *text.stop_token()) == eos.end()) {
    json.Field("stop_reason", *text.stop_token());
  } else {
    json.Field("stop_reason", nullptr);
  }
}

// reused_tokens: prompt tokens whose KV was cached; empty: unknown yet.
void CompletionAnswer::WriteUsage(JsonWriter& json, std::optional<int64_t> reused_tokens) const {
  json.Object("usage", [&] {
    json.Field("prompt_tokens", n_prompt());
    json.Field("completion_tokens", n_tokens());
    json.Field("total_tokens", n_prompt() + n_tokens());
    if (reused_tokens) {
      json.Object("prompt_tokens_details", [&] { json.Field("cached_tokens", *reused_tokens); });
    }
    json.Object("completion_tokens_details",
                [&] { json.Field("reasoning_tokens", n_reasoning()); });
  });
}

void CompletionAnswer::WriteEventUsage(JsonWriter& json) const {
  if (continuous_usage_) {
    WriteUsage(json, std::nullopt);
  } else if (include_usage_) {
    json.Field("usage", nullptr);
  }
}

// Counts each prompt's first choice alone: the other choices may find the KV that the first
// computed.
int64_t CompletionAnswer::ReusedTokens() const {
  int64_t n = 0;
  for (size_t i = 0; i < choices_.size(); i += choices_per_prompt_)
    n += choices_[i].end->timeline.reused_tokens;
  return n;
}

void CompletionAnswer::WriteTimings(JsonWriter& json, const EmitEnd& end, int64_t n_prompt,
                                    int64_t n_tokens) const {
  if (!timings_) return;
  const Timeline& timeline = end.timeline;
  const auto ms = [&](std::string_view key, absl::Duration duration) {
    json.FixedField(key, absl::ToDoubleMilliseconds(duration), 3);
  };
  json.Object("timings", [&] {
    json.Field("prompt_n", n_prompt);
    json.Field("predicted_n", n_tokens);
    ms("text_ms", about_.text_time);
    ms("queue_ms", timeline.router_queue);
    ms("prefill_queue_ms", timeline.prefill_queue);
    ms("prefill_ms", timeline.prefill);
    ms("kv_transfer_ms", timeline.transfer);
    ms("decode_queue_ms", timeline.decode_queue);
    ms("decode_ms", timeline.decode);
    ms("ttft_ms", timeline.ttft);
    ms("total_ms", timeline.total);
    ms("unaccounted_ms", timeline.unaccounted());
    if (!timeline.prefill_heads.empty()) json.Field("prefill_heads", timeline.prefill_heads);
    json.Field("prefill_worker", timeline.prefill_worker);
    json.Field("decode_worker", timeline.decode_worker);
    json.Field("attempts", timeline.attempts);
  });
}

}  // namespace baton
