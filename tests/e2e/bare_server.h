// A server that does the least that any does: one thread takes connections, reads what comes, and
// writes a page for each request, until the kernel takes no more of it. A control: what an attack
// on it costs others is the price of the attacker and of the kernel on the same cores, not Baton's.
#pragma once

#include <cstddef>

namespace baton {

// Listens on 127.0.0.1, prints the port as a line, and serves until the process is killed. Returns
// 1 if it cannot listen.
int ServeBare(size_t page_bytes);

}  // namespace baton
