#include "text/tools/answer_splitter.h"

#include <algorithm>
#include <limits>

namespace baton {
namespace {

bool IsSpace(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

std::string_view Trimmed(std::string_view text) {
  while (!text.empty() && IsSpace(text.front())) text.remove_prefix(1);
  while (!text.empty() && IsSpace(text.back())) text.remove_suffix(1);
  return text;
}

}  // namespace

AnswerSplitter::AnswerSplitter(const AnswerFormat& format, bool inside_reasoning)
    : format_(format), state_(State::kText) {
  if (format.reasoning == ReasoningFormat::kNone) return;
  state_ = State::kLead;
  if (!inside_reasoning) return;
  state_ = State::kReasoning;
  skips_space_ = true;
  reasoning_end_ = std::numeric_limits<size_t>::max();
}

std::vector<AnswerEvent> AnswerSplitter::Push(std::string_view piece) {
  for (const char c : piece) {
    ++n_bytes_;
    Byte(c);
  }
  return std::exchange(events_, {});
}

std::vector<AnswerEvent> AnswerSplitter::Finish() {
  if (state_ == State::kClosing) held_.clear();
  TellHeld();
  return std::exchange(events_, {});
}

void AnswerSplitter::Byte(char c) {
  switch (state_) {
    case State::kLead:
      return Lead(c);
    case State::kReasoning:
    case State::kText:
      return Text(c);
    case State::kMistral:
      return Mistral(c);
    case State::kHeader:
      return Header(c);
    case State::kObject:
      return InObject(c);
    case State::kList:
      return List(c);
    case State::kClosing:
      return Closing(c);
  }
}

void AnswerSplitter::Lead(char c) {
  const std::string_view open = MarkersOf(format_.reasoning).open;
  held_ += c;
  if (matched_ == 0 && IsSpace(c) && held_.size() < kMaxSpace) return;
  if (c != open[matched_]) return Again();
  if (++matched_ < open.size()) return;
  held_.clear();
  matched_ = 0;
  state_ = State::kReasoning;
  skips_space_ = true;
  reasoning_begin_ = n_bytes_;
  reasoning_end_ = std::numeric_limits<size_t>::max();
}

// A marker's first byte stands nowhere else in it, so a match that fails begins anew at the byte
// that failed.
void AnswerSplitter::Text(char c) {
  const std::string_view marker =
      state_ == State::kReasoning ? MarkersOf(format_.reasoning).close : CallMarker(format_.tools);
  if (matched_ > 0) {
    if (c == marker[matched_]) {
      held_ += c;
      if (++matched_ == marker.size()) AfterMarker();
      return;
    }
    TellHeldBeforeByte();
  }
  // Between calls of kLlama3 stands "; ".
  const bool separates = IsSpace(c) || (c == ';' && TextMayBeCall() && n_calls_ > 0);
  if (skips_space_ && separates) return;
  if (!marker.empty() && c == marker[0]) {
    held_ += c;
    matched_ = 1;
  } else if (TextMayBeCall() && c == '{') {
    marked_ = false;
    BeginObject(CallObject(true));
    InObject(c);
  } else if (!marker.empty() && IsSpace(c)) {
    if (held_.size() == kMaxSpace) TellHeldBeforeByte();
    held_ += c;
  } else {
    held_ += c;
    TellHeld();
  }
}

void AnswerSplitter::AfterMarker() {
  matched_ = 0;
  if (state_ == State::kReasoning) {
    reasoning_end_ = n_bytes_ - MarkersOf(format_.reasoning).close.size();
    held_.clear();
    state_ = State::kText;
    skips_space_ = true;
    return;
  }
  marked_ = true;
  in_list_ = false;
  if (CallMarker(format_.tools) == CallMarker(ToolFormat::kMistralList))
    state_ = State::kMistral;
  else
    BeginObject(CallObject(format_.tools == ToolFormat::kLlama3));
}

void AnswerSplitter::Mistral(char c) {
  if (held_.size() == kMaxHeld || c == '{') return Reject(c);
  held_ += c;
  if (IsSpace(c)) return;
  in_list_ = c == '[';
  if (in_list_) return BeginObject(CallObject(false));
  header_begin_ = held_.size() - 1;
  state_ = State::kHeader;
}

void AnswerSplitter::Header(char c) {
  std::string_view header = std::string_view(held_).substr(header_begin_);
  if (header.size() > CallObject::kMaxNameBytes) return Reject(c);
  if (c != '{') {
    held_ += c;
    return;
  }
  if (const size_t end = header.find(kArgumentsMarker); end != header.npos)
    header = header.substr(0, end);
  header = header.substr(0, header.find(kCallIdMarker));
  header = Trimmed(header);
  if (header.empty() || header.find_first_of(" \t\r[]}\"") != header.npos) return Reject(c);
  BeginObject(CallObject::ArgumentsOf(std::string(header)));
  InObject(c);
}

void AnswerSplitter::List(char c) {
  if (IsSpace(c)) return;
  if (c == ',') {
    held_ += c;
    BeginObject(CallObject(false));
    return;
  }
  state_ = State::kText;
  skips_space_ = true;
  if (c != ']') Text(c);
}

void AnswerSplitter::Closing(char c) {
  if (matched_ == 0 && IsSpace(c)) return;
  held_ += c;
  if (c != kCallEndMarker[matched_]) return Again();
  if (++matched_ < kCallEndMarker.size()) return;
  held_.clear();
  matched_ = 0;
  state_ = State::kText;
}

void AnswerSplitter::BeginObject(CallObject object) {
  object_ = std::move(object);
  started_ = ended_ = false;
  n_arguments_ = 0;
  state_ = State::kObject;
}

void AnswerSplitter::InObject(char c) {
  if (held_.size() == kMaxHeld) return Reject(c);
  const CallObject::Byte byte = object_.Push(c);
  if (byte == CallObject::Byte::kWrong) {
    if (!started_) return Reject(c);
    // The wrong byte may be the one that shows where a number ends.
    --n_bytes_;
    EndArguments();
    ++n_bytes_;
    EndObject();
    return Byte(c);
  }
  const bool argument = byte == CallObject::Byte::kArgument;
  if (!started_) {
    held_ += c;
    if (argument && n_arguments_++ == 0) arguments_begin_ = held_.size() - 1;
    StartCall();
  } else if (argument) {
    Tell(AnswerEvent::kCallArguments, std::string_view(&c, 1));
  }
  EndArguments();
  if (object_.whole()) EndObject();
}

void AnswerSplitter::EndArguments() {
  if (!started_ || ended_ || !object_.arguments_whole()) return;
  ended_ = true;
  Tell(AnswerEvent::kCallEnd, "");
}

// Starts the call if it is certain.
void AnswerSplitter::StartCall() {
  const bool lacks_arguments = marked_ && object_.whole() && !object_.arguments_begun();
  if (object_.name().empty() || !(object_.arguments_begun() || lacks_arguments)) return;
  const std::string held = std::exchange(held_, "");
  started_ = true;
  ++n_calls_;
  Tell(AnswerEvent::kCallStart, object_.name());
  Tell(AnswerEvent::kCallArguments,
       lacks_arguments ? "{}" : std::string_view(held).substr(arguments_begin_, n_arguments_));
  if (!lacks_arguments) return;
  ended_ = true;
  Tell(AnswerEvent::kCallEnd, "");
}

void AnswerSplitter::EndObject() {
  state_ = State::kText;
  if (!started_) return TellHeld();
  skips_space_ = at_start_ = true;
  if (in_list_)
    state_ = State::kList;
  else if (format_.tools == ToolFormat::kHermes)
    state_ = State::kClosing;
}

void AnswerSplitter::Reject(char c) {
  state_ = State::kText;
  TellHeldBeforeByte();
  Byte(c);
}

void AnswerSplitter::Again() {
  const std::string held = std::exchange(held_, "");
  n_bytes_ -= held.size();
  matched_ = 0;
  state_ = State::kText;
  for (const char c : held) {
    ++n_bytes_;
    Byte(c);
  }
}

void AnswerSplitter::TellHeld() {
  if (held_.empty()) return;
  const bool reasoning = state_ == State::kReasoning;
  skips_space_ = false;
  if (!reasoning) at_start_ = false;
  matched_ = 0;
  Tell(reasoning ? AnswerEvent::kReasoning : AnswerEvent::kContent, std::exchange(held_, ""));
}

void AnswerSplitter::TellHeldBeforeByte() {
  --n_bytes_;
  TellHeld();
  ++n_bytes_;
}

void AnswerSplitter::Tell(AnswerEvent::Kind kind, std::string_view text) {
  const bool of_call = kind != AnswerEvent::kContent && kind != AnswerEvent::kReasoning;
  const int call = of_call ? n_calls_ - 1 : 0;
  const bool goes_on = !events_.empty() && events_.back().kind == kind &&
                       events_.back().call == call && kind != AnswerEvent::kCallStart;
  if (!goes_on) events_.push_back({kind, call, "", 0});
  events_.back().text += text;
  events_.back().end = settled();
}

}  // namespace baton
