# Sourced by the other scripts: `stage NAME COMMAND...` runs the command and prints its duration.
stage() {
  local name=$1 start
  shift
  start=$(date +%s.%N)
  printf '== %s\n' "$name"
  "$@"
  awk -v name="$name" -v start="$start" -v end="$(date +%s.%N)" \
    'BEGIN { printf "== %s: %.1f s\n", name, end - start }'
}
