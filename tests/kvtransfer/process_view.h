// The descriptors and threads of the test's own process.
#pragma once

#include <dirent.h>

#include <string>

namespace baton {

// With names that begin like this; -1: the folder cannot be read.
inline int CountEntries(const std::string& folder, const std::string& prefix = "") {
  DIR* dir = ::opendir(folder.c_str());
  if (dir == nullptr) return -1;
  int n = 0;
  while (const dirent* entry = ::readdir(dir)) n += std::string(entry->d_name).starts_with(prefix);
  ::closedir(dir);
  return n;
}
inline int CountDescriptors() { return CountEntries("/proc/self/fd"); }
inline int CountThreads() { return CountEntries("/proc/self/task"); }

}  // namespace baton
