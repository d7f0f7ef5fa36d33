// Joins the events of an AnswerSplitter to the answer that a client has in the end.
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "text/tools/answer_splitter.h"

namespace baton::split_answer {

struct Call {
  std::string name, arguments;
  bool whole = true;
  bool operator==(const Call&) const = default;
};

struct Answer {
  std::string reasoning, content;
  std::vector<Call> calls;
  bool operator==(const Answer&) const = default;
};

inline std::ostream& operator<<(std::ostream& out, const Answer& answer) {
  out << "reasoning \"" << answer.reasoning << "\" content \"" << answer.content << "\"";
  for (const Call& call : answer.calls)
    out << (call.whole ? " call " : " cut call ") << call.name << " " << call.arguments;
  return out;
}

// Joins events, and looks whether they come in an order that an answer may have.
class Joiner {
 public:
  void Add(const std::vector<AnswerEvent>& events, size_t n_pushed) {
    for (const AnswerEvent& event : events) {
      ordered_ &= event.end >= end_ && event.end <= n_pushed && Add(event);
      end_ = event.end;
      n_bytes_ += event.text.size();
    }
  }
  const Answer& answer() const { return answer_; }
  bool ordered() const { return ordered_; }
  size_t n_bytes() const { return n_bytes_; }  // of the texts of all events

 private:
  bool Add(const AnswerEvent& event) {
    const bool is_open = !answer_.calls.empty() && !answer_.calls.back().whole;
    const auto n_calls = static_cast<int>(answer_.calls.size());
    switch (event.kind) {
      case AnswerEvent::kContent:
        answer_.content += event.text;
        return !is_open && !event.text.empty();
      case AnswerEvent::kReasoning:
        answer_.reasoning += event.text;
        return answer_.content.empty() && n_calls == 0 && !event.text.empty();
      case AnswerEvent::kCallStart:
        answer_.calls.push_back({event.text, "", false});
        return !is_open && event.call == n_calls && !event.text.empty();
      case AnswerEvent::kCallArguments:
        if (is_open) answer_.calls.back().arguments += event.text;
        return is_open && event.call == n_calls - 1 && !event.text.empty();
      case AnswerEvent::kCallEnd:
        if (is_open) answer_.calls.back().whole = true;
        return is_open && event.call == n_calls - 1;
    }
    return false;
  }

  Answer answer_;
  bool ordered_ = true;
  size_t end_ = 0, n_bytes_ = 0;
};

}  // namespace baton::split_answer
