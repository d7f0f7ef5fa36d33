#!/usr/bin/env bash
# The .deb on an empty Debian 12: makes the packages, installs the .deb in a fresh debootstrap root, runs the command of
# baton.service as its user, asks the demo for tokens, removes everything, and looks for what is left. Then the tarball,
# unpacked anywhere. Root only; a minute or two, and debootstrap's download at the first run. Not a part of CI.
#   scripts/package_test.sh [--baton FILE]
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/python_client.sh
[ "$(id -u)" -eq 0 ] || { echo "package_test: it makes a root of its own, which needs root" >&2; exit 1; }
for tool in debootstrap unshare chroot; do
  command -v "$tool" >/dev/null || { echo "package_test: no $tool; apt-get install debootstrap util-linux" >&2; exit 1; }
done
scripts/package.sh --baton "$baton"
deb=$(ls "$PWD"/build/packages/baton_*_amd64.deb)
tarball=$(ls "$PWD"/build/packages/baton-*.tar.gz)

fail() {
  echo "package_test: $1" >&2
  exit 1
}
step() { printf '%4d s  %s\n' $SECONDS "$1"; }

# --- an empty Debian 12 --------------------------------------------------------------------------------
. scripts/empty_debian.sh
empty_debian
root=$(mktemp -d)
mounted=()
clean() {
  local status=$? place
  for place in "${mounted[@]}"; do umount -l "$place" || true; done
  rm -rf --one-file-system "$root"
  exit $status
}
trap clean EXIT
trap 'exit 1' INT TERM
tar -C "$root" -xf "$empty"
for place in proc dev; do
  mount --rbind "/$place" "$root/$place"
  mount --make-rslave "$root/$place"
  mounted=("$root/$place" "${mounted[@]}")
done
# What apt needs to reach Debian from here.
cp /etc/resolv.conf "$root/etc/resolv.conf"
rm -f "$root/etc/apt/sources.list"
for path in /etc/apt/apt.conf.d /etc/apt/sources.list /etc/apt/sources.list.d /etc/apt/auth.conf.d; do
  [ ! -e "$path" ] || cp -a "$path" "$root/etc/apt/"
done
rm -f "$root"/etc/apt/apt.conf.d/docker-clean
within() { chroot "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root DEBIAN_FRONTEND=noninteractive "$@"; }
within apt-get update -qq >/dev/null
step "an empty Debian 12 of $(within dpkg-query -f '.\n' -W | wc -l) packages"

# All paths, and who the users are. What apt and dpkg write about themselves is left out, and caches; so is the group
# that libibverbs1, which UCX needs, makes and leaves.
state() {
  (cd "$root" && find . -xdev \( -path ./proc -o -path ./dev -o -path ./run -o -path ./var/lib/apt -o -path ./var/lib/dpkg -o \
    -path ./var/cache/apt -o -path ./var/cache/ldconfig -o -path ./var/log -o -path ./var/cache/debconf -o -path ./tmp \) -prune -o \
    ! -name '*-' ! -name '*.pyc' -printf '%p\n' | LC_ALL=C sort
   cat etc/passwd etc/group | grep -v '^rdma:')
  within dpkg-query -W -f '${Package} ${db:Status-Abbrev}\n'
}
wants=etc/systemd/system/multi-user.target.wants
mkdir -p "$root/$wants" "$root/run/systemd/system"  # systemd seems to run, and does not answer: that fails no package
state >"$root.before"

# --- install, serve -------------------------------------------------------------------------------------
cp "$deb" "$root/tmp/"
within apt-get install -y -qq --no-install-recommends "/tmp/$(basename "$deb")" >"$root/tmp/log" 2>&1 ||
  { tail -20 "$root/tmp/log" >&2; fail "apt-get install failed"; }
step "installed $(basename "$deb"), $(du -k "$deb" | cut -f1) KiB, with $(within dpkg-query -f '.\n' -W | wc -l) packages in all"
grep -q '^baton:' "$root/etc/passwd" || fail "no user baton"
[ "$(within baton --version)" = "$("$baton" --version)" ] || fail "another version is installed: $(within baton --version)"

# The command of the unit, as its user, with the folders that systemd makes, in a network of its own.
command=$(sed -n 's/^ExecStart=//p' "$root/lib/systemd/system/baton.service")
for folder in var/lib/baton var/cache/baton; do
  mkdir -p "$root/$folder"
  chmod 700 "$root/$folder"
  within chown baton:baton "/$folder"
done
cat >"$root.serve" <<SERVE
set -euo pipefail
ip link set lo up
mount -t sysfs sysfs "$root/sys"  # where UCX looks for this network's devices
chroot --userspec=baton:baton "$root" /usr/bin/env -i PATH=/usr/bin:/bin $command >"$root/tmp/serve.log" 2>&1 &
pid=\$!
end=\$((SECONDS + 60))
until curl -sf http://127.0.0.1:8000/readyz >/dev/null; do
  [ \$SECONDS -lt \$end ] && kill -0 \$pid || { cat "$root/tmp/serve.log" >&2; exit 1; }
  sleep 0.1
done
curl -sf http://127.0.0.1:8000/v1/completions -H 'Content-Type: application/json' \
  -d '{"model": "demo", "prompt": "The harbour", "max_tokens": 8, "ignore_eos": true}'
kill \$pid
wait \$pid
SERVE
answer=$(unshare --net --mount bash "$root.serve") || fail "the unit's command does not serve: $(tail -5 "$root/tmp/serve.log")"
echo "$answer" | python3 -c 'import json, sys; assert json.load(sys.stdin)["usage"]["completion_tokens"] == 8' ||
  fail "a wrong answer: $answer"
step "served 8 tokens of the demo as user baton: $command"
[ -n "$(ls -A "$root/var/cache/baton/weights")" ] || fail "no packed weights in /var/cache/baton/weights"

# --- remove ---------------------------------------------------------------------------------------------
for unit in baton baton-router baton-prefill@0 baton-decode@0; do  # enabled
  ln -s "/lib/systemd/system/${unit/@0/@}.service" "$root/$wants/$unit.service"
done
within apt-get purge -y -qq --autoremove baton >"$root/tmp/log" 2>&1 || { tail "$root/tmp/log" >&2; fail "purge failed"; }
state >"$root.after"
diff "$root.before" "$root.after" >"$root.left" || { cat "$root.left" >&2; fail "something is left, or is gone, after the purge"; }
rm -f "$root".{before,after,left,serve}
step "purged, nothing is left"

# --- the tarball ------------------------------------------------------------------------------------------
mkdir "$root/tmp/unpacked"
tar -C "$root/tmp/unpacked" -xzf "$tarball"
program=$(ls "$root"/tmp/unpacked/*/bin/baton)
[ ! -e "$(dirname "$program")/../../etc" ] || fail "the tarball has files for /etc"
"$program" config --demo | grep -q "$root/tmp/unpacked/.*/share/baton/models/demo" || fail "the tarball's program finds another demo"
step "the tarball, $(du -k "$tarball" | cut -f1) KiB, runs where it is unpacked"
echo "package_test passed"
