#include "text/tools/call_object.h"

#include <boost/json/parse.hpp>
#include <boost/json/value.hpp>
#include <utility>

namespace baton {
namespace {

bool IsSpace(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

bool BeginsValue(char c) {
  return c == '{' || c == '[' || c == '"' || c == '-' || (c >= '0' && c <= '9') || c == 't' ||
         c == 'f' || c == 'n';
}

// Nothing: not the inside of a JSON string.
std::optional<std::string> Decoded(const std::string& written) {
  boost::system::error_code error;
  const boost::json::value value = boost::json::parse("\"" + written + "\"", error);
  if (error || !value.is_string()) return std::nullopt;
  return std::string(value.get_string());
}

}  // namespace

JsonValueEnd::Byte JsonValueEnd::Push(char c) {
  const bool first = !std::exchange(begun_, true);
  if (in_string_) {
    if (escaped_) {
      escaped_ = false;
    } else if (c == '\\') {
      escaped_ = true;
    } else if (c == '"') {
      in_string_ = false;
      if (depth_ == 0) return Byte::kLast;
    }
    return Byte::kInside;
  }
  if (c == '"') {
    in_string_ = true;
  } else if (c == '{' || c == '[') {
    ++depth_;
  } else if (depth_ > 0) {
    if ((c == '}' || c == ']') && --depth_ == 0) return Byte::kLast;
  } else if (!first && (c == ',' || c == '}' || c == ']' || IsSpace(c))) {
    return Byte::kAfter;
  }
  return Byte::kInside;
}

CallObject CallObject::ArgumentsOf(std::string name) {
  CallObject object(true);
  object.bare_ = true;
  object.name_ = std::move(name);
  object.key_ = Key::kArguments;
  object.place_ = Place::kValue;
  return object;
}

CallObject::Byte CallObject::Push(char c) {
  switch (place_) {
    case Place::kInKey:
      if (InString(c)) return EndKey();
      return string_.size() > kMaxNameBytes ? Byte::kWrong : Byte::kOther;
    case Place::kInName:
      if (InString(c)) return EndName();
      return string_.size() > kMaxNameBytes ? Byte::kWrong : Byte::kOther;
    case Place::kInValue:
      return InValue(c);
    default:
      break;
  }
  if (IsSpace(c)) return Byte::kOther;
  switch (place_) {
    case Place::kOpen:
      if (c != '{') return Byte::kWrong;
      place_ = Place::kFirstKey;
      return Byte::kOther;
    case Place::kFirstKey:
    case Place::kKey:
      if (c == '}' && place_ == Place::kFirstKey) return End();
      if (c != '"') return Byte::kWrong;
      string_.clear();
      place_ = Place::kInKey;
      return Byte::kOther;
    case Place::kColon:
      if (c != ':') return Byte::kWrong;
      place_ = Place::kValue;
      return Byte::kOther;
    case Place::kValue:
      return BeginValue(c);
    case Place::kComma:
      if (c == '}') return End();
      if (c != ',') return Byte::kWrong;
      place_ = Place::kKey;
      return Byte::kOther;
    default:
      return Byte::kWrong;
  }
}

bool CallObject::InString(char c) {
  if (escaped_) {
    escaped_ = false;
  } else if (c == '\\') {
    escaped_ = true;
  } else if (c == '"') {
    return true;
  }
  string_ += c;
  return false;
}

CallObject::Byte CallObject::EndKey() {
  const auto key = Decoded(string_);
  if (!key) return Byte::kWrong;
  key_ = Key::kOther;
  if (*key == "name" && name_.empty()) key_ = Key::kName;
  if ((*key == "arguments" || *key == "parameters") && !arguments_begun()) key_ = Key::kArguments;
  if (key_ == Key::kOther && !IsCall() && *key != "type" && *key != "id") return Byte::kWrong;
  place_ = Place::kColon;
  return Byte::kOther;
}

CallObject::Byte CallObject::EndName() {
  auto name = Decoded(string_);
  if (!name || name->empty()) return Byte::kWrong;
  name_ = *std::move(name);
  place_ = Place::kComma;
  return Byte::kOther;
}

CallObject::Byte CallObject::BeginValue(char c) {
  if (key_ == Key::kName) {
    if (c != '"') return Byte::kWrong;
    string_.clear();
    place_ = Place::kInName;
    return Byte::kOther;
  }
  if (!BeginsValue(c)) return Byte::kWrong;
  if (key_ == Key::kArguments) {
    if (arguments_must_be_object_ && c != '{') return Byte::kWrong;
    arguments_ = Arguments::kInside;
  }
  value_ = JsonValueEnd();
  place_ = Place::kInValue;
  return InValue(c);
}

CallObject::Byte CallObject::InValue(char c) {
  const JsonValueEnd::Byte byte = value_.Push(c);
  const bool argument = key_ == Key::kArguments;
  if (byte == JsonValueEnd::Byte::kInside) return argument ? Byte::kArgument : Byte::kOther;
  if (argument) arguments_ = Arguments::kWhole;
  place_ = Place::kComma;
  if (byte == JsonValueEnd::Byte::kAfter) return Push(c);
  whole_ = bare_;
  return argument ? Byte::kArgument : Byte::kOther;
}

CallObject::Byte CallObject::End() {
  whole_ = true;
  return Byte::kOther;
}

}  // namespace baton
