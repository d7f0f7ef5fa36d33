// The file of a Unix socket that a server listens on: made at the start, removed at the end. One
// thread.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>

#include "common/status.h"

namespace baton {

class UnixListener {
 public:
  // Binds path with the given mode (0660) and listens; the socket does not block. A socket that
  // nobody listens on any more is replaced. setting: what the path comes from. InvalidArgument: the
  // path is too long, or has something else than a socket. Unavailable: somebody listens there, or
  // it cannot be bound. Errors name setting, path and remedy.
  static absl::StatusOr<std::unique_ptr<UnixListener>> Listen(const std::string& path, mode_t mode,
                                                              const char* setting);
  ~UnixListener();  // removes the file, if it is still this one
  UnixListener(const UnixListener&) = delete;
  UnixListener& operator=(const UnixListener&) = delete;

  // The listening socket; the caller owns it from now on.
  int Release();

 private:
  UnixListener(std::string path, int socket) : path_(std::move(path)), socket_(socket) {}

  const std::string path_;
  int socket_;
  dev_t device_ = 0;  // of the file
  ino_t inode_ = 0;
};

}  // namespace baton
