// The settings that may change while a process runs. Their table is the one place that says so:
// docs/CONFIG.md shows it, ConfigReload takes no other. Any thread.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "common/settings.h"

namespace baton {

struct LiveSetting {
  const char* key;
  const char* effect;  // what goes by the new value, for the reference
};

std::span<const LiveSetting> LiveSettings();
bool IsLive(std::string_view key);
// Gives `to` the values that `from` has for the settings of the table. Both are declared alike.
void TakeLiveValues(const Settings& from, Settings* to);
// The table for docs/CONFIG.md, under a heading of its own.
std::string LiveSettingsMarkdown();

}  // namespace baton
