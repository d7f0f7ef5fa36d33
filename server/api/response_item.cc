#include "server/api/response_item.h"

#include <boost/json.hpp>

#include "server/api/json_document.h"

namespace baton {
namespace {

namespace json_lib = boost::json;

}  // namespace

std::string_view ItemPrefix(ResponseItem::Kind kind) {
  switch (kind) {
    case ResponseItem::kReasoning:
      return "rs_";
    case ResponseItem::kMessage:
      return "msg_";
    case ResponseItem::kFunctionCall:
      return "fc_";
    case ResponseItem::kCustomCall:
      return "ctc_";
  }
  return "";
}

std::string CustomInputOf(const std::string& arguments) {
  const auto parsed = ParseJson(arguments);
  const json_lib::object* members = parsed.ok() ? parsed->if_object() : nullptr;
  const json_lib::value* input = members == nullptr ? nullptr : members->if_contains(kCustomInput);
  if (input == nullptr || !input->is_string()) return arguments;
  return {input->get_string().data(), input->get_string().size()};
}

void WritePart(JsonWriter& json, const ResponseItem& item, const LogprobForm& form) {
  if (item.kind == ResponseItem::kReasoning) {
    json.Field("type", "reasoning_text");
    json.Field("text", item.text);
    return;
  }
  json.Field("type", "output_text");
  json.Array("annotations", [] {});
  json.Array("logprobs", [&] { WriteTokenLogprobs(json, form, item.logprobs); });
  json.Field("text", item.text);
}

void WriteItem(JsonWriter& json, const ResponseItem& item, std::string_view status,
               const LogprobForm& form) {
  const bool is_new = status == "in_progress";
  json.Field("id", item.id);
  switch (item.kind) {
    case ResponseItem::kReasoning:
      json.Field("type", "reasoning");
      json.Field("status", status);
      json.Array("summary", [] {});
      break;
    case ResponseItem::kMessage:
      json.Field("type", "message");
      json.Field("status", status);
      json.Field("role", "assistant");
      break;
    case ResponseItem::kFunctionCall:
      json.Field("type", "function_call");
      json.Field("status", status);
      json.Field("call_id", item.call_id);
      json.Field("name", item.name);
      json.Field("arguments", is_new ? std::string_view() : item.text);
      return;
    case ResponseItem::kCustomCall:
      json.Field("type", "custom_tool_call");
      json.Field("call_id", item.call_id);
      json.Field("name", item.name);
      json.Field("input", is_new ? "" : CustomInputOf(item.text));
      return;
  }
  json.Array("content", [&] {
    if (!is_new) json.Object([&] { WritePart(json, item, form); });
  });
}

void AddItem(const ResponseItem& item, Conversation* conversation) {
  switch (item.kind) {
    case ResponseItem::kReasoning:
      conversation->AddReasoning(item.text);
      return;
    case ResponseItem::kMessage:
      conversation->AddText(json_lib::value(json_lib::string(item.text)));
      return;
    case ResponseItem::kFunctionCall:
    case ResponseItem::kCustomCall:
      auto arguments = ParseJson(item.text);
      json_lib::object members;  // of a call that was cut, the text
      if (arguments.ok() && arguments->is_object()) {
        members = std::move(arguments->get_object());
      } else if (!item.text.empty()) {
        members["INVALID_JSON"] = json_lib::string(item.text);
      }
      conversation->AddCall(item.call_id, item.name, std::move(members));
      return;
  }
}

}  // namespace baton
