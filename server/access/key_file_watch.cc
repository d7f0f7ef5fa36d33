#include "server/access/key_file_watch.h"

#include "common/clock.h"
#include "common/log.h"

namespace baton {

KeyFileWatch::KeyFileWatch(EventLoop* loop, const std::string& path, ApiKeys* keys, bool is_quiet)
    : path_(path), keys_(keys), is_quiet_(is_quiet), watch_(loop, {path}, [this] { Read(); }) {
  Read();  // it may have changed since the keys were read from it
}

void KeyFileWatch::Read() {
  watch_.Seen();
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
