// The digest that a hub names a file by: SHA-256 of files in its large storage, else the id of
// git's blob. One thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace baton {

enum class DigestKind { kSha256, kGitBlob };

class FileDigest {
 public:
  // size: of the whole file in bytes, which is a part of git's id.
  FileDigest(DigestKind kind, int64_t size);
  ~FileDigest();
  FileDigest(FileDigest&&) noexcept;
  FileDigest& operator=(FileDigest&&) noexcept;

  void Take(std::string_view bytes);
  std::string Hex();  // once, at the end

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace baton
