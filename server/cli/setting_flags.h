// Settings as flags of a command: each by its key (--model.isa), some by a short name too (--isa),
// the same for every command that has the setting. Start of a process, one thread.
#pragma once

#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "common/settings.h"
#include "common/status.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace baton {

class SettingFlags {
 public:
  // The settings must be declared already, and outlive the flags.
  explicit SettingFlags(Settings* settings) : settings_(settings) {}
  SettingFlags(const SettingFlags&) = delete;
  SettingFlags& operator=(const SettingFlags&) = delete;

  // Adds flags for all settings, or for `keys`, which are declared. Called before `app` parses;
  // `app` must live until Apply.
  void AddTo(CLI::App* app);
  void AddTo(CLI::App* app, const std::vector<std::string>& keys);
  // Sets what the parsed command line gave. InvalidArgument names flag, value and what is allowed.
  absl::Status Apply() const;
  std::vector<std::string> names() const;  // with the dashes, in order of adding

 private:
  struct Flag {
    std::string name, key, value;
    CLI::Option* option = nullptr;
  };
  void AddSetting(CLI::App* app, const Settings::Setting& setting);
  void Add(CLI::App* app, const std::string& name, const Settings::Setting& setting);

  Settings* const settings_;
  std::deque<Flag> flags_;  // CLI11 holds addresses of the values
};

// The flag that replaces a renamed one ("--model.isa"); empty: this one was not renamed.
std::string NewFlagName(std::string_view flag, const Settings& settings);

}  // namespace baton
