// Files of the repository, for seeds and fixtures of fuzz targets.
#pragma once

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "common/check.h"

namespace baton {

inline std::string SourcePath(const std::string& path) {
  return std::string(BATON_SOURCE_DIR) + "/" + path;
}

// path: from the root of the repository.
inline std::string FileText(const std::string& path) {
  std::ifstream file(SourcePath(path), std::ios::binary);
  BATON_CHECK(file.good());
  return {std::istreambuf_iterator<char>(file), {}};
}

// The paths of a folder's files with that end, in ascending order.
inline std::vector<std::string> FilesOf(const std::string& folder, const std::string& end) {
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator(SourcePath(folder)))
    if (entry.path().string().ends_with(end))
      paths.push_back(folder + "/" + entry.path().filename().string());
  BATON_CHECK(!paths.empty());
  std::sort(paths.begin(), paths.end());
  return paths;
}

}  // namespace baton
