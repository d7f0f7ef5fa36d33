#include "common/cgroup.h"

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <vector>

namespace baton {
namespace {

// A folder that stands for /, with the files of /proc and /sys for a test.
class Root {
 public:
  Root() {
    std::string name = std::filesystem::temp_directory_path() / "baton_cgroup_XXXXXX";
    REQUIRE(::mkdtemp(name.data()) != nullptr);
    folder_ = name;
  }
  ~Root() { std::filesystem::remove_all(folder_); }
  Root(const Root&) = delete;
  Root& operator=(const Root&) = delete;

  void Write(const std::string& path, const std::string& text) const {
    const std::filesystem::path file = folder_ + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  const std::string& folder() const { return folder_; }

 private:
  std::string folder_;
};

struct File {
  std::string path, text;
};

struct Case {
  std::string what, cgroup, mountinfo;
  std::vector<File> files;  // below /sys/fs/cgroup
  std::optional<double> cpus;
};

const std::string kV2 =
    "24 1 0:22 / /proc rw shared:5 - proc proc rw\n"
    "35 24 0:28 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n";
const std::string kV1 =
    "31 23 0:28 / /sys/fs/cgroup ro - tmpfs tmpfs ro,mode=755\n"
    "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw master:4 - cgroup cgroup rw,cpu,cpuacct\n"
    "33 31 0:30 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n";

const std::vector<Case> kCases = {
    // ---- v2
    {"v2, a container that sees its own group as the root",
     "0::/\n",
     kV2,
     {{"cpu.max", "400000 100000\n"}},
     4},
    {"v2, no limit", "0::/\n", kV2, {{"cpu.max", "max 100000\n"}}, std::nullopt},
    {"v2, the top of a machine has no such file", "0::/\n", kV2, {}, std::nullopt},
    {"v2, a service; the slice above it is tighter",
     "0::/baton.slice/baton.service\n",
     kV2,
     {{"baton.slice/baton.service/cpu.max", "600000 100000"},
      {"baton.slice/cpu.max", "50000 20000"}},
     2.5},
    {"v2, a service; the slice above it is wider",
     "0::/baton.slice/baton.service\n",
     kV2,
     {{"baton.slice/baton.service/cpu.max", "150000 100000"},
      {"baton.slice/cpu.max", "max 100000"}},
     1.5},
    {"v2, only the group far above has one",
     "0::/a/b/c\n",
     kV2,
     {{"a/cpu.max", "300000 100000"}, {"a/b/c/cpu.max", "max 100000"}},
     3},
    {"v2, groups beside the path say nothing",
     "0::/a/b\n",
     kV2,
     {{"a/c/cpu.max", "100000 100000"}, {"ab/cpu.max", "100000 100000"}},
     std::nullopt},
    {"v2, the host's path, and a mount that begins at the container's group",
     "0::/kubepods.slice/pod7/ctr\n",
     "35 24 0:28 /kubepods.slice/pod7/ctr /sys/fs/cgroup ro - cgroup2 cgroup rw\n",
     {{"cpu.max", "200000 100000"}},
     2},
    {"v2, the host's path and the host's mount: the pod's limit counts too",
     "0::/kubepods.slice/pod7/ctr\n",
     kV2,
     {{"kubepods.slice/pod7/cpu.max", "300000 100000"},
      {"kubepods.slice/pod7/ctr/cpu.max", "400000 100000"}},
     3},
    {"v2, a group outside of the namespace cannot be seen",
     "0::/../other\n",
     kV2,
     {{"cpu.max", "100000 100000"}},
     std::nullopt},
    {"v2, less than a CPU", "0::/\n", kV2, {{"cpu.max", "25000 100000"}}, 0.25},
    {"v2, a colon in a name, a space where it is mounted",
     "0::/a:b\n",
     "35 24 0:28 / /sys/fs/cgroup/my\\040groups rw - cgroup2 cgroup2 rw\n",
     {{"my groups/a:b/cpu.max", "200000 100000"}},
     2},
    // ---- v1
    {"v1, the controller with others, the host's path and mount",
     "4:cpu,cpuacct:/docker/77\n",
     kV1,
     {{"cpu,cpuacct/docker/77/cpu.cfs_quota_us", "250000\n"},
      {"cpu,cpuacct/docker/77/cpu.cfs_period_us", "100000\n"},
      {"cpu,cpuacct/cpu.cfs_quota_us", "-1\n"},
      {"cpu,cpuacct/cpu.cfs_period_us", "100000\n"}},
     2.5},
    {"v1, a mount that begins at the container's group",
     "4:cpu,cpuacct:/docker/77\n",
     "32 31 0:29 /docker/77 /sys/fs/cgroup/cpu ro - cgroup cgroup rw,cpu,cpuacct\n",
     {{"cpu/cpu.cfs_quota_us", "800000\n"}, {"cpu/cpu.cfs_period_us", "100000\n"}},
     8},
    {"v1, a mount of a group with a longer name is another group",
     "4:cpu:/docker/777\n",
     "32 31 0:29 /docker/77 /sys/fs/cgroup/cpu ro - cgroup cgroup rw,cpu\n",
     {{"cpu/cpu.cfs_quota_us", "800000\n"}, {"cpu/cpu.cfs_period_us", "100000\n"}},
     std::nullopt},
    {"v1, -1 is none",
     "4:cpu:/\n",
     kV1,
     {{"cpu,cpuacct/cpu.cfs_quota_us", "-1\n"}, {"cpu,cpuacct/cpu.cfs_period_us", "100000\n"}},
     std::nullopt},
    {"v1, nested: the smallest",
     "7:cpuset:/\n4:cpuacct,cpu:/a/b\n",
     kV1,
     {{"cpu,cpuacct/a/cpu.cfs_quota_us", "100000\n"},
      {"cpu,cpuacct/a/cpu.cfs_period_us", "50000\n"},
      {"cpu,cpuacct/a/b/cpu.cfs_quota_us", "300000\n"},
      {"cpu,cpuacct/a/b/cpu.cfs_period_us", "100000\n"}},
     2},
    {"v1 has the controller, v2 is there for systemd alone",
     "4:cpu:/x\n0::/y\n",
     kV1 + "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n",
     {{"cpu,cpuacct/x/cpu.cfs_quota_us", "300000\n"},
      {"cpu,cpuacct/x/cpu.cfs_period_us", "100000\n"},
      {"unified/y/cgroup.procs", "1\n"}},
     3},
    {"v1, cpuset is not cpu",
     "7:cpuset:/\n",
     kV1,
     {{"cpuset/cpu.cfs_quota_us", "100000\n"}, {"cpuset/cpu.cfs_period_us", "100000\n"}},
     std::nullopt},
    // ---- nothing, and nonsense
    {"no cgroups at all", "", "", {}, std::nullopt},
    {"no mount", "0::/\n", "24 1 0:22 / /proc rw - proc proc rw\n", {}, std::nullopt},
    {"words", "0::/\n", kV2, {{"cpu.max", "many some\n"}}, std::nullopt},
    {"one number", "0::/\n", kV2, {{"cpu.max", "100000\n"}}, std::nullopt},
    {"no period", "0::/\n", kV2, {{"cpu.max", "100000 0\n"}}, std::nullopt},
    {"below none", "0::/\n", kV2, {{"cpu.max", "-5 100000\n"}}, std::nullopt},
    {"too long for a number",
     "0::/\n",
     kV2,
     {{"cpu.max", "99999999999999999999 100000\n"}},
     std::nullopt},
    {"an empty file", "0::/\n", kV2, {{"cpu.max", ""}}, std::nullopt},
    {"nonsense at one level hides no other",
     "0::/a\n",
     kV2,
     {{"a/cpu.max", "x"}, {"cpu.max", "200000 100000"}},
     2},
    {"lines of nonsense",
     "x\n::\n0:\n0::\n0::relative\n0::/\n",
     "- - -\n1 2 3 / /sys/fs/cgroup\n\n- cgroup2 cgroup2 rw\n1 2 3 / /sys rw -\n" + kV2,
     {{"cpu.max", "200000 100000"}},
     2},
};

TEST_CASE("the CPU quota of a process, as its system's files tell it") {
  for (const Case& c : kCases) {
    INFO(c.what);
    const Root root;
    if (!c.cgroup.empty()) root.Write("/proc/self/cgroup", c.cgroup);
    if (!c.mountinfo.empty()) root.Write("/proc/self/mountinfo", c.mountinfo);
    for (const File& file : c.files) root.Write("/sys/fs/cgroup/" + file.path, file.text);
    const std::optional<CpuQuota> quota = OwnCpuQuota(root.folder());
    REQUIRE(quota.has_value() == c.cpus.has_value());
    if (quota) {
      CHECK(quota->cpus == Approx(*c.cpus));
      CHECK(quota->group != 0);
    }
  }
}

TEST_CASE("a quota is one group for all below it, and another than its neighbour's") {
  const Root root;
  root.Write("/proc/self/mountinfo", kV2);
  root.Write("/sys/fs/cgroup/a/cpu.max", "200000 100000");
  root.Write("/sys/fs/cgroup/a/1/cpu.max", "max 100000");
  root.Write("/sys/fs/cgroup/a/2/cpu.max", "300000 100000");
  root.Write("/sys/fs/cgroup/b/cpu.max", "200000 100000");
  const auto group = [&](const std::string& path) {
    root.Write("/proc/self/cgroup", "0::" + path + "\n");
    const auto quota = OwnCpuQuota(root.folder());
    REQUIRE(quota);
    return quota->group;
  };
  CHECK(group("/a/1") == group("/a/2"));
  CHECK(group("/a/1") == group("/a"));
  CHECK(group("/b") != group("/a"));
}

TEST_CASE("the memory limit of a process is the smallest along its path") {
  struct MemoryCase {
    std::string cgroup, mountinfo;
    std::vector<File> files;
    std::optional<int64_t> bytes;
  };
  const std::string v1 =
      "34 31 0:32 /docker/77 /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";
  const std::vector<MemoryCase> cases = {
      {"0::/\n", kV2, {{"memory.max", "8589934592\n"}}, int64_t{8} << 30},
      {"0::/\n", kV2, {{"memory.max", "max\n"}, {"memory.high", "max\n"}}, std::nullopt},
      {"0::/\n", kV2, {{"memory.max", "8589934592\n"}, {"memory.high", "4096\n"}}, 4096},
      {"0::/a/b\n", kV2, {{"a/memory.max", "8192\n"}, {"a/b/memory.max", "16384\n"}}, 8192},
      {"5:memory:/docker/77\n", v1, {{"memory/memory.limit_in_bytes", "8192\n"}}, 8192},
      {"5:memory:/docker/77\n",
       v1,
       {{"memory/memory.limit_in_bytes", "9223372036854771712\n"}},
       std::nullopt},
      {"5:memory:/docker/78\n", v1, {{"memory/memory.limit_in_bytes", "8192\n"}}, std::nullopt},
      {"0::/\n", kV2, {{"memory.max", "much\n"}}, std::nullopt},
      {"0::/\n", kV2, {{"memory.max", "0\n"}}, std::nullopt},
      {"0::/\n", kV2, {}, std::nullopt},
  };
  for (const MemoryCase& c : cases) {
    INFO(c.cgroup << (c.files.empty() ? "nothing" : c.files.front().text));
    const Root root;
    root.Write("/proc/self/cgroup", c.cgroup);
    root.Write("/proc/self/mountinfo", c.mountinfo);
    for (const File& file : c.files) root.Write("/sys/fs/cgroup/" + file.path, file.text);
    CHECK(OwnMemoryLimit(root.folder()) == c.bytes);
  }
}

TEST_CASE("memory is left as far as the machine and every group have some") {
  const Root root;
  CHECK_FALSE(AvailableMemory(root.folder()));
  root.Write("/proc/meminfo", "MemTotal:  9000 kB\nMemAvailable:    8000 kB\n");
  CHECK(AvailableMemory(root.folder()) == 8000 * 1024);
  root.Write("/proc/self/cgroup", "0::/a\n");
  root.Write("/proc/self/mountinfo", kV2);
  const std::string group = "/sys/fs/cgroup/a/memory";
  root.Write(group + ".max", "100000\n");
  CHECK(AvailableMemory(root.folder()) == 8000 * 1024);  // it is not told what is used
  root.Write(group + ".current", "70000\n");
  CHECK(AvailableMemory(root.folder()) == 30000);
  root.Write(group + ".stat", "anon 1\ninactive_file 20000\nactive_file 9\n");
  CHECK(AvailableMemory(root.folder()) == 50000);
  root.Write(group + ".current", "170000\n");
  CHECK(AvailableMemory(root.folder()) == 0);
}

TEST_CASE("memory is left in a group of v1") {
  const Root root;
  root.Write("/proc/self/cgroup", "5:memory:/docker/77\n");
  root.Write("/proc/self/mountinfo",
             "34 31 0:32 /docker/77 /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n");
  const std::string group = "/sys/fs/cgroup/memory/memory";
  root.Write(group + ".limit_in_bytes", "8192\n");
  root.Write(group + ".usage_in_bytes", "5000\n");
  root.Write(group + ".stat", "inactive_file 7\ntotal_inactive_file 1000\n");
  CHECK(AvailableMemory(root.folder()) == 4192);
}

}  // namespace
}  // namespace baton
