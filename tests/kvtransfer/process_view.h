// What a test can see of its own process, and do to it: descriptors, threads, connections.
#pragma once

#include <dirent.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdlib>
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

// Ends every TCP connection of this process under the feet of whoever uses it, as a network that
// breaks does: both ends see it closed. The number of them.
inline int CutTcpConnections() {
  DIR* dir = ::opendir("/proc/self/fd");
  if (dir == nullptr) return -1;
  int n = 0;
  while (const dirent* entry = ::readdir(dir)) {
    const int fd = std::atoi(entry->d_name);
    sockaddr_storage peer{};
    socklen_t length = sizeof(peer);
    if (::getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &length) != 0) continue;
    if (peer.ss_family != AF_INET) continue;
    n += ::shutdown(fd, SHUT_RDWR) == 0;
  }
  ::closedir(dir);
  return n;
}

}  // namespace baton
