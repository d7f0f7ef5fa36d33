// Long texts of answers, written on the text pool: the lists of a whole prompt that come with the
// first token, and the end of an answer with everything in it, also of one that failed. Events of
// the request that come meanwhile wait, in their order, and are then told to the listener again.
// Where the pool has no room, the text is written at once. Front thread.
#pragma once

#include <cstddef>
#include <functional>
#include <string>

#include "server/api/generator.h"
#include "server/api/running_request.h"
#include "server/api/text_calls.h"

namespace baton {

class LongTexts {
 public:
  // Both must outlive it.
  LongTexts(TextCalls* calls, GeneratorListener* listener) : calls_(calls), listener_(listener) {}

  // True: the event waits for a text and will come again. A token may need one itself.
  bool Holds(RunningRequest* running, size_t choice, const EmitToken& token);
  bool Holds(RunningRequest* running, const EmitEnd& end);
  // Calls `told` with what the answer's OnEnd or OnError returns: at once, or later, also if the
  // client goes.
  using Told = std::function<void(std::string)>;
  void WriteEnd(RunningRequest* running, Told told);
  void WriteError(RunningRequest* running, const ApiError& error, Told told);
  // The request fails or its client has gone before its end: the text is not wanted. Events that
  // wait come again, before it returns, if they are `retold`.
  void Drop(RunningRequest* running, bool retold);

 private:
  void Write(RunningRequest* running, size_t bytes, std::function<std::string()> write, Told told);
  void TellHeld(RunningRequest* running);

  TextCalls* calls_;
  GeneratorListener* listener_;
};

}  // namespace baton
