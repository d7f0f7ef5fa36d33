// Reads the configuration of a running process again, and takes what may change (live_settings.h).
// A configuration that is refused changes nothing, and is one line in the log. One thread.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/log.h"
#include "common/settings.h"
#include "common/status.h"
#include "server/config/config.h"

namespace baton {

class ConfigReload {
 public:
  // Reads the process's command line and its file as at the start.
  using Source = std::function<absl::StatusOr<std::shared_ptr<const Settings>>()>;

  // given: what the source returned at the start. is_quiet: another process tells the log what
  // becomes of the same source.
  ConfigReload(const Config& given, Source source, bool is_quiet = false);
  ConfigReload(const ConfigReload&) = delete;
  ConfigReload& operator=(const ConfigReload&) = delete;

  // Reads the source, and sets the level of the log. True: a value was taken.
  bool Read();
  // Has the values of the start, but for those that were taken since.
  const Config& config() const { return config_; }
  const Settings& settings() const { return settings_; }  // of config()

 private:
  void Tell(LogLevel level, const std::string& text) const;

  Config config_;
  Settings settings_;
  const Source source_;
  const bool is_quiet_;
};

// Sets the live values that `reload` has in a configuration that differs from it in others.
void TakeLiveValues(const ConfigReload& reload, Config* config);

}  // namespace baton
