#include "server/api/api_front_options.h"

#include "common/request_limits.h"

namespace baton {

void DeclareApiFront(ApiFrontOptions* options, Settings* settings) {
  settings->Text(
      "server.cors_origin", &options->cors_origin,
      "Access-Control-Allow-Origin, * or an origin; empty = no page of another site may ask");
  settings->Duration("server.sse_keepalive", &options->sse_keepalive, absl::Milliseconds(10),
                     absl::Hours(24), "of silence before blank lines are sent in a stream");
  settings->Int("server.max_choices", &options->requests.max_choices, 1,
                static_cast<int>(RequestLimits::kChoices.max),
                "choices of a request: the max of n and best_of");
  settings->Choice("server.reasoning_names", &options->reasoning_names,
                   {{"both", ReasoningNames::kBoth},
                    {"reasoning_content", ReasoningNames::kReasoningContent},
                    {"reasoning", ReasoningNames::kReasoning}},
                   "members of a chat's message and delta that tell the model's reasoning; "
                   "messages of clients may have either");
  settings->Bytes(
      "server.inline_text", &options->inline_text, 0, 1 << 20,
      "bodies up to this size are tokenized on the front thread, if 0.5 ms suffice for them");
  settings->Bytes("server.text_cache", &options->text_cache, 0, int64_t{64} << 30,
                  "tokens of messages that were tokenized before; 0 = none are kept");
  settings->Bytes(
      "server.text_queue", &options->text_queue, 1 << 20, int64_t{64} << 30,
      "bodies that wait to be tokenized, or a larger one alone; more are refused with 429");
  settings->Duration("server.text_deadline", &options->text_deadline, absl::Milliseconds(10),
                     absl::Hours(1),
                     "for the template and the tokenizer of a request, which then gets 400");
  settings->Bool("server.ui", &options->ui, "serve the page /ui: chat, and what the cluster does");
  settings->Duration("server.request_timeout", &options->request_timeout, absl::Milliseconds(10),
                     absl::Hours(24 * 7),
                     "for a request for tokens, which then gets 504 or an error in its stream; the "
                     "header x-request-timeout-ms may ask for less");
  settings->Duration("server.slo_ttft", &options->slo.ttft, absl::ZeroDuration(), absl::Hours(1),
                     "a request counts as good if its first token comes within this; 0 = no limit");
  settings->Duration(
      "server.slo_itl", &options->slo.itl, absl::ZeroDuration(), absl::Hours(1),
      "and if the 99th percentile of its own gaps between tokens is within this; 0 = no limit");
  DeclareAnswerStore(&options->answers, settings);
}

}  // namespace baton
