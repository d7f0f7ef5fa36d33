// How many descriptors the process may have, and room for them. Called once, at the start of a
// process.
#pragma once

namespace baton {

// Raises the limit to what the system allows this user. Returns how many connections may be open
// at the same time, at least 16: a reserve stays for files, workers and handshakes.
int RaiseDescriptorLimit(int reserve);

// Makes room for so many descriptors in the kernel's table of the process, 8 bytes each. The table
// grows by itself, but in a process with threads the one that opens a connection then stands until
// every core has been through the kernel, some 15 ms at each doubling, and what it serves with it.
void GrowDescriptorTable(int n);

}  // namespace baton
