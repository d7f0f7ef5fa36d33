// The source tree as text, for rules about it: files by folder, their lines and #includes.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace baton {

struct SourceFile {
  std::string path;  // relative to the repository, '/' separated
  std::vector<std::string> lines;

  std::string name() const { return std::filesystem::path(path).filename().string(); }
  bool IsHeader() const { return path.ends_with(".h") || path.ends_with(".cuh"); }
  // Returns the first component of the path; empty: a file at the root.
  std::string Room() const {
    const size_t end = path.find('/');
    return end == std::string::npos ? "" : path.substr(0, end);
  }
  // Returns the text between the quotes or angle brackets of each #include line.
  std::vector<std::string> Includes() const {
    std::vector<std::string> includes;
    for (const std::string& line : lines) {
      if (!line.starts_with("#include ")) continue;
      const size_t open = line.find_first_of("<\"");
      const size_t close = line.find_last_of(">\"");
      if (open == std::string::npos || close <= open) continue;
      includes.push_back(line.substr(open + 1, close - open - 1));
    }
    return includes;
  }
};

inline bool IsCode(const std::filesystem::path& path) {
  const std::string extension = path.extension().string();
  return extension == ".cc" || extension == ".h" || extension == ".cu" || extension == ".cuh" ||
         extension == ".rs";
}

// Reads all code files under the given folders of the repository.
inline std::vector<SourceFile> ReadTree(const std::string& root,
                                        const std::vector<std::string>& folders) {
  std::vector<SourceFile> files;
  for (const std::string& folder : folders) {
    const std::filesystem::path top = std::filesystem::path(root) / folder;
    if (!std::filesystem::exists(top)) continue;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(top)) {
      const std::string path = std::filesystem::relative(entry.path(), root).generic_string();
      if (!entry.is_regular_file() || !IsCode(entry.path())) continue;
      if (path.find("/target/") != std::string::npos) continue;  // cargo's output
      SourceFile file{path, {}};
      std::ifstream stream(entry.path());
      for (std::string line; std::getline(stream, line);) file.lines.push_back(line);
      files.push_back(std::move(file));
    }
  }
  return files;
}

inline std::string ReadText(const std::filesystem::path& path) {
  std::ifstream stream(path);
  return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
}

}  // namespace baton
