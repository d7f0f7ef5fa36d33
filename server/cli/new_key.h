// `baton key`: makes an API key.
#pragma once

#include <string>

#include "server/cli/command_line.h"

namespace baton {

// Prints the line for the file of keys to stdout and the key to stderr, so that
// `baton key NAME >> FILE` adds the one and shows the other. Returns the exit status.
int RunNewKey(const NewKeyCommand& command);

// A random key: bk_ and 43 characters, 256 bits.
std::string RandomKey();

}  // namespace baton
