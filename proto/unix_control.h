// Control streams over a Unix socket, on one host: "unix:PATH" in place of host:port. The kernel
// says whose process the other end is; both ends speak to processes of their own user and of root
// alone. Needs no certificate: nobody sits in between. The proof of the cluster key stays.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>

#include "common/status.h"
#include "common/unix_listener.h"

namespace baton {

// True for "unix:PATH".
bool IsUnixAddress(std::string_view address);

// Whether a process of `own` speaks to one of `peer`.
inline bool IsTrustedUser(uid_t peer, uid_t own) { return peer == own || peer == 0; }

// Dials the address. Returns a descriptor that does not block, which the caller owns.
// Unavailable: nobody listens. PermissionDenied: the listener is another user's process.
absl::StatusOr<int> DialUnixControl(const std::string& address);

// Listens for streams. A thread of its own accepts them; one thread makes and destroys it.
class UnixControlListener {
 public:
  struct Handlers {
    std::function<void(int descriptor)> on_accepted;  // owns the descriptor, which does not block
    std::function<void(uid_t peer)> on_refused;       // of another user; closed afterwards
  };
  // Makes the socket's file, mode 0600; one that a killed process left is replaced.
  // InvalidArgument: the path is empty or too long. Unavailable: somebody listens there, or the
  // system refused. Handlers are called on the thread that accepts.
  static absl::StatusOr<std::unique_ptr<UnixControlListener>> Start(const std::string& address,
                                                                    Handlers handlers);
  ~UnixControlListener();  // no handler is called afterwards; removes the file
  UnixControlListener(const UnixControlListener&) = delete;
  UnixControlListener& operator=(const UnixControlListener&) = delete;

 private:
  UnixControlListener(std::unique_ptr<UnixListener> file, int stop, Handlers handlers);
  void Accept();

  const std::unique_ptr<UnixListener> file_;
  const int socket_, stop_;  // stop_: an eventfd that ends the thread
  const Handlers handlers_;
  std::thread thread_;  // last member: starts when all others exist
};

}  // namespace baton
