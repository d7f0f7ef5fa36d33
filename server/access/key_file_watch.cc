#include "server/access/key_file_watch.h"

#include <sys/stat.h>

#include <utility>

#include "common/clock.h"
#include "common/log.h"

namespace baton {
namespace {

bool Same(const timespec& a, const timespec& b) {
  return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
}

}  // namespace

bool KeyFileWatch::Stamp::operator==(const Stamp& other) const {
  return device == other.device && inode == other.inode && size == other.size &&
         Same(modified, other.modified) && Same(changed, other.changed);
}

KeyFileWatch::KeyFileWatch(EventLoop* loop, std::string path, ApiKeys* keys, bool is_quiet,
                           absl::Duration pace)
    : path_(std::move(path)), keys_(keys), is_quiet_(is_quiet), pace_(pace), timer_(loop) {
  LookLater();
}

KeyFileWatch::Stamp KeyFileWatch::Now() const {
  struct stat about {};
  if (::stat(path_.c_str(), &about) != 0) return {};
  return {.device = about.st_dev,
          .inode = about.st_ino,
          .size = about.st_size,
          .modified = about.st_mtim,
          .changed = about.st_ctim};
}

// Half of a file that is being written could be valid: it is read once two looks agree.
void KeyFileWatch::Look() {
  const Stamp now = Now();
  const bool is_settled = now == std::exchange(seen_, now);
  if (is_settled && !(now == read_)) Read();
  LookLater();
}

void KeyFileWatch::LookLater() {
  timer_.Set(MonotonicNow() + pace_, [this] { Look(); });
}

void KeyFileWatch::Read() {
  read_ = seen_ = Now();
  const auto entries = ReadKeyFile(path_);
  if (!entries.ok()) {
    Log(is_quiet_ ? LogLevel::kDebug : LogLevel::kWarn, "the keys stay as they were: %s",
        std::string(entries.status().message()));
    return;
  }
  keys_->Replace(*entries, MonotonicNow());
  Log(is_quiet_ ? LogLevel::kDebug : LogLevel::kInfo, "read %d API keys from %s", keys_->size(),
      path_);
}

}  // namespace baton
