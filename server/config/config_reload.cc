#include "server/config/config_reload.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/log_level.h"
#include "server/config/live_settings.h"

namespace baton {
namespace {

std::string ShownValue(const Settings::Setting& setting) {
  const std::string value = setting.get();
  return value.empty() ? "\"\"" : value;
}

}  // namespace

ConfigReload::ConfigReload(const Config& given, Source source, bool is_quiet)
    : config_(given), source_(std::move(source)), is_quiet_(is_quiet) {
  DeclareSettings(&config_, &settings_);
}

void ConfigReload::Tell(LogLevel level, const std::string& text) const {
  Log(is_quiet_ ? LogLevel::kDebug : level, "%s", text);
}

bool ConfigReload::Read() {
  const auto read = source_();
  if (!read.ok()) {
    Tell(LogLevel::kError,
         absl::StrCat("the settings stay as they were: ", std::string(read.status().message())));
    return false;
  }
  std::vector<std::string> taken;
  bool is_kept = false;  // a value that changed
  for (const Settings::Setting& now : settings_.all()) {
    const Settings::Setting* wanted = (*read)->Find(now.key);
    if (wanted->get() == now.get()) continue;
    if (IsLive(now.key)) {
      taken.push_back(absl::StrCat(now.key, " ", ShownValue(*wanted)));
    } else if (!is_quiet_) {  // another process names it; here paths are resolved, ports chosen
      is_kept = true;
      const bool is_gone = wanted->origin == "default";
      LogWarn("%s stays %s: %s %s, which takes a restart", now.key, ShownValue(now),
              is_gone ? "its default is" : wanted->origin + " has", ShownValue(*wanted));
    }
  }
  TakeLiveValues(**read, &settings_);
  const LogLevel min = LogLevelOf(config_.log_level);
  const bool is_raised = LogEnabled(min);  // the last line below it tells of the change
  if (!is_raised) ChangeLogLevel(min);
  if (!taken.empty())
    Tell(LogLevel::kInfo, absl::StrCat("settings changed: ", absl::StrJoin(taken, ", ")));
  else if (!is_kept)
    Tell(LogLevel::kInfo, "no setting has changed");
  ChangeLogLevel(min);
  return !taken.empty();
}

void TakeLiveValues(const ConfigReload& reload, Config* config) {
  Settings settings;
  DeclareSettings(config, &settings);
  TakeLiveValues(reload.settings(), &settings);
}

}  // namespace baton
