// Reads the JSON object of a call, {"name": "f", "arguments": {...}}, byte by byte: says which
// bytes are the value of the arguments and where the object ends. Keys come in any order;
// `parameters` is `arguments`. Before name and arguments are known, other keys than "type" and "id"
// show that the object is no call; later ones are passed over. The value of the arguments is not
// checked: it ends where its brackets and strings end, and depth is a count, so nothing recurses.
// Constant work per byte. A plain object of one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace baton {

// Finds the end of one JSON value.
class JsonValueEnd {
 public:
  enum class Byte { kInside, kLast, kAfter };  // kAfter: the byte before was the last (a number)
  Byte Push(char c);

 private:
  bool begun_ = false, in_string_ = false, escaped_ = false;
  size_t depth_ = 0;
};

class CallObject {
 public:
  static constexpr size_t kMaxNameBytes = 512;  // of a name or a key, as written

  // arguments_must_be_object: other values show that the object is no call.
  explicit CallObject(bool arguments_must_be_object)
      : arguments_must_be_object_(arguments_must_be_object) {}
  // Reads arguments alone, of a call whose name is known. Its end is theirs.
  static CallObject ArgumentsOf(std::string name);

  enum class Byte {
    kOther,     // of the object
    kArgument,  // of the arguments
    kWrong,     // no part of such an object; none follows
  };
  // Not called once the object is whole.
  Byte Push(char c);
  bool whole() const { return whole_; }

  // Decoded; empty: not known yet.
  const std::string& name() const { return name_; }
  // All bytes of the arguments have come.
  bool arguments_whole() const { return arguments_ == Arguments::kWhole; }
  bool arguments_begun() const { return arguments_ != Arguments::kNone; }

 private:
  enum class Place { kOpen, kFirstKey, kKey, kInKey, kColon, kValue, kInName, kInValue, kComma };
  enum class Arguments { kNone, kInside, kWhole };
  enum class Key { kName, kArguments, kOther };

  Byte BeginValue(char c);
  Byte InValue(char c);
  // Reads a string that is kept. True with its last byte.
  bool InString(char c);
  Byte EndKey();
  Byte EndName();
  Byte End();
  bool IsCall() const { return !name_.empty() && arguments_begun(); }

  bool arguments_must_be_object_;
  bool bare_ = false;  // ArgumentsOf
  bool whole_ = false;
  Place place_ = Place::kOpen;
  Arguments arguments_ = Arguments::kNone;
  Key key_ = Key::kOther;
  JsonValueEnd value_;
  std::string string_;  // as written, without quotes
  bool escaped_ = false;
  std::string name_;
};

}  // namespace baton
