// Writer and reader of one message of the control wire. Both walk the list of its fields (Fields,
// control_fields.h), so that a field is listed once for both ways, and reach protobuf's message by
// the field's number. The reader checks; its faults are InvalidArgument and name the field as
// control.proto does, from the message's kind on: "prefill.slices.end". Any thread.
#pragma once

#include <google/protobuf/message.h>

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/request_limits.h"
#include "common/status.h"

namespace baton {

// Bounds of a number, or of a list's length; both are allowed values. No bounds contain NaN.
struct Bounds {
  double min, max;
  constexpr Bounds(double lowest, double highest) : min(lowest), max(highest) {}
  // NOLINTNEXTLINE(google-explicit-constructor): a row of the table of limits is bounds.
  constexpr Bounds(const FieldLimit& limit) : Bounds(limit.min, limit.max) {}
  bool Contain(double value) const { return value >= min && value <= max; }
};

// Protobuf's functions that get and set a field of type T.
template <typename T>
constexpr auto AccessTo() {
  using R = google::protobuf::Reflection;
  if constexpr (std::is_enum_v<T>) {
    return std::pair(&R::GetEnumValue, &R::SetEnumValue);
  } else if constexpr (std::same_as<T, bool>) {
    return std::pair(&R::GetBool, &R::SetBool);
  } else if constexpr (std::same_as<T, int32_t>) {
    return std::pair(&R::GetInt32, &R::SetInt32);
  } else if constexpr (std::same_as<T, int64_t>) {
    return std::pair(&R::GetInt64, &R::SetInt64);
  } else if constexpr (std::same_as<T, uint32_t>) {
    return std::pair(&R::GetUInt32, &R::SetUInt32);
  } else if constexpr (std::same_as<T, uint64_t>) {
    return std::pair(&R::GetUInt64, &R::SetUInt64);
  } else if constexpr (std::same_as<T, float>) {
    return std::pair(&R::GetFloat, &R::SetFloat);
  } else if constexpr (std::same_as<T, double>) {
    return std::pair(&R::GetDouble, &R::SetDouble);
  } else {
    static_assert(std::same_as<T, std::string>);
    return std::pair(&R::GetString, &R::SetString);
  }
}

// Sets every field; checks nothing, for what it writes is ours.
class FieldWriter {
 public:
  explicit FieldWriter(google::protobuf::Message* out)
      : out_(out), descriptor_(out->GetDescriptor()), reflection_(out->GetReflection()) {}

  // The functions of FieldReader, which describes them.
  template <typename T>
  void Field(int number, const T& value, const auto&... /*bounds*/) {
    using Sent = std::conditional_t<std::is_enum_v<T>, int, T>;
    (reflection_->*AccessTo<T>().second)(out_, At(number), static_cast<Sent>(value));
  }
  void Name(int number, const std::string& name) { Field(number, name); }
  void Text(int number, const std::string& text, size_t max_bytes) {
    Field(number, text.substr(0, max_bytes));
  }
  template <size_t kBytes>
  void Bytes(int number, const std::array<uint8_t, kBytes>& bytes) {
    Field(number, std::string(bytes.begin(), bytes.end()));
  }
  void Tokens(int number, const std::vector<int32_t>& tokens, const Bounds&);
  template <typename M>
  void Message(int number, const M& message) {
    FieldWriter writer(reflection_->MutableMessage(out_, At(number)));
    Fields(writer, message);
  }
  template <typename M, typename... Context>
  void List(int number, const std::vector<M>& list, const Bounds&, const Context&... context) {
    const auto* const field = At(number);
    for (const M& message : list) {
      FieldWriter writer(reflection_->AddMessage(out_, field));
      Fields(writer, message, context...);
    }
  }
  template <typename... Kinds>
  void OneOf(const std::variant<Kinds...>& kinds) {
    const auto* const field = descriptor_->oneof_decl(0)->field(static_cast<int>(kinds.index()));
    std::visit([&](const auto& kind) { Message(field->number(), kind); }, kinds);
  }
  void Require(int, bool, std::string_view) {}
  void Check(const auto&) {}

 private:
  const google::protobuf::FieldDescriptor* At(int number) const {
    return descriptor_->FindFieldByNumber(number);
  }

  google::protobuf::Message* const out_;
  const google::protobuf::Descriptor* const descriptor_;
  const google::protobuf::Reflection* const reflection_;
};

// Reads on after a fault, but leaves what is out of its bounds as it is: what else the message
// tells (the request that it is about) can be read, and bounds that depend on a field are sane.
class FieldReader {
 public:
  // The first fault goes to *status.
  FieldReader(const google::protobuf::Message& in, absl::Status* status)
      : in_(in),
        descriptor_(in.GetDescriptor()),
        reflection_(in.GetReflection()),
        status_(status) {}

  // Any value is allowed: a number, a text, or a value that the enum has.
  template <typename T>
  void Field(int number, T& value) {
    auto read = (reflection_->*AccessTo<T>().first)(in_, At(number));
    if constexpr (std::is_enum_v<T>) {
      const bool is_known = At(number)->enum_type()->FindValueByNumber(read) != nullptr;
      if (!Require(number, is_known, absl::StrCat("is ", read, ", which is unknown"))) return;
    }
    value = static_cast<T>(std::move(read));
  }
  template <typename T>
  void Field(int number, T& value, const Bounds& bounds) {
    T read{};
    Field(number, read);
    if (InBounds(number, static_cast<double>(read), bounds)) value = read;
  }
  // Names travel into logs and metrics, so they must be printable ASCII of at most
  // ControlLimits::kNameBytes.
  void Name(int number, std::string& name);
  // The writer cuts a longer text, the reader refuses it.
  void Text(int number, std::string& text, size_t max_bytes);
  template <size_t kBytes>
  void Bytes(int number, std::array<uint8_t, kBytes>& bytes) {
    const std::string read = reflection_->GetString(in_, At(number));
    if (HasLength(number, read.size(), "bytes", Bounds(kBytes, kBytes)))
      std::copy(read.begin(), read.end(), bytes.begin());
  }
  // Token ids must not be negative; the worker checks them against its vocabulary.
  void Tokens(int number, std::vector<int32_t>& tokens, const Bounds& count);
  // A message that must be there.
  template <typename M>
  void Message(int number, M& message) {
    if (!Require(number, reflection_->HasField(in_, At(number)), "is missing")) return;
    FieldReader reader(*this, At(number), reflection_->GetMessage(in_, At(number)));
    Fields(reader, message);
  }
  // Messages, whose lists of fields may need to know something of this one (`context`).
  template <typename M, typename... Context>
  void List(int number, std::vector<M>& list, const Bounds& count, const Context&... context) {
    const auto* const field = At(number);
    const int n = reflection_->FieldSize(in_, field);
    if (!HasLength(number, static_cast<size_t>(n), "entries", count)) return;
    list.resize(static_cast<size_t>(n));
    for (int i = 0; i < n; ++i) {
      FieldReader reader(*this, field, reflection_->GetRepeatedMessage(in_, field, i));
      Fields(reader, list[static_cast<size_t>(i)], context...);
    }
  }
  // The message's only oneof, whose fields are the variant's alternatives, in order.
  template <typename... Kinds>
  void OneOf(std::variant<Kinds...>& kinds) {
    const auto* const field = reflection_->GetOneofFieldDescriptor(in_, descriptor_->oneof_decl(0));
    if (field == nullptr)
      return Refuse(absl::InvalidArgumentError(absl::StrCat(
          descriptor_->name(), " of an unknown kind: run the same version of baton everywhere")));
    int i = field->index_in_oneof();
    ((i-- == 0 ? Message(field->number(), kinds.template emplace<Kinds>()) : void()), ...);
  }
  // For what bounds do not say: unless `ok`, the field is refused with `what` after its name, or
  // the message with the error that `check` returns.
  bool Require(int number, bool ok, std::string_view what);
  void Check(const auto& check) {
    if (status_->ok()) Refuse(check());
  }

 private:
  FieldReader(const FieldReader& parent, const google::protobuf::FieldDescriptor* own,
              const google::protobuf::Message& in)
      : FieldReader(in, parent.status_) {
    parent_ = &parent;
    own_ = own;
  }
  const google::protobuf::FieldDescriptor* At(int number) const {
    return descriptor_->FindFieldByNumber(number);
  }
  bool InBounds(int number, double value, const Bounds& bounds);
  bool HasLength(int number, size_t length, std::string_view unit, const Bounds& bounds);
  void Refuse(const absl::Status& error);  // an error of the message, not of a field
  std::string Path() const;                // "prefill.slices."

  const google::protobuf::Message& in_;
  const google::protobuf::Descriptor* const descriptor_;
  const google::protobuf::Reflection* const reflection_;
  absl::Status* const status_;
  // The message that this one is a field of; null: none.
  const FieldReader* parent_ = nullptr;
  const google::protobuf::FieldDescriptor* own_ = nullptr;
};

}  // namespace baton
