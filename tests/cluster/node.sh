#!/usr/bin/env bash
# A node of a Kubernetes cluster on this machine: a box of namespaces with control groups of its own, in which kubelet
# and containerd find what they expect of a host. Outside of it nothing listens, and routes, mounts and settings of the
# kernel stay as they are. Root only.
#   node.sh start NAME FOLDER ADDRESS   prints the process id of the box, which ends with that process
#   node.sh enter PID COMMAND...        runs a command in the box
#   node.sh remove NAME                 removes the control groups of a box that has ended
set -euo pipefail

hierarchies() { awk -F: '$2 != "" { print $2 "\t" $3 }' /proc/self/cgroup; }  # of control groups, version 1
folder_of() { local name=${1#name=}; echo "/sys/fs/cgroup/$name"; }

start() {
  local name=$1 folder=$2 address=$3 hierarchy own group file
  mkdir -p "$folder"/{kubelet,containerd,settings}
  # kubelet writes settings of the whole machine: it gets files that hold what it would write.
  for file in vm/overcommit_memory=1 vm/panic_on_oom=0 kernel/panic=10 kernel/panic_on_oops=1 \
    kernel/keys/root_maxkeys=1000000 kernel/keys/root_maxbytes=25000000; do
    mkdir -p "$(dirname "$folder/settings/$file")"
    echo "${file#*=}" >"$folder/settings/${file%=*}"
  done
  while IFS=$'\t' read -r hierarchy own; do
    group=$(folder_of "$hierarchy")${own%/}/box-$name
    mkdir -p "$group"
    if [ "$hierarchy" = cpuset ]; then
      for file in cpuset.cpus cpuset.mems; do cat "$group/../$file" >"$group/$file"; done
    fi
    echo $BASHPID >"$group/cgroup.procs"
  done < <(hierarchies)
  unshare --mount --pid --net --uts --ipc --cgroup --fork --kill-child \
    "$0" inside "$name" "$folder" "$address" >"$folder/box.log" 2>&1 </dev/null &
  local starter=$! box=
  for _ in $(seq 100); do
    [ -e "$folder/ready" ] && box=$(cat "/proc/$starter/task/$starter/children") && break
    kill -0 "$starter" 2>/dev/null || break
    sleep 0.05
  done
  [ -n "$box" ] || { cat "$folder/box.log" >&2; kill -9 "$starter" 2>/dev/null || true; exit 1; }
  echo $box
}

# Pid 1 of the box: makes the place, then waits for orphans.
inside() {
  local name=$1 folder=$2 address=$3 hierarchy own file
  local -a found=()
  while IFS=$'\t' read -r hierarchy own; do found+=("$hierarchy"); done < <(hierarchies)
  mount --make-rprivate /
  mount -t proc proc /proc
  mount -t sysfs sysfs /sys
  mount -t tmpfs tmpfs /sys/fs/cgroup
  for hierarchy in "${found[@]}"; do
    mkdir "$(folder_of "$hierarchy")"
    case $hierarchy in
      name=*) mount -t cgroup -o "none,$hierarchy" cgroup "$(folder_of "$hierarchy")" ;;
      *) mount -t cgroup -o "$hierarchy" cgroup "$(folder_of "$hierarchy")" ;;
    esac
  done
  mount -t tmpfs tmpfs /run
  mount -t tmpfs tmpfs /var/log
  mount --bind "$folder/kubelet" "$folder/kubelet"
  mount --make-rshared "$folder/kubelet"
  while read -r file; do
    mount --bind "$folder/settings/$file" "/proc/sys/$file"
  done < <(find "$folder/settings" -type f -printf '%P\n')
  hostname "$name"
  ip link set lo up
  ip link add node0 type bridge
  ip addr add "$address/24" dev node0
  ip link set node0 up
  ip route add default dev node0 src "$address"
  echo 1 >/proc/sys/net/ipv4/ip_forward
  touch "$folder/ready"
  exec "$folder/../pause"
}

enter() {
  local box=$1 hierarchy path
  while IFS=: read -r _ hierarchy path; do
    [ -z "$hierarchy" ] || echo $$ >"$(folder_of "$hierarchy")$path/cgroup.procs"
  done <"/proc/$box/cgroup"
  exec nsenter -t "$box" -m -p -n -u -i -C -- "${@:2}"
}

remove() {
  local hierarchy own group
  while IFS=$'\t' read -r hierarchy own; do
    group=$(folder_of "$hierarchy")${own%/}/box-$1
    for _ in $(seq 100); do  # until the last process is gone
      [ -d "$group" ] || break
      find "$group" -depth -type d -exec rmdir {} + 2>/dev/null || sleep 0.1
    done
  done < <(hierarchies)
}

"$@"
