# Sourced by tests of packages.
# empty_debian: leaves in `empty` the path of a tar with an empty Debian 12, made by debootstrap once
empty_debian() {
  local new
  empty=${XDG_CACHE_HOME:-$HOME/.cache}/baton-tools/debian12.tar
  [ ! -f "$empty" ] || return 0
  new=$(mktemp -d)
  debootstrap --variant=minbase bookworm "$new/root" >"$new/log" 2>&1 ||
    { tail "$new/log" >&2; echo "$(basename "$0" .sh): debootstrap failed" >&2; exit 1; }
  mkdir -p "$(dirname "$empty")"
  tar -C "$new/root" -cf "$empty.part" .
  mv "$empty.part" "$empty"
  rm -rf "$new"
}
