// Messages of a chat, made of the items that /v1/responses has: what the assistant says in a row
// (reasoning, text, calls) is one message. A plain object of one thread.
#pragma once

#include <boost/json/array.hpp>
#include <boost/json/value.hpp>
#include <string>

namespace baton {

class Conversation {
 public:
  // content: a string or a list of text parts, as the chat takes it.
  void AddMessage(const std::string& role, boost::json::value content);
  void AddResult(const std::string& call_id, boost::json::value content);  // of a call

  // The assistant's. What comes in another order than reasoning, text, calls begins a message.
  void AddReasoning(const std::string& text);
  void AddText(boost::json::value content);
  void AddCall(const std::string& id, const std::string& name, boost::json::value arguments);

  boost::json::array Take();

 private:
  void EndTurn();

  boost::json::array messages_;
  std::string reasoning_;
  boost::json::value content_;  // null: none
  boost::json::array calls_;
};

// Two JSON arrays of messages as one.
std::string JoinedMessages(const std::string& before, const std::string& after);

}  // namespace baton
