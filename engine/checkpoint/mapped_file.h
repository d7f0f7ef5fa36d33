// A file mapped into memory, read-only. Owns the mapping; movable. The bytes are constant: any
// thread may read them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "common/status.h"

namespace baton {

// Brings the pages of a mapping into memory, where touching them would do so one by one. False: the
// file has none there any more, or the disk cannot read them, and touching them would end the
// process (SIGBUS).
bool BringIn(const std::byte* begin, size_t size);

class MappedFile {
 public:
  // NotFound: not there. InvalidArgument: not a regular file. Unavailable: the system refused.
  // Errors name the path. An empty file maps to an empty span. A file that is cut short while
  // mapped ends the process (SIGBUS): model files are replaced, never edited in place.
  static absl::StatusOr<MappedFile> Open(const std::string& path);
  // Maps an open descriptor's file and leaves the descriptor alone. path: for errors.
  static absl::StatusOr<MappedFile> Map(int descriptor, const std::string& path);
  MappedFile() = default;
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  // Valid as long as this object or the one it is moved to.
  std::span<const std::byte> bytes() const { return {data_, size_}; }
  int64_t modified_ns() const { return modified_ns_; }  // mtime, in ns since 1970

 private:
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
  int64_t modified_ns_ = 0;
};

}  // namespace baton
