#!/usr/bin/env bash
# The image: builds the last stage of deploy/docker/Dockerfile with buildah, on a base made by debootstrap, from the .deb
# of scripts/package.sh; then runs it as a pod does: user 10001, read-only root, only /tmp, /cache and /dev/shm to
# write. Its first stage, which compiles, is not run here. Root only; not a part of CI.
#   scripts/image_test.sh [--baton FILE]
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/python_client.sh
[ "$(id -u)" -eq 0 ] || { echo "image_test: it makes an image, which needs root" >&2; exit 1; }
for tool in buildah debootstrap unshare; do
  command -v "$tool" >/dev/null || { echo "image_test: no $tool; apt-get install buildah debootstrap" >&2; exit 1; }
done
. scripts/empty_debian.sh
empty_debian
deb=$(ls "$PWD"/build/packages/baton_*_amd64.deb 2>/dev/null || true)
[ "$deb" -nt "$baton" ] || scripts/package.sh --baton "$baton"

# Storage without overlays and containers without namespaces of their own: what buildah needs is least then.
export STORAGE_DRIVER=vfs BUILDAH_ISOLATION=chroot
folder=$(mktemp -d)
containers=()
clean() {
  local status=$?
  for container in "${containers[@]}"; do buildah rm "$container" >/dev/null || true; done
  buildah rmi -f localhost/baton-test localhost/baton-test-base >/dev/null 2>&1 || true
  rm -rf "$folder"
  exit $status
}
trap clean EXIT
trap 'exit 1' INT TERM

containers+=("$(buildah from scratch)")
buildah add -q "${containers[0]}" "$empty" / >/dev/null
buildah commit -q "${containers[0]}" localhost/baton-test-base >/dev/null
mkdir -p "$folder/built/src/build"
cp -r build/packages "$folder/built/src/build/"
buildah build --build-arg BASE=localhost/baton-test-base --build-context "build=$folder/built" \
  -f deploy/docker/Dockerfile -t localhost/baton-test . >"$folder/log" 2>&1 || { tail -20 "$folder/log" >&2; exit 1; }
containers+=("$(buildah from localhost/baton-test)")
root=$(buildah mount "${containers[1]}")
echo "built: $(du -sm "$root" | cut -f1) MB, base $(($(stat -c %s "$empty") >> 20)) MB"

read -r user entry < <(buildah inspect "${containers[1]}" | python3 -c '
import json, sys
config = json.load(sys.stdin)["OCIv1"]["config"]
print(config["User"], " ".join(config["Entrypoint"]))')
[ "$user" = 10001:10001 ] || { echo "image_test: the image runs as $user" >&2; exit 1; }
cat >"$folder/serve" <<SERVE
set -euo pipefail
ip link set lo up
mount --bind "$root" "$root"
mount -o remount,bind,ro "$root"
mount -t proc proc "$root/proc"
mount -t sysfs sysfs "$root/sys"
mount --rbind /dev "$root/dev"
for place in tmp cache dev/shm; do mount -t tmpfs -o mode=1777 tmpfs "$root/\$place"; done
serve() { exec chroot --userspec=$user "$root" /usr/bin/env -i PATH=/usr/bin:/bin $entry "\$@"; }
if touch "$root/usr/new" 2>/dev/null; then echo "the root can be written" >&2; exit 1; fi
serve serve --demo --model.weight_cache=/cache/baton >"$folder/serve.log" 2>&1 &
pid=\$!
end=\$((SECONDS + 60))
until curl -sf http://127.0.0.1:8000/readyz >/dev/null; do
  [ \$SECONDS -lt \$end ] && kill -0 \$pid || { tail -20 "$folder/serve.log" >&2; exit 1; }
  sleep 0.1
done
curl -sf http://127.0.0.1:8000/v1/completions -H 'Content-Type: application/json' \
  -d '{"model": "demo", "prompt": "The harbour", "max_tokens": 8, "ignore_eos": true}'
kill \$pid
wait \$pid
SERVE
unshare --net --mount --pid --fork bash "$folder/serve" |
  python3 -c 'import json, sys; assert json.load(sys.stdin)["usage"]["completion_tokens"] == 8'
echo "served 8 tokens of the demo as $user with a read-only root"
echo "image_test passed"
