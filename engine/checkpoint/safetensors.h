// Checkpoints in safetensors format, mapped: every size, offset, dtype and shape is checked when a
// file is opened, so that a tensor handed out lies wholly inside its file.
// Format: u64 length of the header (little-endian), header (JSON: name -> {dtype, shape,
// data_offsets [begin, end)}), tensor bytes without holes or overlaps
// (github.com/huggingface/safetensors, README). Immutable: any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/status.h"
#include "engine/checkpoint/mapped_file.h"

namespace baton {

struct TensorView {
  std::string dtype;                 // as in the file: "BF16", "F16", "F32", ...
  std::vector<int64_t> shape;        // outermost dimension first
  std::span<const std::byte> bytes;  // in the file's mapping, which must outlive the view
};

class SafetensorsFile {
 public:
  // NotFound, Unavailable: the file cannot be mapped (mapped_file.h). InvalidArgument: not in the
  // format, or damaged. Errors name file and tensor.
  static absl::StatusOr<SafetensorsFile> Open(const std::string& path);

  const std::map<std::string, TensorView>& tensors() const { return tensors_; }
  const MappedFile& file() const { return file_; }
  std::span<const std::byte> header() const { return header_; }  // the JSON text

 private:
  MappedFile file_;
  std::span<const std::byte> header_;
  std::map<std::string, TensorView> tensors_;
};

// The files of a model folder: model.safetensors, or the files named in
// model.safetensors.index.json.
class Checkpoint {
 public:
  // NotFound: the folder has no such file, or the index names one that is not there.
  // InvalidArgument: a wrong index, or a tensor in two files. Else the errors of
  // SafetensorsFile::Open.
  static absl::StatusOr<Checkpoint> Open(const std::string& folder);

  // Null if no file has the tensor.
  const TensorView* Find(const std::string& name) const;
  const std::vector<SafetensorsFile>& files() const { return files_; }
  const std::string& folder() const { return folder_; }

 private:
  std::string folder_;
  std::vector<SafetensorsFile> files_;
};

}  // namespace baton
