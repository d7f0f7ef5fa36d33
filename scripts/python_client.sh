# Sourced by the tests of clients (sdk_test.sh, grpc_test.sh, lab.sh), in the root of the repository, with
# their arguments: takes --baton FILE out of them. Leaves `arguments`, `baton`, and functions.
baton=$PWD/build/release/baton
arguments=("$@")
if [ "${1:-}" = --baton ]; then
  baton=$(realpath "$2")
  arguments=("${@:3}")
fi
[ -x "$baton" ] || { echo "no $baton; build it: ninja -C build/release baton" >&2; exit 1; }

# require TOOL...: ends the script if a tool is missing
require() {
  local tool
  for tool in "$@"; do
    command -v "$tool" >/dev/null || { echo "no $tool; run scripts/packages.sh" >&2; exit 1; }
  done
}
# no_registry NAME: the clients could not be installed from it
no_registry() {
  echo "$(basename "$0" .sh): the clients could not be installed from $1 (see above), so nothing was tested" >&2
  exit 1
}
# install_python FOLDER REQUIREMENTS: a fresh folder with an environment of exactly these pins
install_python() {
  rm -rf "$1"
  mkdir -p "$1"
  python3 -m venv "$1/venv"
  "$1/venv/bin/pip" install --quiet --disable-pip-version-check --no-deps -r "$2" || no_registry PyPI
  "$1/venv/bin/pip" check
}
# run_pytest FOLDER TESTS ARGUMENT...: with the environment of FOLDER; ends the script
run_pytest() {
  cd "$2"
  exec "$1/venv/bin/python" -B -m pytest -p no:cacheprovider --rootdir=. -q --tb=short "--baton=$baton" "${@:3}"
}
