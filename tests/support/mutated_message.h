// Messages of the control wire with wrong values: each field in turn gets every value that its type
// can have at its worst, and bytes change anywhere. By protobuf's descriptors, so that a new field
// is attacked without a change here.
#pragma once

#include <google/protobuf/message.h>

#include <cstdint>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

namespace baton {

// A change of one field of a message.
using Mutation = std::function<void(google::protobuf::Message*)>;

namespace mutated {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

template <typename T>
inline constexpr T kMin = std::numeric_limits<T>::lowest();
template <typename T>
inline constexpr T kMax = std::numeric_limits<T>::max();

inline std::vector<std::string> BadTexts() {
  return {"", "\n\r\x1b[31m", "\xFF\xC0", std::string("a\0b", 3), std::string(5000, 'x')};
}

// Appends the changes of a field that is no message.
inline void AddValues(const FieldDescriptor* field, std::vector<Mutation>* out) {
  const auto set = [&](auto setter, auto adder, const auto& values) {
    for (const auto& value : values) {
      out->push_back([=](Message* m) {
        const auto* reflection = m->GetReflection();
        if (field->is_repeated()) {
          (reflection->*adder)(m, field, value);
        } else {
          (reflection->*setter)(m, field, value);
        }
      });
    }
  };
  using R = google::protobuf::Reflection;
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return set(&R::SetInt32, &R::AddInt32,
                 std::vector<int32_t>{0, -1, 1, kMin<int32_t>, kMax<int32_t>, 1 << 20});
    case FieldDescriptor::CPPTYPE_INT64:
      return set(&R::SetInt64, &R::AddInt64,
                 std::vector<int64_t>{0, -1, kMin<int64_t>, kMax<int64_t>});
    case FieldDescriptor::CPPTYPE_UINT32:
      return set(&R::SetUInt32, &R::AddUInt32, std::vector<uint32_t>{0, 1, kMax<uint32_t>});
    case FieldDescriptor::CPPTYPE_UINT64:
      return set(&R::SetUInt64, &R::AddUInt64, std::vector<uint64_t>{0, 1, kMax<uint64_t>});
    case FieldDescriptor::CPPTYPE_ENUM:
      return set(&R::SetEnumValue, &R::AddEnumValue, std::vector<int>{0, 1, 2, 3, 99, -1});
    case FieldDescriptor::CPPTYPE_BOOL:
      return set(&R::SetBool, &R::AddBool, std::vector<bool>{false, true});
    case FieldDescriptor::CPPTYPE_FLOAT:
      return set(&R::SetFloat, &R::AddFloat,
                 std::vector<float>{0, -1, kMax<float>, kMin<float>,
                                    std::numeric_limits<float>::quiet_NaN(),
                                    std::numeric_limits<float>::infinity()});
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return set(&R::SetDouble, &R::AddDouble,
                 std::vector<double>{0, -1, 1e-300, kMax<double>, kMin<double>,
                                     std::numeric_limits<double>::quiet_NaN(),
                                     std::numeric_limits<double>::infinity()});
    case FieldDescriptor::CPPTYPE_STRING:
      for (const std::string& text : BadTexts()) {
        out->push_back([=](Message* m) {
          const auto* reflection = m->GetReflection();
          if (field->is_repeated()) {
            reflection->AddString(m, field, text);
          } else {
            reflection->SetString(m, field, text);
          }
        });
      }
      return;
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return;
  }
}

// Appends the changes of a field as a whole: gone, and as a list far too long.
inline void AddPresence(const FieldDescriptor* field, std::vector<Mutation>* out) {
  out->push_back([=](Message* m) { m->GetReflection()->ClearField(m, field); });
  if (!field->is_repeated() || field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) return;
  out->push_back([=](Message* m) {
    for (int i = 0; i < 2000; ++i) m->GetReflection()->AddMessage(m, field);
  });
}

}  // namespace mutated

// Every change of every field that `message` has set, at any depth.
inline std::vector<Mutation> MutationsOf(const google::protobuf::Message& message) {
  using mutated::FieldDescriptor;
  std::vector<Mutation> all;
  const auto* descriptor = message.GetDescriptor();
  const auto* reflection = message.GetReflection();
  for (int i = 0; i < descriptor->field_count(); ++i) {
    const FieldDescriptor* field = descriptor->field(i);
    const bool in_oneof = field->real_containing_oneof() != nullptr;
    if (in_oneof && !reflection->HasField(message, field)) continue;
    if (!in_oneof) mutated::AddPresence(field, &all);
    mutated::AddValues(field, &all);
    if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) continue;
    const int n = field->is_repeated() ? reflection->FieldSize(message, field)
                                       : reflection->HasField(message, field);
    for (int at = 0; at < n; ++at) {
      const auto& part = field->is_repeated() ? reflection->GetRepeatedMessage(message, field, at)
                                              : reflection->GetMessage(message, field);
      for (const Mutation& of_part : MutationsOf(part)) {
        all.push_back([=](google::protobuf::Message* m) {
          // An earlier change may have taken the part away.
          if (field->is_repeated() && m->GetReflection()->FieldSize(*m, field) <= at) return;
          of_part(field->is_repeated() ? m->GetReflection()->MutableRepeatedMessage(m, field, at)
                                       : m->GetReflection()->MutableMessage(m, field));
        });
      }
    }
  }
  return all;
}

// The wire form of `message` with some bytes changed, lost or said twice.
inline std::string MutatedBytes(const google::protobuf::Message& message, std::mt19937_64* random) {
  std::string bytes = message.SerializeAsString();
  for (uint64_t n = 1 + (*random)() % 3; n > 0 && !bytes.empty(); --n)
    bytes[(*random)() % bytes.size()] = static_cast<char>((*random)());
  if ((*random)() % 8 == 0) bytes.resize((*random)() % (bytes.size() + 1));
  if ((*random)() % 8 == 0) bytes += bytes.substr((*random)() % (bytes.size() + 1));
  return bytes;
}

}  // namespace baton
