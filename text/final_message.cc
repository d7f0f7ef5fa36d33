#include "text/final_message.h"

#include <algorithm>
#include <boost/json.hpp>

#include "absl/strings/str_cat.h"

namespace baton {
namespace {

namespace json = boost::json;

// The space at the end shows whether the template trims messages.
constexpr std::string_view kMark = "CONTINUE_FINAL_MESSAGE_TAG ";
constexpr std::string_view kTrimmedMark = kMark.substr(0, kMark.size() - 1);

// White space of Python's str.strip beyond one byte.
constexpr std::string_view kWideSpaces[] = {"\u0085", "\u00a0", "\u1680", "\u2000", "\u2001",
                                            "\u2002", "\u2003", "\u2004", "\u2005", "\u2006",
                                            "\u2007", "\u2008", "\u2009", "\u200a", "\u2028",
                                            "\u2029", "\u202f", "\u205f", "\u3000"};

bool IsSpace(char c) { return c == ' ' || (c >= '\t' && c <= '\r') || (c >= 0x1c && c <= 0x1f); }

std::string_view StripEnd(std::string_view text) {
  for (;;) {
    if (!text.empty() && IsSpace(text.back())) {
      text.remove_suffix(1);
      continue;
    }
    const auto* wide = std::find_if(std::begin(kWideSpaces), std::end(kWideSpaces),
                                    [&](std::string_view space) { return text.ends_with(space); });
    if (wide == std::end(kWideSpaces)) return text;
    text.remove_suffix(wide->size());
  }
}

std::string_view StripStart(std::string_view text) {
  for (;;) {
    if (!text.empty() && IsSpace(text.front())) {
      text.remove_prefix(1);
      continue;
    }
    const auto* wide =
        std::find_if(std::begin(kWideSpaces), std::end(kWideSpaces),
                     [&](std::string_view space) { return text.starts_with(space); });
    if (wide == std::end(kWideSpaces)) return text;
    text.remove_prefix(wide->size());
  }
}

// The text of a message, null: none.
json::string* TextOf(json::value* message) {
  json::object* fields = message->if_object();
  json::value* content = fields == nullptr ? nullptr : fields->if_contains("content");
  if (content == nullptr) return nullptr;
  if (content->is_string()) return &content->get_string();
  if (!content->is_array()) return nullptr;
  json::array& parts = content->get_array();
  for (auto part = parts.rbegin(); part != parts.rend(); ++part) {
    json::value* text = part->is_object() ? part->get_object().if_contains("text") : nullptr;
    if (text != nullptr && text->is_string()) return &text->get_string();
  }
  return nullptr;
}

}  // namespace

absl::StatusOr<FinalMessage> FinalMessage::MarkIn(std::string_view messages) {
  json::error_code error;
  json::value list = json::parse(messages, error);
  if (error || !list.is_array() || list.get_array().empty())
    return absl::InvalidArgumentError("messages: must be a JSON array with a message");
  json::string* const text = TextOf(&list.get_array().back());
  if (text == nullptr)
    return absl::InvalidArgumentError(
        "continue_final_message: the last message has no text to go on with");
  FinalMessage last;
  last.text_ = std::string(text->data(), text->size());
  text->append(kMark);
  last.messages_ = json::serialize(list);
  return last;
}

absl::StatusOr<std::string> FinalMessage::CutAfter(std::string_view prompt) const {
  const size_t mark = prompt.rfind(kTrimmedMark);
  if (mark == std::string_view::npos ||
      prompt.find(StripEnd(StripStart(text_))) == std::string_view::npos)
    return absl::InvalidArgumentError(
        "continue_final_message: the model's chat template does not write the text of the last "
        "message as it is, so there is no place to go on from");
  const std::string_view cut = prompt.substr(0, mark);
  return std::string(prompt.substr(mark).starts_with(kMark) ? cut : StripEnd(cut));
}

size_t FinalMessage::LengthIn(std::string_view cut) const {
  return cut.size() - std::min(cut.size(), cut.rfind(StripEnd(StripStart(text_))));
}

}  // namespace baton
