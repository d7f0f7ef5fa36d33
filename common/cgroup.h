// CPU and memory limits of this process by its control groups (Linux cgroups, v1 and v2). Every
// group on the path from the process's own group to the top of the visible hierarchy may have a
// limit; the smallest one holds. Read from /proc and /sys at each call; any thread.
//
// Sources of these limits:
// - Kubernetes: resources.limits.cpu and .memory of a container (requests of CPU become weights,
//   which bound nothing while the node is idle, so they do not count here). A pod's own limit lies
//   above and cannot be seen from inside where the container has a cgroup namespace; it is the sum
//   of its containers'. A static CPU manager gives whole CPUs by affinity, with or without a quota
//   beside it.
// - Docker, Podman: --cpus, or --cpu-quota and --cpu-period; --memory.
// - systemd: CPUQuota=, MemoryMax=, MemoryHigh= of a service and of any slice above it.
// A process in a cgroup namespace (the usual case of v2) sees its own group as "/", mounted at
// /sys/fs/cgroup; for one outside the path is the host's, and the mount may begin at the
// container's own group (Docker, v1) or at the top of the hierarchy (systemd).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace baton {

struct CpuQuota {
  double cpus = 0;  // CPUs' worth of time in each period: 1.5 = 150 ms in 100 ms
  // Equal for processes of this machine that share the quota; 0: unknown.
  uint64_t group = 0;
};

// nullopt: no group has a quota, or the system does not tell. An unreadable limit counts as no
// limit. root: a folder that replaces / (tests).
std::optional<CpuQuota> OwnCpuQuota(const std::string& root = "");
// Memory limit in bytes, page cache included: above it the kernel kills processes of the group
// (memory.max, v1 limit_in_bytes) or, if that limit is lower, slows them down (memory.high).
// nullopt as above.
std::optional<int64_t> OwnMemoryLimit(const std::string& root = "");
// Bytes that this process can still take: what the machine has (MemAvailable), or what the limit of
// a group leaves, if that is less. Memory of files that were not used lately counts as left,
// because the kernel gives it up. nullopt: the system does not tell.
std::optional<int64_t> AvailableMemory(const std::string& root = "");

}  // namespace baton
