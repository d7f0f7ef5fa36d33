// The descriptors and threads of the test's own process.
#pragma once

#include <dirent.h>

#include <string>

namespace baton {

inline int CountEntries(const std::string& folder) {
  DIR* dir = ::opendir(folder.c_str());
  if (dir == nullptr) return -1;
  int n = 0;
  while (::readdir(dir) != nullptr) ++n;
  ::closedir(dir);
  return n;
}
inline int CountDescriptors() { return CountEntries("/proc/self/fd"); }
inline int CountThreads() { return CountEntries("/proc/self/task"); }

}  // namespace baton
