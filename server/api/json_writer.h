// Writes JSON text, in the order of the calls and without spaces. Strings come out escaped and as
// valid UTF-8: each maximal invalid part becomes one U+FFFD. Commas, quotes and closing brackets
// are the writer's; keys that repeat are the caller's mistake and are not found. Pure: any thread.
//
//   std::string text;
//   JsonWriter json(&text);
//   json.Object([&] {
//     json.Field("id", 7);
//     json.Array("choices", [&] { json.Value("first"); });
//   });
//
// gives {"id":7,"choices":["first"]}.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <type_traits>

#include "absl/strings/str_cat.h"

namespace baton {

class JsonWriter {
 public:
  // Appends to *out, which must outlive the writer.
  explicit JsonWriter(std::string* out) : out_(out) {}

  // An object or an array, alone, as an element or as a member; `fill` writes what is in it.
  template <typename Fill>
  void Object(const Fill& fill) {
    Open('{');
    fill();
    Close('}');
  }
  template <typename Fill>
  void Array(const Fill& fill) {
    Open('[');
    fill();
    Close(']');
  }
  template <typename Fill>
  void Object(std::string_view key, const Fill& fill) {
    Key(key);
    Object(fill);
  }
  template <typename Fill>
  void Array(std::string_view key, const Fill& fill) {
    Key(key);
    Array(fill);
  }

  // A string, a number, true, false or (nullptr) null. A float or double has so many digits that it
  // is read back with the same bits, and a point or an exponent; it must be finite.
  template <typename T>
  void Value(const T& value) {
    Separate();
    if constexpr (std::is_null_pointer_v<T>) {
      *out_ += "null";
    } else if constexpr (std::is_same_v<T, bool>) {
      *out_ += value ? "true" : "false";
    } else if constexpr (std::is_integral_v<T>) {
      absl::StrAppend(out_, value);
    } else if constexpr (std::is_floating_point_v<T>) {
      AppendNumber(static_cast<double>(value));
    } else {
      AppendString(value);
    }
    needs_comma_ = true;
  }
  // A value that is JSON already; its text is copied as it is.
  void Json(std::string_view text) {
    Separate();
    *out_ += text;
    needs_comma_ = true;
  }
  void JsonField(std::string_view key, std::string_view text) {
    Key(key);
    Json(text);
  }
  // A number with so many digits after the point.
  void FixedValue(double value, int digits);

  // Members of an object.
  void Key(std::string_view key);
  template <typename T>
  void Field(std::string_view key, const T& value) {
    Key(key);
    Value(value);
  }
  void FixedField(std::string_view key, double value, int digits) {
    Key(key);
    FixedValue(value, digits);
  }
  // A list of numbers from 0 to 255.
  void BytesField(std::string_view key, std::string_view bytes);
  // null for the empty text.
  void FieldOrNull(std::string_view key, std::string_view text);

 private:
  void Separate() {
    if (needs_comma_) *out_ += ',';
  }
  void Open(char bracket) {
    Separate();
    *out_ += bracket;
    needs_comma_ = false;
  }
  void Close(char bracket) {
    *out_ += bracket;
    needs_comma_ = true;
  }
  void AppendString(std::string_view text);
  void AppendNumber(double value);

  std::string* out_;
  bool needs_comma_ = false;  // before whatever comes next
};

// A JSON object as a text of its own: `fill` gets the writer.
template <typename Fill>
std::string JsonObject(const Fill& fill) {
  std::string text;
  JsonWriter json(&text);
  json.Object([&] { fill(json); });
  return text;
}

}  // namespace baton
