// Reads the file of keys again when it has changed, or when it is told to. A file that is refused
// changes nothing and is one line in the log. Loop's thread.
#pragma once

#include <string>

#include "server/access/api_keys.h"
#include "server/http/event_loop.h"
#include "server/http/file_watch.h"

namespace baton {

class KeyFileWatch {
 public:
  // is_quiet: another process says in the log what becomes of the file. loop and keys must outlive
  // the watch.
  KeyFileWatch(EventLoop* loop, const std::string& path, ApiKeys* keys, bool is_quiet = false);

  void Read();  // now, changed or not

 private:
  const std::string path_;
  ApiKeys* keys_;
  const bool is_quiet_;
  FileWatch watch_;
};

}  // namespace baton
