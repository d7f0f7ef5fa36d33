// Tells when files may have changed: written, replaced, or reached by other links, as certificates
// are. It watches the folders of the files and of what they link to. Loop's thread.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "server/http/event_loop.h"

namespace baton {

class FileWatch {
 public:
  // Calls on_change a moment after one of the files has become another (by size, inode or time of
  // change), once for changes that come together. If the system refuses the watch, on_change is
  // never called, and the log says so. The loop must outlive the watch.
  FileWatch(EventLoop* loop, std::vector<std::string> paths, std::function<void()> on_change);
  ~FileWatch();
  // The files were read just now: on_change need not tell of changes before.
  void Seen();
  FileWatch(const FileWatch&) = delete;
  FileWatch& operator=(const FileWatch&) = delete;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace baton
