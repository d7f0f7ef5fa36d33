// A folder for the files that a fuzz target's inputs are. scripts/fuzz.sh removes what is left of
// it: a process that a finding ends does not.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "common/check.h"

namespace baton {

class ScratchFolder {
 public:
  ScratchFolder() : path_(std::filesystem::temp_directory_path() / "baton-fuzz-XXXXXX") {
    BATON_CHECK(::mkdtemp(path_.data()) != nullptr);
  }
  ~ScratchFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string file(const std::string& name) const { return path_ + "/" + name; }
  void Write(const std::string& name, std::string_view bytes) const {
    std::ofstream out(file(name), std::ios::binary);
    out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    BATON_CHECK(out.good());
  }
  void Remove(const std::string& name) const { std::filesystem::remove(file(name)); }

 private:
  std::string path_;
};

}  // namespace baton
