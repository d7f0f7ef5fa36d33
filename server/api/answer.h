// The answer to one generation in the words of one API: tokens in, bytes for the client out, as one
// body or as server-sent events. Sans-IO: no clock, socket or thread; owned by the front thread.
#pragma once

#include <string>

#include "absl/time/time.h"
#include "router/router.h"
#include "server/api/api_error.h"
#include "server/api/generated_text.h"

namespace baton {

class Answer {
 public:
  virtual ~Answer() = default;

  // The next token. Returns the events to send (empty when not streaming).
  virtual std::string OnToken(const EmitToken& token) = 0;
  // After the last token of a request that did not fail: the rest of the stream, or the whole body.
  // text_time: what parsing, template and tokenizing took.
  virtual std::string OnEnd(const EmitEnd& end, absl::Duration text_time) = 0;
  // The end of a stream that has begun and failed.
  virtual std::string OnError(const ApiError& error) const = 0;

  const GeneratedText& text() const { return text_; }

 protected:
  explicit Answer(GeneratedText text) : text_(std::move(text)) {}

  GeneratedText text_;
};

}  // namespace baton
