#include "server/api/conversation.h"

#include <boost/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"

namespace baton {

namespace json = boost::json;

void Conversation::AddMessage(const std::string& role, json::value content) {
  EndTurn();
  messages_.push_back(json::object{{"role", role}, {"content", std::move(content)}});
}

void Conversation::AddResult(const std::string& call_id, json::value content) {
  EndTurn();
  messages_.push_back(
      json::object{{"role", "tool"}, {"tool_call_id", call_id}, {"content", std::move(content)}});
}

void Conversation::AddReasoning(const std::string& text) {
  if (!content_.is_null() || !calls_.empty()) EndTurn();
  reasoning_ += text;
}

void Conversation::AddText(json::value content) {
  if (!content_.is_null() || !calls_.empty()) EndTurn();
  content_ = std::move(content);
}

void Conversation::AddCall(const std::string& id, const std::string& name, json::value arguments) {
  calls_.push_back(
      json::object{{"id", id},
                   {"type", "function"},
                   {"function", {{"name", name}, {"arguments", std::move(arguments)}}}});
}

json::array Conversation::Take() {
  EndTurn();
  return std::move(messages_);
}

void Conversation::EndTurn() {
  if (reasoning_.empty() && content_.is_null() && calls_.empty()) return;
  json::object message{{"role", "assistant"}};
  message["content"] = content_.is_null() && calls_.empty() ? json::value("") : std::move(content_);
  if (!reasoning_.empty()) message["reasoning_content"] = reasoning_;
  if (!calls_.empty()) message["tool_calls"] = std::move(calls_);
  messages_.push_back(std::move(message));
  reasoning_.clear();
  content_ = nullptr;
  calls_ = json::array();
}

std::string JoinedMessages(const std::string& before, const std::string& after) {
  if (before.size() <= 2) return after;
  if (after.size() <= 2) return before;
  return absl::StrCat(absl::string_view(before).substr(0, before.size() - 1), ",",
                      absl::string_view(after).substr(1));
}

}  // namespace baton
