// Reads the file of keys again when it has changed, or when it is told to. A file that is refused
// changes nothing and is one line in the log. Loop's thread.
#pragma once

#include <sys/types.h>

#include <ctime>
#include <string>

#include "server/access/api_keys.h"
#include "server/http/event_loop.h"

namespace baton {

class KeyFileWatch {
 public:
  // Looks every `pace`, and reads the file once by itself. is_quiet: another process says in the
  // log what becomes of the file. loop and keys must outlive the watch.
  KeyFileWatch(EventLoop* loop, std::string path, ApiKeys* keys, bool is_quiet = false,
               absl::Duration pace = absl::Seconds(1));

  void Read();  // now, changed or not

 private:
  // Tells one content of a file from another.
  struct Stamp {
    dev_t device = 0;
    ino_t inode = 0;
    off_t size = -1;  // -1: there is no such file
    timespec modified{}, changed{};
    bool operator==(const Stamp& other) const;
  };
  Stamp Now() const;
  void Look();
  void LookLater();

  const std::string path_;
  ApiKeys* keys_;
  const bool is_quiet_;
  const absl::Duration pace_;
  Stamp read_, seen_;  // as it was read; as it was at the last look
  EventLoop::Timer timer_;
};

}  // namespace baton
