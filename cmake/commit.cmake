# Run by each build: writes the source file OUT with the commit of the tree SOURCE, "" where it is not known (a tarball,
# and no COMMIT given). An unchanged file stays as it is, so that nothing is compiled anew.
if(NOT COMMIT AND EXISTS ${SOURCE}/.git)
  execute_process(COMMAND git -C ${SOURCE} describe --always --abbrev=12 --exclude=* --dirty=+
    OUTPUT_VARIABLE COMMIT ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
endif()
file(CONFIGURE OUTPUT ${OUT} CONTENT [[
// Written by cmake/commit.cmake.
#include "server/cli/commit.h"

namespace baton {
const char kCommit[] = "@COMMIT@";
}  // namespace baton
]] @ONLY)
