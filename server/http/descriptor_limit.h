// How many descriptors the process may have. Called once, at the start of a process.
#pragma once

namespace baton {

// Raises the limit to what the system allows this user. Returns how many connections may be open
// at the same time, at least 16: a reserve stays for files, workers and handshakes.
int RaiseDescriptorLimit(int reserve);

}  // namespace baton
