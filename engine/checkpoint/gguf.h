// Checkpoints in GGUF format, mapped: every count, length, offset and type is checked when a file
// is opened, so that a value or tensor handed out lies wholly inside it. Format, version 2 and 3,
// little-endian: "GGUF", u32 version, u64 tensors, u64 metadata values; metadata: key, u32 type,
// value; tensors: name, u32 dimensions, u64 each (the innermost first), u32 type, u64 offset;
// padding; the data of the tensors in their order, each at the next multiple of general.alignment.
// A string is a u64 length and that many bytes; an array is u32 type, u64 count and the values
// (github.com/ggml-org/ggml docs/gguf.md). Immutable: any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/status.h"
#include "engine/checkpoint/gguf_tensor_type.h"
#include "engine/checkpoint/mapped_file.h"

namespace baton {

// A metadata value: a view into the mapped file, which must outlive the value and its texts.
class GgufValue {
 public:
  enum class Type : uint32_t {
    kUint8,
    kInt8,
    kUint16,
    kInt16,
    kUint32,
    kInt32,
    kFloat32,
    kBool,
    kString,
    kArray,
    kUint64,
    kInt64,
    kFloat64
  };
  // type: for an array the type of its values, which follow one another in `bytes`.
  GgufValue(Type type, bool is_array, uint64_t count, std::span<const std::byte> bytes)
      : type_(type), is_array_(is_array), count_(count), bytes_(bytes) {}

  Type type() const { return type_; }
  bool is_array() const { return is_array_; }
  uint64_t count() const { return count_; }  // length of an array; 1 otherwise

  // nullopt if the value is of another kind, an array, or an integer beyond int64.
  std::optional<int64_t> Int() const;
  std::optional<double> Number() const;  // also for integers
  std::optional<bool> Bool() const;
  std::optional<std::string_view> String() const;
  // nullopt if the value is no array of this kind; Numbers takes integers too.
  std::optional<std::vector<std::string_view>> Strings() const;
  std::optional<std::vector<int64_t>> Ints() const;
  std::optional<std::vector<double>> Numbers() const;

 private:
  Type type_;
  bool is_array_;
  uint64_t count_;
  std::span<const std::byte> bytes_;
};

struct GgufTensor {
  std::string name;
  const GgufTensorType* type = nullptr;
  std::vector<int64_t> shape;        // 1 to 4 dimensions, the outermost first, as in safetensors
  std::span<const std::byte> bytes;  // whole blocks, in the file's mapping; not aligned
};

class GgufFile {
 public:
  // NotFound, Unavailable: the file cannot be mapped (mapped_file.h). InvalidArgument: not GGUF,
  // damaged, or of a kind that is not read. Errors name the file, what is wrong where, and what to
  // do about it.
  static absl::StatusOr<GgufFile> Open(const std::string& path);

  const std::string& path() const { return path_; }
  const MappedFile& file() const { return file_; }
  std::span<const std::byte> header() const { return header_; }  // all bytes before the data
  const std::map<std::string, GgufValue, std::less<>>& values() const { return values_; }
  const std::vector<GgufTensor>& tensors() const { return tensors_; }  // in the file's order
  // Null if the file has no such entry.
  const GgufValue* Find(std::string_view key) const;
  const GgufTensor* FindTensor(std::string_view name) const;

 private:
  friend class GgufParser;
  std::string path_;
  MappedFile file_;
  std::span<const std::byte> header_;
  std::map<std::string, GgufValue, std::less<>> values_;
  std::vector<GgufTensor> tensors_;
  std::map<std::string, size_t, std::less<>> places_;  // index into tensors_ by name
};

// A name from the file for error texts: in quotes, escaped, cut to 100 bytes.
std::string ShownName(std::string_view name);

}  // namespace baton
