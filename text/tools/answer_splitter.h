// Splits the text of an answer, as it comes, into content, reasoning and calls of tools.
//
// - What comes out, joined, does not depend on how the text was cut into pieces. If every piece has
//   whole characters, so has every event.
// - Reasoning stands at the beginning of an answer, or nowhere. Without its end all is reasoning.
// - Arguments are the bytes that the model wrote, sent as they come. Nothing but the end of their
//   JSON value ends them: markers inside strings are text.
// - A call begins when its name and the first byte of its arguments are known. What begins like a
//   call and turns out to be none (no name, another key first, no JSON, more than kMaxHeld bytes
//   before it is known) is content, markers and all. A marked call without arguments has {}.
// - An answer that ends inside the arguments has told what came, and no kCallEnd.
// - White space around markers and between calls is dropped (before a marker, the last kMaxSpace
//   bytes); so is what follows a call inside its object. Other text after a call is content.
//
// Work is constant per byte; memory is bounded by kMaxHeld and the events. Has no errors. A plain
// object of one thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/tools/answer_format.h"
#include "text/tools/call_object.h"

namespace baton {

struct AnswerEvent {
  enum Kind { kContent, kReasoning, kCallStart, kCallArguments, kCallEnd };
  Kind kind = kContent;
  int call = 0;        // of calls: 0, 1, 2, ... in order
  std::string text{};  // a part of the text or of the arguments; of kCallStart the name
  size_t end = 0;      // bytes of the answer up to here are told with this event
  bool operator==(const AnswerEvent&) const = default;
};

class AnswerSplitter {
 public:
  static constexpr size_t kMaxHeld = 64 << 10;  // bytes of a call that is not certain yet
  static constexpr size_t kMaxSpace = 256;      // bytes of white space that may belong to a marker

  // inside_reasoning: the prompt has opened reasoning (EndsInsideReasoning).
  explicit AnswerSplitter(const AnswerFormat& format, bool inside_reasoning = false);

  std::vector<AnswerEvent> Push(std::string_view piece);
  // Called after the last piece. Returns what was held back.
  std::vector<AnswerEvent> Finish();

  // Bytes of the answer that no later event belongs to: told, or dropped with a marker.
  size_t settled() const { return n_bytes_ - held_.size(); }
  // Whether the settled byte before `offset` is reasoning. The space before the closing marker is.
  bool IsReasoning(size_t offset) const {
    return offset > reasoning_begin_ && offset <= reasoning_end_;
  }
  int n_calls() const { return n_calls_; }  // begun

 private:
  enum class State {
    kLead,       // nothing, or the beginning of the marker that opens reasoning
    kReasoning,  // text up to the closing marker
    kText,       // content up to a call
    kMistral,    // after [TOOL_CALLS]
    kHeader,     // a name up to its arguments
    kObject,     // inside a call
    kList,       // between calls of a list
    kClosing,    // before </tool_call>
  };

  void Byte(char c);
  void Lead(char c);
  void Text(char c);
  void AfterMarker();
  void Mistral(char c);
  void Header(char c);
  void List(char c);
  void Closing(char c);

  void BeginObject(CallObject object);
  void InObject(char c);
  void StartCall();
  void EndArguments();  // tells the end of a call whose arguments are whole
  void EndObject();

  // The call is none: what was held is content, and the byte is read as text.
  void Reject(char c);
  // Reads held bytes once more, as text.
  void Again();
  void TellHeld();
  void TellHeldBeforeByte();  // before the byte that is being read and is not held
  void Tell(AnswerEvent::Kind kind, std::string_view text);
  bool TextMayBeCall() const {
    return at_start_ && state_ == State::kText && format_.tools == ToolFormat::kLlama3;
  }

  const AnswerFormat format_;
  State state_;
  size_t n_bytes_ = 0;  // of the answer, with the byte that is being read
  std::string held_;    // the last bytes of the answer
  size_t matched_ = 0;  // bytes of a marker at the end of held_
  bool skips_space_ = false;
  bool at_start_ = true;  // a call of kLlama3 needs no marker here
  size_t reasoning_begin_ = 0, reasoning_end_ = 0;

  CallObject object_{false};
  bool marked_ = false, in_list_ = false, started_ = false, ended_ = false;  // the call
  size_t header_begin_ = 0;                                                  // in held_
  size_t arguments_begin_ = 0, n_arguments_ = 0;                             // in held_
  int n_calls_ = 0;
  std::vector<AnswerEvent> events_;
};

}  // namespace baton
