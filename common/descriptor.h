// A file descriptor with one owner, which closes it. Closing also gives up the flock of a locked
// file. Any thread, one at a time.
#pragma once

#include <unistd.h>

#include <utility>

namespace baton {

class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() { Close(); }
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    if (this != &other) {
      Close();
      fd_ = std::exchange(other.fd_, -1);
    }
    return *this;
  }

  bool is_open() const { return fd_ >= 0; }
  int get() const { return fd_; }  // -1: none

 private:
  void Close() {
    if (fd_ >= 0) ::close(fd_);
  }

  int fd_ = -1;
};

}  // namespace baton
