#include "common/cgroup.h"

#include <sys/stat.h>
#include <xxhash.h>

#include <algorithm>
#include <fstream>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace baton {
namespace {

constexpr int64_t kNoLimit = int64_t{1} << 62;

using Words = std::vector<std::string>;

// A folder of a hierarchy's file system.
struct Group {
  std::string folder;
  bool is_v2 = false;
};

// A line of /proc/self/cgroup: the group of this process in the hierarchy that has the controller.
struct Place {
  std::string path;
  bool is_v2 = false;
};

// A line of /proc/self/mountinfo.
struct Mount {
  std::string root;   // path in the hierarchy of the mounted group
  std::string point;  // mount point
};

std::vector<std::string> Lines(const std::string& file) {
  std::vector<std::string> lines;
  std::ifstream stream(file);
  for (std::string line; std::getline(stream, line);) lines.push_back(std::move(line));
  return lines;
}

bool HasController(const std::string& list, const std::string& controller) {
  const Words names = absl::StrSplit(list, ',');
  return std::find(names.begin(), names.end(), controller) != names.end();
}

// Parses "0::/a" (v2) and "4:cpu,cpuacct:/a": number, controllers, path (which may have colons).
// Both may be present; then one of the two has the controller, and the other has no file for it.
std::vector<Place> Places(const std::string& root, const std::string& controller) {
  std::vector<Place> places;
  for (const std::string& line : Lines(root + "/proc/self/cgroup")) {
    const Words parts = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (parts.size() != 3 || !absl::StartsWith(parts[2], "/")) continue;
    const bool is_v2 = parts[0] == "0" && parts[1].empty();
    if (is_v2 || HasController(parts[1], controller)) places.push_back({parts[2], is_v2});
  }
  return places;
}

// Decodes space, tab, newline and backslash, which are written as \040 and the like.
std::string Unescaped(const std::string& text) {
  const auto is_octal = [](char c) { return c >= '0' && c <= '7'; };
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 3 < text.size() && is_octal(text[i + 1]) && is_octal(text[i + 2]) &&
        is_octal(text[i + 3])) {
      plain.push_back(static_cast<char>((text[i + 1] - '0') * 64 + (text[i + 2] - '0') * 8 +
                                        (text[i + 3] - '0')));
      i += 3;
    } else {
      plain.push_back(text[i]);
    }
  }
  return plain;
}

// Parses "31 23 0:28 ROOT POINT options [more]... - TYPE source options".
std::vector<Mount> Mounts(const std::string& root, bool is_v2, const std::string& controller) {
  std::vector<Mount> mounts;
  for (const std::string& line : Lines(root + "/proc/self/mountinfo")) {
    const Words words = absl::StrSplit(line, ' ');
    const auto dash = std::find(words.begin(), words.end(), "-");
    if (dash - words.begin() < 6 || words.end() - dash < 4) continue;
    const bool is_it =
        is_v2 ? dash[1] == "cgroup2" : dash[1] == "cgroup" && HasController(dash[3], controller);
    if (is_it) mounts.push_back({Unescaped(words[3]), Unescaped(words[4])});
  }
  return mounts;
}

// "/b" for "/a/b" below "/a"; nothing if the path is not below it, or lies outside the namespace
// ("/../x") and is not visible.
std::optional<std::string> Below(const std::string& top, const std::string& path) {
  if (absl::StartsWith(path, "/..")) return std::nullopt;
  std::string_view rest = path;
  const std::string_view all = top == "/" ? std::string_view() : std::string_view(top);
  if (rest.substr(0, all.size()) != all) return std::nullopt;
  rest.remove_prefix(all.size());
  while (!rest.empty() && rest.back() == '/') rest.remove_suffix(1);
  if (!rest.empty() && rest.front() != '/') return std::nullopt;
  return std::string(rest);
}

// The groups that hold this process, innermost first.
std::vector<Group> Groups(const std::string& root, const std::string& controller) {
  std::vector<Group> groups;
  for (const Place& place : Places(root, controller)) {
    for (const Mount& mount : Mounts(root, place.is_v2, controller)) {
      std::optional<std::string> rest = Below(mount.root, place.path);
      while (rest) {
        groups.push_back({absl::StrCat(root, mount.point, *rest), place.is_v2});
        if (rest->empty()) break;
        rest->resize(rest->rfind('/'));
      }
    }
  }
  return groups;
}

// The words of a file's first line.
Words WordsOf(const std::string& file) {
  const std::vector<std::string> lines = Lines(file);
  if (lines.empty()) return {};
  return absl::StrSplit(lines.front(), absl::ByAnyChar(" \t\r"), absl::SkipEmpty());
}

// v2: cpu.max is "QUOTA PERIOD" or "max PERIOD"; v1: a file for each, -1: none.
std::optional<double> QuotaOf(const Group& group) {
  Words words;
  if (group.is_v2) {
    words = WordsOf(group.folder + "/cpu.max");
  } else {
    words = WordsOf(group.folder + "/cpu.cfs_quota_us");
    for (const std::string& word : WordsOf(group.folder + "/cpu.cfs_period_us"))
      words.push_back(word);
  }
  int64_t quota = 0, period = 0;
  if (words.size() != 2 || !absl::SimpleAtoi(words[0], &quota) ||
      !absl::SimpleAtoi(words[1], &period) || quota <= 0 || period <= 0) {
    return std::nullopt;
  }
  return static_cast<double>(quota) / static_cast<double>(period);
}

// The inode of a group's folder identifies the group, the same through every mount and namespace.
uint64_t NumberOf(const Group& group) {
  struct stat folder {};
  if (::stat(group.folder.c_str(), &folder) != 0) return 0;
  const std::string text = absl::StrCat(group.is_v2 ? "v2 " : "v1 ", folder.st_ino);
  return XXH3_64bits(text.data(), text.size());
}

// The number behind a word of a file with a word and a number per line ("MemAvailable: 5 kB").
std::optional<int64_t> NumberBehind(const std::string& word, const std::string& file) {
  for (const std::string& line : Lines(file)) {
    const Words words = absl::StrSplit(line, ' ', absl::SkipEmpty());
    int64_t number = 0;
    if (words.size() >= 2 && words[0] == word && absl::SimpleAtoi(words[1], &number)) return number;
  }
  return std::nullopt;
}

// The smallest limit of a group in bytes; "max" is no number, and v1 has the largest one.
std::optional<int64_t> MemoryLimitOf(const Group& group) {
  std::optional<int64_t> min;
  for (const char* file : {"/memory.max", "/memory.high", "/memory.limit_in_bytes"}) {
    const Words words = WordsOf(group.folder + file);
    int64_t bytes = 0;
    if (words.size() != 1 || !absl::SimpleAtoi(words[0], &bytes) || bytes <= 0) continue;
    if (bytes < kNoLimit && (!min || bytes < *min)) min = bytes;
  }
  return min;
}

// Bytes of the group's memory that the kernel does not give up.
std::optional<int64_t> MemoryUsedBy(const Group& group) {
  const std::string current = group.is_v2 ? "/memory.current" : "/memory.usage_in_bytes";
  const Words words = WordsOf(group.folder + current);
  int64_t bytes = 0;
  if (words.size() != 1 || !absl::SimpleAtoi(words[0], &bytes)) return std::nullopt;
  const char* const files = group.is_v2 ? "inactive_file" : "total_inactive_file";
  return bytes - NumberBehind(files, group.folder + "/memory.stat").value_or(0);
}

}  // namespace

std::optional<CpuQuota> OwnCpuQuota(const std::string& root) {
  std::optional<CpuQuota> min;
  for (const Group& group : Groups(root, "cpu")) {
    const std::optional<double> cpus = QuotaOf(group);
    if (cpus && (!min || *cpus < min->cpus)) min = {*cpus, NumberOf(group)};
  }
  return min;
}

std::optional<int64_t> OwnMemoryLimit(const std::string& root) {
  std::optional<int64_t> min;
  for (const Group& group : Groups(root, "memory")) {
    const std::optional<int64_t> limit = MemoryLimitOf(group);
    if (limit && (!min || *limit < *min)) min = limit;
  }
  return min;
}

std::optional<int64_t> AvailableMemory(const std::string& root) {
  std::optional<int64_t> min = NumberBehind("MemAvailable:", root + "/proc/meminfo");
  if (min) *min *= 1024;
  for (const Group& group : Groups(root, "memory")) {
    const std::optional<int64_t> limit = MemoryLimitOf(group), used = MemoryUsedBy(group);
    if (!limit || !used) continue;
    const int64_t left = std::max<int64_t>(0, *limit - *used);
    if (!min || left < *min) min = left;
  }
  return min;
}

}  // namespace baton
