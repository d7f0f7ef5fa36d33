// Writes a safetensors file (engine/checkpoint/safetensors.h has the format): the tensors are
// declared first, then any threads write their bytes at the final place. The file gets its name
// only when it is complete and on disk.
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
    int64_t bytes = 0;
  };

  // Reserves the whole file as `path`.tmp. Errors name the path.
  static absl::StatusOr<std::unique_ptr<SafetensorsWriter>> Create(
      const std::string& path, const std::vector<Tensor>& tensors);
  ~SafetensorsWriter();  // removes the unfinished file
  SafetensorsWriter(const SafetensorsWriter&) = delete;
  SafetensorsWriter& operator=(const SafetensorsWriter&) = delete;

  // Where the bytes of tensor i go. Not aligned.
  std::byte* data(size_t i) { return memory_ + places_[i]; }
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
