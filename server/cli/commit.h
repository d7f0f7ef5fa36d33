// The commit that the program was built from.
#pragma once

namespace baton {

// Twelve hex digits, with a + where files had been changed; empty: not known.
extern const char kCommit[];

}  // namespace baton
