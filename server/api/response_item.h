// An item of what /v1/responses puts out: reasoning, a message, a call of a function, or a call of
// a custom tool, whose input is a text. To the model a custom tool is a function with that text as
// its one argument. Plain data: any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "server/api/conversation.h"
#include "server/api/json_writer.h"
#include "server/api/logprob_list.h"

namespace baton {

inline constexpr char kCustomInput[] = "input";  // the argument

struct ResponseItem {
  enum Kind { kReasoning, kMessage, kFunctionCall, kCustomCall };
  Kind kind = kMessage;
  std::string id{};
  int call = -1;                          // of the choice
  std::string name{}, call_id{};          // of a call
  std::string text{};                     // arguments as the model writes them, or the text
  std::vector<ReportedToken> logprobs{};  // of a message, if they are asked for
};

std::string_view ItemPrefix(ResponseItem::Kind kind);  // of ids: "msg_", ...

// The text that a custom tool gets; of a call that was cut, the arguments as they are.
std::string CustomInputOf(const std::string& arguments);

// The members of the content part: {"type":"output_text","annotations":[],...}.
void WritePart(JsonWriter& json, const ResponseItem& item, const LogprobForm& form);
// status: of the item ("in_progress": it has nothing in it yet).
void WriteItem(JsonWriter& json, const ResponseItem& item, std::string_view status,
               const LogprobForm& form);
// Adds it to the conversation, for the model.
void AddItem(const ResponseItem& item, Conversation* conversation);

}  // namespace baton
