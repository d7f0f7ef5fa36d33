#!/usr/bin/env bash
# The bug bank (docs/RELIABILITY.md): plants the bugs of tests/bug_bank in a copy of the sources, one
# after the other, and lets the simulation look for each. Prints the table of docs/RELIABILITY.md;
# ends with 1 if a bug is not found. It takes some minutes; CI runs --check only.
#   scripts/bug_bank.sh [--seeds N] [NAME...]   all bugs, or those named; seeds 1 to N (10000)
#   scripts/bug_bank.sh --check                 does each patch still apply, to product code only?
set -euo pipefail
cd "$(dirname "$0")/.."
bank=tests/bug_bank
copy=build/bug_bank
release=$copy/build/release

# Prints a patch's first line, and the room of the first file that it changes.
title() { sed -n '1s/^Bug: //p' "$bank/$1.patch"; }
changed_files() { sed -n 's|^+++ b/||p' "$bank/$1.patch"; }
room() { changed_files "$1" | sed 's|/.*||;q'; }

all_bugs() {  # by room
  local file name
  for file in "$bank"/*.patch; do
    name=$(basename "$file" .patch)
    echo "$(room "$name") $name"
  done | LC_ALL=C sort | cut -d' ' -f2
}

# apply NAME FOLDER [OPTION of patch]: all lines of context must match.
apply() { patch --strip=1 --fuzz=0 --force --silent --no-backup-if-mismatch -d "$2" "${@:3}" <"$bank/$1.patch"; }

row_head() { echo "| \`$1\` | $(room "$1") | $(title "$1") |"; }

check() {
  local n_bad=0 name file key
  complain() { echo "$1" && n_bad=$((n_bad + 1)); }
  for name in $(all_bugs); do
    for key in Bug Server Finder; do
      grep -q "^$key: ." "$bank/$name.patch" || complain "$bank/$name.patch: no line '$key: ...'"
    done
    apply "$name" . --dry-run || complain "$bank/$name.patch does not apply"
    for file in $(changed_files "$name"); do
      case $file in
        bench/* | lab/* | tests/*) complain "$bank/$name.patch changes $file, which is no product code" ;;
        *.cc | *.h) ;;
        *) complain "$bank/$name.patch changes $file, which is no product code" ;;
      esac
    done
  done
  diff <(sed -n '/^## The bug bank/,$p' docs/RELIABILITY.md | grep '^| `' | cut -d'|' -f1-4 | sed 's/$/|/') \
    <(for name in $(all_bugs); do row_head "$name"; done) ||
    complain "the table of docs/RELIABILITY.md (<) and the patches (>) differ"
  [ "$n_bad" -eq 0 ]
}

build() { ninja -C "$release" baton_sim >"$copy/build/build.log" 2>&1; }

simulate() {
  "$release/tests/sim/baton_sim" --until-violation --seeds "1..$1" >"$copy/build/run.log" 2>&1
}

# Prints the violated promise that ended the run, without identifiers, which depend on the seed.
finding() {
  local how failed
  how=$(sed -n 's/^VIOLATION seed [0-9]*: //p' "$copy/build/run.log" | head -1)
  failed=$(sed -n 's/^\(.*\/\)\?\([^/]*\):[0-9]*: CHECK failed: /CHECK in \2: /p' "$copy/build/run.log" | head -1)
  if [ "$how" = aborted ] && [ -n "$failed" ]; then how=$failed; fi
  sed -E 's/[0-9a-f]{12,}/X/g; s/\|/\\|/g; s/:$//' <<<"$how" | cut -c1-120
}

# Prints the row of one bug; fails if the simulation does not find it.
hunt() {
  local name=$1 seed="not found" how=
  if apply "$name" "$copy" --dry-run >"$copy/build/run.log"; then
    apply "$name" "$copy"
    if ! build; then
      how="does not build: see $copy/build/$name.log"
      cp "$copy/build/build.log" "$copy/build/$name.log"
    elif ! simulate "$n_seeds"; then
      seed=$(sed -n 's/^VIOLATION seed \([0-9]*\): .*/\1/p' "$copy/build/run.log" | head -1)
      how=$(finding)
    fi
    apply "$name" "$copy" --reverse
  else
    how="does not apply"
  fi
  echo "$(row_head "$name") ${seed:=not found} | $how |"
  [ "$seed" != "not found" ]
}

n_seeds=10000
bugs=()
while [ $# -gt 0 ]; do
  case $1 in
    --check) check && exit 0 || exit 1 ;;
    --seeds) n_seeds=$2 && shift ;;
    *) [ -f "$bank/$1.patch" ] || { echo "no $bank/$1.patch" >&2; exit 1; }
       bugs+=("$1") ;;
  esac
  shift
done
[ ${#bugs[@]} -gt 0 ] || mapfile -t bugs < <(all_bugs)

rm -rf "$copy"
mkdir -p "$release"
tar -cf - --exclude=./build --exclude=./.git --exclude=target . | tar -xf - -C "$copy"
(cd "$copy" && cmake --preset release) >"$copy/build/configure.log" || { cat "$copy/build/configure.log"; exit 1; }
build || { cat "$copy/build/build.log"; exit 1; }

n_found=0
echo "| bug | room | what it does | seeds to detection | found as |"
echo "|---|---|---|---|---|"
for name in "${bugs[@]}"; do
  if hunt "$name"; then n_found=$((n_found + 1)); fi
done
echo
echo "$n_found of ${#bugs[@]} bugs found"
[ "$n_found" -eq ${#bugs[@]} ]
