// Reads answers as clients do: events of a stream joined, or a whole body. Every event is one line
// of strict JSON, or a BATON_CHECK fails.
#pragma once

#include <boost/json.hpp>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/check.h"
#include "server/api/api_request.h"
#include "server/api/json_document.h"

namespace baton {

struct ToldCall {
  std::string name, id, arguments;
  bool operator==(const ToldCall&) const = default;
};

struct ToldChoice {
  std::string content, reasoning, finish;
  std::map<int64_t, ToldCall> calls;
  bool operator==(const ToldChoice&) const = default;
};

struct ToldAnswer {
  std::map<int64_t, ToldChoice> choices;
  boost::json::value usage;  // null: not told
  bool operator==(const ToldAnswer&) const = default;
};

struct ToldEvent {
  std::string name;          // empty: none
  boost::json::value value;  // null: [DONE]
};

namespace told {

namespace json = boost::json;

inline json::value Strict(std::string_view text) {
  auto value = ParseJson(text);
  BATON_CHECK(value.ok());
  return *std::move(value);
}

// The text at `key`, if there is one.
inline std::string Text(const json::object& from, const char* key) {
  const json::value* value = from.if_contains(key);
  if (value == nullptr || !value->is_string()) return "";
  return {value->get_string().data(), value->get_string().size()};
}

}  // namespace told

inline std::vector<ToldEvent> EventsOf(std::string_view stream) {
  std::vector<ToldEvent> events;
  BATON_CHECK(stream.find('\r') == stream.npos);
  while (!stream.empty()) {
    const size_t end = stream.find("\n\n");
    BATON_CHECK(end != stream.npos);
    std::string_view event = stream.substr(0, end);
    stream.remove_prefix(end + 2);
    ToldEvent& told = events.emplace_back();
    if (event.starts_with("event: ")) {
      const size_t line = event.find('\n');
      BATON_CHECK(line != event.npos);
      told.name = event.substr(7, line - 7);
      event.remove_prefix(line + 1);
    }
    BATON_CHECK(event.starts_with("data: "));
    event.remove_prefix(6);
    BATON_CHECK(event.find('\n') == event.npos);
    if (event == "[DONE]") continue;
    told.value = told::Strict(event);
    BATON_CHECK(told.value.is_object());
    if (!told.name.empty()) BATON_CHECK(told::Text(told.value.get_object(), "type") == told.name);
  }
  return events;
}

// ---- OpenAI's completions and chat ----

inline void AddParts(const boost::json::object& parts, bool is_whole, ToldChoice* choice) {
  choice->content += told::Text(parts, "content");
  choice->reasoning += told::Text(parts, "reasoning");
  BATON_CHECK(told::Text(parts, "reasoning") == told::Text(parts, "reasoning_content"));
  const boost::json::value* calls = parts.if_contains("tool_calls");
  if (calls == nullptr) return;
  int64_t place = 0;
  for (const boost::json::value& value : calls->as_array()) {
    const boost::json::object& call = value.as_object();
    ToldCall& told = choice->calls[is_whole ? place++ : call.at("index").as_int64()];
    const boost::json::object& function = call.at("function").as_object();
    told.name += told::Text(function, "name");
    told.id += told::Text(call, "id");
    told.arguments += told::Text(function, "arguments");
  }
}

inline void AddChoices(const boost::json::object& from, ToldAnswer* answer) {
  for (const boost::json::value& value : from.at("choices").as_array()) {
    const boost::json::object& choice = value.as_object();
    ToldChoice& told = answer->choices[choice.at("index").as_int64()];
    BATON_CHECK(told.finish.empty());  // nothing follows it
    told.finish = told::Text(choice, "finish_reason");
    told.content += told::Text(choice, "text");
    if (const boost::json::value* delta = choice.if_contains("delta"))
      AddParts(delta->as_object(), false, &told);
    if (const boost::json::value* message = choice.if_contains("message"))
      AddParts(message->as_object(), true, &told);
  }
  if (const boost::json::value* usage = from.if_contains("usage")) answer->usage = *usage;
}

// ---- Anthropic's messages ----

inline void AddBlock(const boost::json::object& block, int64_t index, ToldChoice* choice) {
  const std::string type = told::Text(block, "type");
  choice->content += told::Text(block, "text");
  choice->reasoning += told::Text(block, "thinking");
  if (type == "tool_use")
    choice->calls[index] = {told::Text(block, "name"), told::Text(block, "id"), ""};
}

inline void AddMessagesEvent(const ToldEvent& event, std::optional<int64_t>* open,
                             ToldAnswer* answer) {
  ToldChoice& choice = answer->choices[0];
  BATON_CHECK(!event.name.empty() && choice.finish.empty() == (event.name != "message_stop"));
  const boost::json::object& fields = event.value.get_object();
  if (event.name == "content_block_start") {
    BATON_CHECK(!*open);
    *open = fields.at("index").as_int64();
    AddBlock(fields.at("content_block").as_object(), **open, &choice);
  } else if (event.name == "content_block_delta") {
    BATON_CHECK(*open == fields.at("index").as_int64());
    const boost::json::object& delta = fields.at("delta").as_object();
    choice.content += told::Text(delta, "text");
    choice.reasoning += told::Text(delta, "thinking");
    if (delta.contains("partial_json"))
      choice.calls.at(**open).arguments += told::Text(delta, "partial_json");
  } else if (event.name == "content_block_stop") {
    BATON_CHECK(*open == fields.at("index").as_int64());
    open->reset();
  } else if (event.name == "message_delta") {
    BATON_CHECK(!*open);
    choice.finish = told::Text(fields.at("delta").as_object(), "stop_reason");
    answer->usage = fields.at("usage");
  } else {
    BATON_CHECK(event.name == "message_start" || event.name == "message_stop");
  }
}

// ---- a whole answer ----

// Blocks are numbered in the stream as they stand in the list of the body only if no text follows
// a call, so calls are compared by their order.
inline void Renumber(ToldAnswer* answer) {
  for (auto& [index, choice] : answer->choices) {
    std::map<int64_t, ToldCall> calls;
    for (auto& [place, call] : choice.calls)
      calls[static_cast<int64_t>(calls.size())] = std::move(call);
    choice.calls = std::move(calls);
  }
}

inline ToldAnswer ReadStream(Endpoint endpoint, std::string_view stream) {
  const std::vector<ToldEvent> events = EventsOf(stream);
  ToldAnswer answer;
  std::optional<int64_t> open;
  int64_t sequence = 0;
  for (size_t i = 0; i < events.size(); ++i) {
    const ToldEvent& event = events[i];
    const bool is_last = i + 1 == events.size();
    if (endpoint == Endpoint::kMessages) {
      AddMessagesEvent(event, &open, &answer);
      BATON_CHECK(is_last == (event.name == "message_stop"));
    } else if (endpoint == Endpoint::kResponses) {
      BATON_CHECK(event.value.at("sequence_number").as_int64() == sequence++);
      BATON_CHECK(is_last ==
                  (event.name == "response.completed" || event.name == "response.incomplete"));
    } else {
      BATON_CHECK(event.name.empty() && is_last == event.value.is_null());
      if (!is_last) AddChoices(event.value.get_object(), &answer);
    }
  }
  Renumber(&answer);
  return answer;
}

}  // namespace baton
