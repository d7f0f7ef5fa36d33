// The answer to one completion request: tokens in, OpenAI's JSON out, as one body or as server-sent
// events. Sans-IO: no clock, socket or thread; owned by the front thread.
//
// Every token is one event (the stop token, which has no text, comes with the finish event), so
// that clients measure TTFT and ITL per token. Text is whole UTF-8; what may be the start of a stop
// string waits.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/time/time.h"
#include "common/status.h"
#include "router/router.h"
#include "server/api/api_request.h"
#include "server/api/json_writer.h"
#include "server/api/served_model.h"
#include "text/detokenizer.h"
#include "text/stop_matcher.h"

namespace baton {

class CompletionText {
 public:
  // What of the request the answer depends on. `model` must outlive it. `id` without its prefix.
  CompletionText(const ServedModel& model, const ApiRequest& request,
                 const GenerateRequest& generate, std::string_view id, int64_t created);

  // The next token. Returns the events to send (empty when not streaming).
  std::string OnToken(const EmitToken& token);
  // A stop string was found: nothing more is wanted; the end is still to be told by OnEnd.
  bool stopped() const { return stopped_; }
  // After the last token: the rest of the stream, `data: [DONE]` included, or the whole body.
  // text_time: what parsing, template and tokenizing took. Not for failed requests.
  std::string OnEnd(const EmitEnd& end, absl::Duration text_time);
  // The end of a stream that failed: error event and `[DONE]`.
  static std::string ErrorEvents(const ApiError& error);

  int64_t n_prompt() const { return n_prompt_; }
  int64_t n_tokens() const { return n_tokens_; }
  // "stop", "length"; what metrics and the log call the end.
  std::string_view FinishReason(EndReason reason) const;

 private:
  struct Ending {
    const EmitEnd& end;
    absl::Duration text_time;
  };

  std::string Take(std::string_view piece);
  std::string RoleEventOnce();
  // An event with text and what belongs to a token (null: none). ending: of the last one, else
  // null.
  std::string TextEvent(const std::string& text, const EmitToken* token,
                        const Ending* ending) const;
  std::string FinishEvents(const std::string& rest, const Ending& ending);
  std::string Body(const Ending& ending) const;
  // An object with what every answer and event begins with; `fill` gets the writer for the rest.
  template <typename Fill>
  std::string Envelope(const Fill& fill) const;
  void WriteFinish(JsonWriter* json, const Ending* ending) const;
  // reused_tokens: of the prompt, whose KV was there; nothing: unknown yet.
  void WriteUsage(JsonWriter* json, std::optional<int32_t> reused_tokens) const;
  void WriteTimings(JsonWriter* json, const Ending* ending) const;
  bool is_chat() const { return endpoint_ == Endpoint::kChat; }

  const ServedModel& model_;
  const Endpoint endpoint_;
  const bool stream_, include_usage_, continuous_usage_, include_stop_, token_ids_, timings_,
      digests_;
  const std::string id_;  // with its prefix
  const int64_t created_;
  const std::vector<std::string> stops_;
  const std::vector<int32_t> stop_tokens_;
  std::optional<Detokenizer> detokenizer_;
  StopMatcher matcher_;
  std::vector<int32_t> prompt_ids_;  // when asked for
  int64_t n_prompt_ = 0, n_tokens_ = 0;
  bool stopped_ = false;
  bool role_sent_ = false;
  int stop_index_ = -1;
  std::optional<EmitToken> stop_token_;  // told with the finish event
  // Of the whole answer, when not streaming.
  std::string text_;
  std::vector<int32_t> all_ids_;
  std::vector<uint64_t> all_digests_;
};

}  // namespace baton
