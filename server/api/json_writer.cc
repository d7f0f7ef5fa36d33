#include "server/api/json_writer.h"

#include <algorithm>
#include <charconv>

#include "absl/strings/str_format.h"
#include "text/detokenizer.h"

namespace baton {
namespace {

// ASCII that stands in JSON as it is.
bool IsPlain(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return byte >= 0x20 && byte < 0x80 && c != '"' && c != '\\';
}

void AppendEscaped(char c, std::string* out) {
  switch (c) {
    case '"':
      *out += "\\\"";
      break;
    case '\\':
      *out += "\\\\";
      break;
    case '\n':
      *out += "\\n";
      break;
    case '\r':
      *out += "\\r";
      break;
    case '\t':
      *out += "\\t";
      break;
    default:
      if (static_cast<unsigned char>(c) < 0x20) {
        absl::StrAppendFormat(out, "\\u%04x", static_cast<unsigned char>(c));
      } else {
        *out += c;
      }
  }
}

}  // namespace

void JsonWriter::Key(std::string_view key) {
  Separate();
  AppendString(key);
  *out_ += ':';
  needs_comma_ = false;
}

void JsonWriter::FixedValue(double value, int digits) {
  Separate();
  absl::StrAppendFormat(out_, "%.*f", digits, value);
  needs_comma_ = true;
}

void JsonWriter::BytesField(std::string_view key, std::string_view bytes) {
  Array(key, [&] {
    for (const char byte : bytes) Value(static_cast<int>(static_cast<unsigned char>(byte)));
  });
}

void JsonWriter::FieldOrNull(std::string_view key, std::string_view text) {
  if (text.empty()) {
    Field(key, nullptr);
  } else {
    Field(key, text);
  }
}

void JsonWriter::AppendString(std::string_view text) {
  *out_ += '"';
  if (std::all_of(text.begin(), text.end(), IsPlain)) {
    *out_ += text;
  } else {
    for (const char c : ValidUtf8(text)) AppendEscaped(c, out_);
  }
  *out_ += '"';
}

void JsonWriter::AppendNumber(double value) {
  char digits[32];
  const auto end = std::to_chars(std::begin(digits), std::end(digits), value).ptr;
  const std::string_view text(digits, static_cast<size_t>(end - digits));
  *out_ += text;
  if (text.find_first_of(".e") == std::string_view::npos) *out_ += ".0";
}

}  // namespace baton
