// A request for tokens, from its body to its end: one exchange with a client, and the choices that
// the cluster generates for it. Plain state of ApiFront, on the front thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/time/time.h"
#include "router/router_messages.h"
#include "server/api/answer.h"
#include "server/api/finished_request.h"
#include "server/api/generation_api.h"
#include "server/api/own_gaps.h"
#include "server/api/routes.h"
#include "server/api/slo_limits.h"

namespace baton {

struct RunningRequest {
  // One request to the router.
  struct Choice {
    RequestId id = 0;
    bool cancelled = false;  // and the end is on the way
    bool ended = false;
    absl::Time submitted, sent;  // given to the router; its workers were chosen, if one was free
    absl::Time first_token = absl::InfinitePast(), last_token{};
    absl::Duration second_gap{};  // zero: there is no second token
    OwnGaps gaps{};
    std::optional<Timeline> timeline{};  // of a traced request, once it has ended or was given up
  };

  const GenerationApi* api = nullptr;
  ApiCall call;  // the body is gone
  SloLimits limits{};
  absl::Time arrived, last_write;
  absl::Time deadline = absl::InfiniteFuture();  // when it ends, whatever it has
  absl::Duration text_time;
  bool stream = false, stream_started = false, is_gone = false;
  std::optional<absl::Duration> ttft{};  // to the first token of all choices
  int64_t max_tokens = 0;                // of the prompt that may have the most
  std::shared_ptr<Answer> answer;        // also of a text thread that writes for it
  std::vector<Choice> choices;           // as the answer counts them; empty: not submitted yet
  size_t n_ended = 0;
  // The choice that ended last, and its end: the request's timeline and finish reason.
  size_t last_ended = 0;
  int64_t n_reused = 0;  // tokens of prompts whose KV was reused, of all choices that have ended
  EmitEnd last_end{};
  // A text thread writes this for the answer, and the events wait for it.
  enum class Writing { kNothing, kPrompt, kEnd } writing = Writing::kNothing;
  std::vector<std::variant<EmitToken, EmitEnd>> held{};

  const std::string& id() const { return call.request.request_id; }
  // Returns the id, with what is appended to a choice's, and the trace: how log lines begin.
  std::string log_name(std::string_view of_choice = "") const;
  bool ended() const { return n_ended == choices.size(); }
  bool is_traced() const { return !call.request.trace.span_id.empty(); }
  void SetDeadline(absl::Duration max);  // or what the client asks for, if that is less
  ApiError TooLate() const;              // at the deadline
  void OnChoiceEnd(size_t choice, const EmitEnd& end);
  // A token of a choice is there. Returns the gap since the one before; nothing: it is the first.
  std::optional<absl::Duration> OnToken(size_t choice, absl::Time now);
  // Returns what metrics and the log say. The finish reason is empty before the request ran.
  FinishedRequest Finished(absl::Time now) const;
  // Finished of a request that ends with this error, whatever its choices have come to.
  FinishedRequest Failed(int http_status, absl::Time now) const;
  void Log(const FinishedRequest& finished) const;

 private:
  void TellOwnStages(const Choice& choice, FinishedRequest* finished) const;
};

}  // namespace baton
