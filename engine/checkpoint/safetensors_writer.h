// Writes a safetensors file (engine/checkpoint/safetensors.h has the format): the tensors are
// declared first, then their bytes are written at the final place, by any threads. The file gets
// its name only when it is complete and on disk. Create and Finish: one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/status.h"

namespace baton {

class SafetensorsWriter {
 public:
  struct Tensor {
    std::string name, dtype;  // as in the file: "BF16", "I32", ...
    std::vector<int64_t> shape;
    int64_t bytes = 0;  // of all values
  };

  // Reserves the whole file as `path`.tmp. Unavailable: the file cannot be created, or the disk is
  // too full; the error names the path.
  static absl::StatusOr<std::unique_ptr<SafetensorsWriter>> Create(
      const std::string& path, const std::vector<Tensor>& tensors);
  ~SafetensorsWriter();  // removes the unfinished file
  SafetensorsWriter(const SafetensorsWriter&) = delete;
  SafetensorsWriter& operator=(const SafetensorsWriter&) = delete;

  // The place for the bytes of tensor i. Not aligned.
  std::byte* data(size_t i) { return memory_ + places_[i]; }
  // Called once, when all bytes are written: brings the file to disk and gives it its name.
  // Unavailable: the system refused.
  absl::Status Finish();

 private:
  SafetensorsWriter() = default;

  std::string path_;
  int file_ = -1;
  std::byte* memory_ = nullptr;
  int64_t bytes_ = 0;
  std::vector<int64_t> places_;  // (tensors) offsets in the file
};

}  // namespace baton
