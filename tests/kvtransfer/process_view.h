// The descriptors and threads of the test's own process.
#pragma once

#include <dirent.h>

#include <chrono>
#include <string>
#include <thread>
#include <utility>

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
// Counts until the number stays: the kernel shows a thread for a moment after it was joined.
inline int CountThreads() {
  int before = -1, n = CountEntries("/proc/self/task");
  while (n != before) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    before = std::exchange(n, CountEntries("/proc/self/task"));
  }
  return n;
}

}  // namespace baton
