/* A network card or a memory that flips bits: loaded before libc (LD_PRELOAD), it changes a byte in the middle of every
   eighth large piece that the process receives. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdatomic.h>
#include <sys/socket.h>

enum { kLarge = 8192, kEach = 8 };

ssize_t recv(int socket, void *buffer, size_t size, int flags) {
  static ssize_t (*real)(int, void *, size_t, int);
  static atomic_int n;
  if (!real) real = (ssize_t(*)(int, void *, size_t, int))dlsym(RTLD_NEXT, "recv");
  const ssize_t received = real(socket, buffer, size, flags);
  if (received >= kLarge && !(flags & MSG_PEEK) && atomic_fetch_add(&n, 1) % kEach == 0)
    ((char *)buffer)[received / 2] ^= 1;
  return received;
}
