#include "engine/checkpoint/safetensors.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/model/json_fields.h"
#include "engine/model/text_file.h"

namespace baton {
namespace {

namespace json = boost::json;

constexpr uint64_t kMaxHeaderBytes = 32 << 20;
constexpr size_t kMaxIndexBytes = 32 << 20;
constexpr size_t kMaxDimensions = 8;

// Bytes of one element; 0 = unknown.
int64_t ElementBytes(std::string_view dtype) {
  if (dtype == "F64" || dtype == "I64" || dtype == "U64") return 8;
  if (dtype == "F32" || dtype == "I32" || dtype == "U32") return 4;
  if (dtype == "BF16" || dtype == "F16" || dtype == "I16" || dtype == "U16") return 2;
  if (dtype == "I8" || dtype == "U8" || dtype == "BOOL") return 1;
  if (dtype == "F8_E4M3" || dtype == "F8_E5M2") return 1;
  return 0;
}

// Reads a list of non-negative integers; false for anything else.
bool ReadNumbers(const json::value* value, size_t max, std::vector<int64_t>& out) {
  if (value == nullptr || !value->is_array() || value->get_array().size() > max) return false;
  for (const json::value& item : value->get_array()) {
    if (!item.is_int64() || item.get_int64() < 0) return false;
    out.push_back(item.get_int64());
  }
  return true;
}

struct Extent {
  int64_t begin, end;
  std::string name;
};

// One entry of the header, checked against the bytes behind it.
absl::Status ReadTensor(const json::value& entry, std::span<const std::byte> data,
                        const std::string& where, TensorView& tensor, Extent& extent) {
  const auto refuse = [&](std::string_view what) {
    return absl::InvalidArgumentError(absl::StrCat(where, ": ", std::string(what)));
  };
  if (!entry.is_object()) return refuse("the header entry is not an object");
  const json::object& fields = entry.get_object();
  const json::value* dtype = fields.if_contains("dtype");
  if (dtype == nullptr || !dtype->is_string()) return refuse("dtype is missing or not a string");
  tensor.dtype.assign(dtype->get_string().data(), dtype->get_string().size());
  const int64_t element_bytes = ElementBytes(tensor.dtype);
  if (element_bytes == 0) {
    return refuse(absl::StrCat("unknown dtype \"", tensor.dtype.substr(0, 32), "\""));
  }
  if (!ReadNumbers(fields.if_contains("shape"), kMaxDimensions, tensor.shape)) {
    return refuse("shape is missing or not a list of up to 8 sizes");
  }
  std::vector<int64_t> offsets;
  if (!ReadNumbers(fields.if_contains("data_offsets"), 2, offsets) || offsets.size() != 2) {
    return refuse("data_offsets is missing or not [begin, end]");
  }
  extent.begin = offsets[0];
  extent.end = offsets[1];
  const int64_t size = static_cast<int64_t>(data.size());
  if (extent.begin > extent.end || extent.end > size) {
    return refuse(
        absl::StrFormat("data_offsets [%d, %d] lie outside the %d bytes of the file; it "
                        "may be truncated",
                        extent.begin, extent.end, size));
  }
  int64_t bytes = element_bytes;
  for (const int64_t dimension : tensor.shape) {
    if (__builtin_mul_overflow(bytes, dimension, &bytes)) return refuse("shape overflows");
  }
  if (bytes != extent.end - extent.begin) {
    return refuse(absl::StrFormat("dtype and shape need %d bytes, data_offsets hold %d", bytes,
                                  extent.end - extent.begin));
  }
  tensor.bytes = data.subspan(static_cast<size_t>(extent.begin), static_cast<size_t>(bytes));
  return absl::OkStatus();
}

// Refuses holes and overlaps, which the format forbids: the tensors must cover the data exactly.
absl::Status CheckCover(std::vector<Extent>& extents, int64_t size, const std::string& path) {
  std::sort(extents.begin(), extents.end(), [](const Extent& a, const Extent& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.end < b.end;
  });
  int64_t end = 0;
  for (const Extent& extent : extents) {
    if (extent.begin != end) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "%s: tensor \"%s\" begins at byte %d, where %d was expected: a hole or an overlap", path,
          extent.name, extent.begin, end));
    }
    end = extent.end;
  }
  if (end == size) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat(
      "%s: the tensors cover %d of %d data bytes; the file may be damaged", path, end, size));
}

}  // namespace

absl::StatusOr<SafetensorsFile> SafetensorsFile::Open(const std::string& path) {
  SafetensorsFile result;
  ASSIGN_OR_RETURN(result.file_, MappedFile::Open(path));
  const std::span<const std::byte> bytes = result.file_.bytes();
  uint64_t header_bytes = 0;
  if (bytes.size() < sizeof(header_bytes)) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s: %d bytes are no safetensors file", path, bytes.size()));
  }
  std::memcpy(&header_bytes, bytes.data(), sizeof(header_bytes));
  if (header_bytes > kMaxHeaderBytes || header_bytes > bytes.size() - sizeof(header_bytes)) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s: the header claims %u bytes, the file has %d (the max is %u); "
                        "it may be truncated",
                        path, header_bytes, bytes.size(), kMaxHeaderBytes));
  }
  result.header_ = bytes.subspan(sizeof(header_bytes), static_cast<size_t>(header_bytes));
  const std::span<const std::byte> data =
      bytes.subspan(sizeof(header_bytes) + static_cast<size_t>(header_bytes));
  const std::string_view text(reinterpret_cast<const char*>(result.header_.data()),
                              result.header_.size());
  ASSIGN_OR_RETURN(const json::object header, ParseJsonObject(text, path + " (header)"));

  std::vector<Extent> extents;
  for (const json::key_value_pair& entry : header) {
    const std::string name(entry.key().data(), entry.key().size());
    if (name == "__metadata__") continue;
    TensorView tensor;
    Extent extent{0, 0, name};
    RETURN_IF_ERROR(ReadTensor(entry.value(), data,
                               absl::StrCat(path, ": tensor \"", name.substr(0, 200), "\""), tensor,
                               extent));
    result.tensors_.emplace(name, std::move(tensor));
    extents.push_back(std::move(extent));
  }
  RETURN_IF_ERROR(CheckCover(extents, static_cast<int64_t>(data.size()), path));
  return result;
}

namespace {

// File names of an index, in ascending order, each once.
absl::StatusOr<std::set<std::string>> FilesOfIndex(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path, kMaxIndexBytes));
  ASSIGN_OR_RETURN(const json::object index, ParseJsonObject(text, path));
  const json::value* map = index.if_contains("weight_map");
  if (map == nullptr || !map->is_object() || map->get_object().empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": weight_map is missing or not an object of tensor: file"));
  }
  std::set<std::string> names;
  for (const json::key_value_pair& entry : map->get_object()) {
    std::string name;
    if (entry.value().is_string()) {
      name.assign(entry.value().get_string().data(), entry.value().get_string().size());
    }
    // A name only: an index must not lead out of its folder.
    if (name.empty() || name.find('/') != std::string::npos || name[0] == '.') {
      return absl::InvalidArgumentError(absl::StrFormat(
          "%s: weight_map: \"%s\" is no file name of this folder", path, name.substr(0, 200)));
    }
    names.insert(name);
  }
  return names;
}

}  // namespace

absl::StatusOr<Checkpoint> Checkpoint::Open(const std::string& folder) {
  namespace fs = std::filesystem;
  std::error_code error;
  std::set<std::string> names{"model.safetensors"};
  const std::string index = fs::path(folder) / "model.safetensors.index.json";
  if (!fs::exists(fs::path(folder) / "model.safetensors", error)) {
    if (!fs::exists(index, error)) {
      return absl::NotFoundError(absl::StrCat(
          folder,
          ": neither model.safetensors nor model.safetensors.index.json is there; convert "
          "the checkpoint to safetensors"));
    }
    ASSIGN_OR_RETURN(names, FilesOfIndex(index));
  }
  Checkpoint checkpoint;
  checkpoint.folder_ = folder;
  for (const std::string& name : names) {
    ASSIGN_OR_RETURN(SafetensorsFile file, SafetensorsFile::Open(fs::path(folder) / name));
    for (const auto& [tensor, view] : file.tensors()) {
      if (checkpoint.Find(tensor) != nullptr) {
        return absl::InvalidArgumentError(absl::StrFormat(
            "%s: tensor \"%s\" is in %s and in a file before it", folder, tensor, name));
      }
    }
    checkpoint.files_.push_back(std::move(file));
  }
  return checkpoint;
}

const TensorView* Checkpoint::Find(const std::string& name) const {
  for (const SafetensorsFile& file : files_) {
    const auto found = file.tensors().find(name);
    if (found != file.tensors().end()) return &found->second;
  }
  return nullptr;
}

}  // namespace baton
