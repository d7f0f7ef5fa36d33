#include "engine/checkpoint/gguf.h"

#include <cstring>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace baton {
namespace {

using Type = GgufValue::Type;

constexpr int64_t kDefaultAlignment = 32;
constexpr int64_t kMaxAlignment = 1 << 20;
constexpr uint64_t kMaxNameBytes = 65535;
constexpr uint32_t kMaxDimensions = 4;
constexpr uint64_t kStringHead = sizeof(uint64_t);
// Sizes of the shortest metadata value (an empty key, a byte) and tensor (an empty name, one
// dimension): a count that cannot fit into the remaining bytes is refused before anything is read.
constexpr uint64_t kMinValueBytes = 8 + 4 + 1, kMinTensorBytes = 8 + 4 + 8 + 4 + 8;

// Size of a value of this type; 0: no fixed size.
uint64_t BytesOf(Type type) {
  switch (type) {
    case Type::kUint8:
    case Type::kInt8:
    case Type::kBool:
      return 1;
    case Type::kUint16:
    case Type::kInt16:
      return 2;
    case Type::kUint32:
    case Type::kInt32:
    case Type::kFloat32:
      return 4;
    case Type::kUint64:
    case Type::kInt64:
    case Type::kFloat64:
      return 8;
    case Type::kString:
    case Type::kArray:
      return 0;
  }
  return 0;
}

template <typename T>
T ValueAt(std::span<const std::byte> bytes, uint64_t index) {
  T value;
  std::memcpy(&value, bytes.data() + index * sizeof(T), sizeof(T));
  return value;
}

std::optional<int64_t> IntAt(Type type, std::span<const std::byte> bytes, uint64_t i) {
  switch (type) {
    case Type::kUint8:
      return ValueAt<uint8_t>(bytes, i);
    case Type::kInt8:
      return ValueAt<int8_t>(bytes, i);
    case Type::kUint16:
      return ValueAt<uint16_t>(bytes, i);
    case Type::kInt16:
      return ValueAt<int16_t>(bytes, i);
    case Type::kUint32:
      return ValueAt<uint32_t>(bytes, i);
    case Type::kInt32:
      return ValueAt<int32_t>(bytes, i);
    case Type::kInt64:
      return ValueAt<int64_t>(bytes, i);
    case Type::kUint64: {
      const uint64_t value = ValueAt<uint64_t>(bytes, i);
      if (value > static_cast<uint64_t>(INT64_MAX)) return std::nullopt;
      return static_cast<int64_t>(value);
    }
    default:
      return std::nullopt;
  }
}

std::optional<double> NumberAt(Type type, std::span<const std::byte> bytes, uint64_t i) {
  if (type == Type::kFloat32) return static_cast<double>(ValueAt<float>(bytes, i));
  if (type == Type::kFloat64) return ValueAt<double>(bytes, i);
  const std::optional<int64_t> value = IntAt(type, bytes, i);
  return value ? std::optional(static_cast<double>(*value)) : std::nullopt;
}

int64_t AlignUp(int64_t value, int64_t alignment) {
  return (value + alignment - 1) / alignment * alignment;
}

}  // namespace

std::optional<int64_t> GgufValue::Int() const {
  return is_array_ ? std::nullopt : IntAt(type_, bytes_, 0);
}

std::optional<double> GgufValue::Number() const {
  return is_array_ ? std::nullopt : NumberAt(type_, bytes_, 0);
}

std::optional<bool> GgufValue::Bool() const {
  if (is_array_ || type_ != Type::kBool) return std::nullopt;
  return ValueAt<uint8_t>(bytes_, 0) != 0;
}

std::optional<std::string_view> GgufValue::String() const {
  if (is_array_ || type_ != Type::kString) return std::nullopt;
  return std::string_view(reinterpret_cast<const char*>(bytes_.data()) + kStringHead,
                          bytes_.size() - kStringHead);
}

std::optional<std::vector<std::string_view>> GgufValue::Strings() const {
  if (!is_array_ || type_ != Type::kString) return std::nullopt;
  std::vector<std::string_view> strings;
  strings.reserve(count_);
  const char* const text = reinterpret_cast<const char*>(bytes_.data());
  for (uint64_t at = 0; at < bytes_.size();) {  // lengths were checked when the file was opened
    const uint64_t size = ValueAt<uint64_t>(bytes_.subspan(at), 0);
    strings.emplace_back(text + at + kStringHead, size);
    at += kStringHead + size;
  }
  return strings;
}

std::optional<std::vector<int64_t>> GgufValue::Ints() const {
  if (!is_array_) return std::nullopt;
  std::vector<int64_t> values;
  values.reserve(count_);
  for (uint64_t i = 0; i < count_; ++i) {
    const std::optional<int64_t> value = IntAt(type_, bytes_, i);
    if (!value) return std::nullopt;
    values.push_back(*value);
  }
  return values;
}

std::optional<std::vector<double>> GgufValue::Numbers() const {
  if (!is_array_) return std::nullopt;
  std::vector<double> values;
  values.reserve(count_);
  for (uint64_t i = 0; i < count_; ++i) {
    const std::optional<double> value = NumberAt(type_, bytes_, i);
    if (!value) return std::nullopt;
    values.push_back(*value);
  }
  return values;
}

std::string ShownName(std::string_view name) {
  constexpr size_t kMaxShown = 100;
  return absl::StrCat("\"", absl::Utf8SafeCHexEscape(std::string(name.substr(0, kMaxShown))),
                      name.size() > kMaxShown ? "...\"" : "\"");
}

// Reads the header from its beginning to its end.
class GgufParser {
 public:
  explicit GgufParser(GgufFile& result) : result_(result), bytes_(result.file_.bytes()) {}

  absl::Status Run() {
    RETURN_IF_ERROR(ReadVersion());
    ASSIGN_OR_RETURN(const uint64_t n_tensors, Count("tensors", kMinTensorBytes));
    ASSIGN_OR_RETURN(const uint64_t n_values, Count("metadata values", kMinValueBytes));
    for (uint64_t i = 0; i < n_values; ++i) RETURN_IF_ERROR(ReadEntry());
    RETURN_IF_ERROR(ReadAlignment());
    for (uint64_t i = 0; i < n_tensors; ++i) RETURN_IF_ERROR(ReadTensorInfo());
    return PlaceTensors();
  }

 private:
  struct Extent {
    uint64_t offset = 0;
    int64_t bytes = 0;
  };

  uint64_t left() const { return bytes_.size() - at_; }

  absl::Status Refuse(const std::string& what) const {
    return absl::InvalidArgumentError(absl::StrCat(result_.path_, ": ", what));
  }
  absl::Status RefuseEnd(const std::string& what) const {
    return Refuse(
        absl::StrFormat("the file ends at byte %d in %s; it is truncated or damaged: "
                        "download it again",
                        bytes_.size(), what));
  }

  template <typename T>
  absl::StatusOr<T> Read(const std::string& what) {
    if (left() < sizeof(T)) return RefuseEnd(what);
    const T value = ValueAt<T>(bytes_.subspan(at_), 0);
    at_ += sizeof(T);
    return value;
  }

  // Reads a count of entries that have at least `min_bytes` bytes each.
  absl::StatusOr<uint64_t> Count(const std::string& what, uint64_t min_bytes) {
    const uint64_t begin = at_;
    ASSIGN_OR_RETURN(const uint64_t count, Read<uint64_t>("the number of " + what));
    if (count <= left() / min_bytes) return count;
    return Refuse(
        absl::StrFormat("byte %d claims %u %s, more than the %d bytes of the file can "
                        "hold; it is truncated or damaged: download it again",
                        begin, count, what, bytes_.size()));
  }

  absl::StatusOr<std::string_view> ReadString(const std::string& what, uint64_t max) {
    const uint64_t begin = at_;
    ASSIGN_OR_RETURN(const uint64_t size, Read<uint64_t>(what));
    if (size > left() || size > max) {
      return Refuse(absl::StrFormat(
          "byte %d claims %u bytes for %s, where %u are left%s; the file "
          "is truncated or damaged: download it again",
          begin, size, what, left(), size > max ? absl::StrCat(" and the max is ", max) : ""));
    }
    const std::string_view text(reinterpret_cast<const char*>(bytes_.data()) + at_, size);
    at_ += size;
    return text;
  }

  absl::Status ReadVersion() {
    constexpr std::string_view kMagic = "GGUF";
    if (bytes_.size() < kMagic.size() ||
        std::memcmp(bytes_.data(), kMagic.data(), kMagic.size()) != 0) {
      return Refuse(
          "not a GGUF file (it does not begin with GGUF); give a .gguf file or a model folder");
    }
    at_ = kMagic.size();
    ASSIGN_OR_RETURN(const uint32_t version, Read<uint32_t>("the version"));
    if (version == 2 || version == 3) return absl::OkStatus();
    if (version != 0 && (version & 0xffffu) == 0) {
      return Refuse("its numbers are big-endian; supported: little-endian");
    }
    return Refuse(absl::StrFormat(
        "GGUF version %u; supported: 2 and 3 (convert the model with a newer program)", version));
  }

  absl::Status ReadEntry() {
    ASSIGN_OR_RETURN(const std::string_view key, ReadString("a metadata key", kMaxNameBytes));
    const std::string where = "metadata " + ShownName(key);
    ASSIGN_OR_RETURN(const GgufValue value, ReadValue(where));
    if (!result_.values_.emplace(std::string(key), value).second) {
      return Refuse(where + " is there twice; the file is damaged: download it again");
    }
    return absl::OkStatus();
  }

  absl::StatusOr<Type> ReadType(const std::string& where) {
    const uint64_t begin = at_;
    ASSIGN_OR_RETURN(const uint32_t type, Read<uint32_t>(where));
    if (type <= static_cast<uint32_t>(Type::kFloat64)) return static_cast<Type>(type);
    return Refuse(
        absl::StrFormat("%s has type %u at byte %d; the format knows 0 to 12", where, type, begin));
  }

  absl::StatusOr<GgufValue> ReadValue(const std::string& where) {
    ASSIGN_OR_RETURN(Type type, ReadType(where));
    const bool is_array = type == Type::kArray;
    uint64_t count = 1;
    if (is_array) {
      ASSIGN_OR_RETURN(type, ReadType(where));
      if (type == Type::kArray)
        return Refuse(where + " is an array of arrays; supported: flat ones");
      ASSIGN_OR_RETURN(
          count, Count("values of " + where, type == Type::kString ? kStringHead : BytesOf(type)));
    }
    const uint64_t begin = at_;
    if (type == Type::kString) {
      for (uint64_t i = 0; i < count; ++i) {
        RETURN_IF_ERROR(ReadString(where, bytes_.size()).status());
      }
    } else {
      if (count * BytesOf(type) > left()) return RefuseEnd(where);  // an array's values
      at_ += count * BytesOf(type);
    }
    return GgufValue(type, is_array, count, bytes_.subspan(begin, at_ - begin));
  }

  absl::Status ReadAlignment() {
    constexpr std::string_view kKey = "general.alignment";
    const GgufValue* value = result_.Find(kKey);
    if (value == nullptr) return absl::OkStatus();
    const int64_t alignment = value->Int().value_or(0);
    if (alignment < 1 || alignment > kMaxAlignment || (alignment & (alignment - 1)) != 0) {
      return Refuse(absl::StrFormat(
          "metadata \"%s\" is %s; it must be a power of 2 up to %d", std::string(kKey),
          value->Int() ? absl::StrCat(alignment) : "no integer", kMaxAlignment));
    }
    alignment_ = alignment;
    return absl::OkStatus();
  }

  absl::Status ReadTensorInfo() {
    GgufTensor tensor;
    ASSIGN_OR_RETURN(const std::string_view name, ReadString("a tensor's name", kMaxNameBytes));
    tensor.name = name;
    const std::string where = "tensor " + ShownName(name);
    ASSIGN_OR_RETURN(const uint32_t n_dimensions, Read<uint32_t>(where));
    if (n_dimensions < 1 || n_dimensions > kMaxDimensions) {
      return Refuse(absl::StrFormat("%s has %u dimensions; supported: 1 to %u", where, n_dimensions,
                                    kMaxDimensions));
    }
    for (uint32_t i = 0; i < n_dimensions; ++i) {
      ASSIGN_OR_RETURN(const uint64_t dimension, Read<uint64_t>(where));
      if (dimension < 1 || dimension > static_cast<uint64_t>(INT64_MAX)) {
        return Refuse(
            absl::StrFormat("%s has a dimension of %u values; the file is damaged: "
                            "download it again",
                            where, dimension));
      }
      tensor.shape.insert(tensor.shape.begin(), static_cast<int64_t>(dimension));
    }
    ASSIGN_OR_RETURN(const uint32_t type, Read<uint32_t>(where));
    Extent extent;
    ASSIGN_OR_RETURN(extent.offset, Read<uint64_t>(where));
    tensor.type = FindGgufTensorType(type);
    if (tensor.type == nullptr) {
      return Refuse(absl::StrFormat("%s has type %u, which is not known; supported: %s", where,
                                    type, SupportedGgufTensorTypes()));
    }
    ASSIGN_OR_RETURN(extent.bytes, BytesOfTensor(tensor, where));
    if (!result_.places_.emplace(tensor.name, result_.tensors_.size()).second) {
      return Refuse(where + " is there twice; the file is damaged: download it again");
    }
    result_.tensors_.push_back(std::move(tensor));
    extents_.push_back(extent);
    return absl::OkStatus();
  }

  absl::StatusOr<int64_t> BytesOfTensor(const GgufTensor& tensor, const std::string& where) const {
    const int64_t cols = tensor.shape.back();
    if (cols % tensor.type->block_values != 0) {
      return Refuse(
          absl::StrFormat("%s has rows of %d values, which are not whole blocks of %d, as "
                          "type %s has",
                          where, cols, tensor.type->block_values, std::string(tensor.type->name)));
    }
    int64_t bytes = cols / tensor.type->block_values;
    bool overflows = __builtin_mul_overflow(bytes, tensor.type->block_bytes, &bytes);
    for (size_t i = 0; i + 1 < tensor.shape.size(); ++i) {
      overflows |= __builtin_mul_overflow(bytes, tensor.shape[i], &bytes);
    }
    if (!overflows) return bytes;
    return Refuse(where +
                  " has dimensions whose product overflows; the file is damaged: download "
                  "it again");
  }

  // Places the data of the tensors, which follow each other in order without holes or overlaps.
  absl::Status PlaceTensors() {
    const int64_t size = static_cast<int64_t>(bytes_.size());
    const int64_t begin = AlignUp(static_cast<int64_t>(at_), alignment_);
    result_.header_ = bytes_.first(at_);
    int64_t end = begin;  // end of the previous tensor
    for (size_t i = 0; i < extents_.size(); ++i) {
      GgufTensor& tensor = result_.tensors_[i];
      const Extent& extent = extents_[i];
      const std::string where = "tensor " + ShownName(tensor.name);
      const uint64_t expected = static_cast<uint64_t>(AlignUp(end, alignment_) - begin);
      if (extent.offset % static_cast<uint64_t>(alignment_) != 0) {
        return Refuse(absl::StrFormat("%s has offset %u, no multiple of the alignment, %d", where,
                                      extent.offset, alignment_));
      }
      if (extent.offset != expected) {
        return Refuse(
            absl::StrFormat("%s has offset %u, where %u was expected: %s; the file is "
                            "damaged: download it again",
                            where, extent.offset, expected,
                            extent.offset < expected ? "it overlaps the one before it" : "a hole"));
      }
      const int64_t first = begin + static_cast<int64_t>(extent.offset);
      if (first > size || extent.bytes > size - first) {
        return Refuse(
            absl::StrFormat("%s lies at bytes %d to %d + %d, the file has %d; it is "
                            "truncated: download it again",
                            where, first, first, extent.bytes, size));
      }
      tensor.bytes = bytes_.subspan(static_cast<size_t>(first), static_cast<size_t>(extent.bytes));
      end = first + extent.bytes;
    }
    if (size <= AlignUp(end, alignment_)) return absl::OkStatus();
    return Refuse(
        absl::StrFormat("%d bytes follow the last tensor; the file is damaged: download "
                        "it again",
                        size - end));
  }

  GgufFile& result_;
  std::span<const std::byte> bytes_;
  uint64_t at_ = 0;
  int64_t alignment_ = kDefaultAlignment;
  std::vector<Extent> extents_;  // (tensors)
};

absl::StatusOr<GgufFile> GgufFile::Open(const std::string& path) {
  GgufFile result;
  result.path_ = path;
  ASSIGN_OR_RETURN(result.file_, MappedFile::Open(path));
  RETURN_IF_ERROR(GgufParser(result).Run());
  return result;
}

const GgufValue* GgufFile::Find(std::string_view key) const {
  const auto found = values_.find(key);
  return found == values_.end() ? nullptr : &found->second;
}

const GgufTensor* GgufFile::FindTensor(std::string_view name) const {
  const auto found = places_.find(name);
  return found == places_.end() ? nullptr : &tensors_[found->second];
}

}  // namespace baton
