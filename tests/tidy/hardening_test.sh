#!/usr/bin/env bash
# hardening_test.sh BATON: the program is hardened as docs/SECURITY.md says. Reads it with readelf.
set -euo pipefail
baton=$1
bad=0
want() {  # want WHAT PATTERN OPTIONS: what readelf prints has the pattern
  local what=$1 pattern=$2
  shift 2
  readelf "$@" "$baton" | grep -E "$pattern" >/dev/null || { echo "$baton: $what"; bad=1; }
}
want "is not position independent" "Type: +DYN" -hW
want "binds symbols late" "FLAGS_1.*NOW" -dW
want "has no read-only relocations" "GNU_RELRO" -lW
want "has an executable stack" "GNU_STACK.* RW +0x" -lW
want "does not check the stack" "__stack_chk_fail" --dyn-syms -W
want "does not check copies" "__(mem|str|v?sn?printf|read|recv|poll)[a-z]*_chk" --dyn-syms -W
# Nothing is writable and executable.
if readelf -lW "$baton" | grep -E "LOAD.* RWE " >/dev/null; then
  echo "$baton: a segment is writable and executable"
  bad=1
fi
exit $bad
