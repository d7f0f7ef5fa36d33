// The scheme of the configuration: every room declares its settings once, beside its options
// struct, each with key, target, bounds and help; the default is what the target holds at that
// moment. Values then come from one YAML file (a section per room) and from flags; what was given
// where is remembered. A key that is declared again, with the same bounds, default and help, has
// one more target (both kinds of worker have an engine, of one `model` section). Used by one
// thread, at the start of a process. The targets must outlive the object.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "common/status.h"

namespace baton {

class Settings {
 public:
  struct Setting {
    std::string key;      // "decode.max_batch"
    std::string allowed;  // "an integer from 1 to 4096": the rest of "must be ..."
    std::string help;
    std::string origin = "default";  // or "baton.yaml:12", or "--decode.max_batch"
    bool is_bool = false;
    bool is_text = false;                         // printed in quotes
    std::function<bool(std::string_view)> set{};  // false: not one of the allowed values
    std::function<std::string()> get{};
  };

  // A heading of the reference: what the settings of a section (the word before the first dot of
  // their keys) are for. Sections are listed in the order of these calls, others behind them.
  void Section(std::string name, std::string help);
  // Values given to old_key are errors that name new_key, which must be declared before.
  void Renamed(std::string old_key, std::string new_key);

  void Bool(std::string key, bool* target, std::string help);
  template <typename T>
  void Int(std::string key, T* target, int64_t min, int64_t max, std::string help) {
    AddInt(std::move(key), min, max, std::move(help), Access<int64_t>::To(target));
  }
  void Number(std::string key, double* target, double min, double max, std::string help);
  // 4096, 512KiB, 64MiB, 8GiB.
  template <typename T>
  void Bytes(std::string key, T* target, int64_t min, int64_t max, std::string help) {
    AddBytes(std::move(key), min, max, std::move(help), Access<int64_t>::To(target));
  }
  // 200ms, 15s, 2m, 1h.
  void Duration(std::string key, absl::Duration* target, absl::Duration min, absl::Duration max,
                std::string help);
  void Text(std::string key, std::string* target, std::string help);
  void Choice(std::string key, std::string* target, const std::vector<std::string>& choices,
              std::string help);
  // choices: a word for each value. The target holds one of the values.
  template <typename T>
  void Choice(std::string key, T* target, std::vector<std::pair<std::string, T>> choices,
              std::string help);

  // NotFound: the file cannot be opened. InvalidArgument: anything else; the message names file,
  // line, key, value and what is allowed, or for an unknown key the nearest one. Values before the
  // wrong one are set.
  absl::Status ReadFile(const std::string& path);
  absl::Status ReadText(const std::string& text, const std::string& origin);
  // flag: the key as the user wrote it ("--port"), for errors and origins. Errors as above.
  absl::Status SetFlag(std::string_view key, std::string_view value, std::string_view flag);

  // The whole configuration as YAML; each line ends in a comment with the value's origin. Reading
  // it back gives the same values.
  std::string Resolved() const;
  // The reference: a table per section with key, value now, what is allowed, help.
  std::string Markdown() const;
  const std::vector<Setting>& all() const { return settings_; }
  const Setting* Find(std::string_view key) const;
  // The key that replaces a renamed one; empty: this key was not renamed.
  std::string NewName(std::string_view old_key) const;
  // The declared key (or other word of `words`) most like `key`, or empty when none is near.
  std::string Nearest(std::string_view key) const;

 private:
  template <typename Value>
  struct Access {
    std::function<void(Value)> set;
    std::function<Value()> get;

    template <typename T>
    static Access To(T* target) {
      return {[target](Value value) { *target = static_cast<T>(value); },
              [target] { return static_cast<Value>(*target); }};
    }
  };
  void Add(Setting setting);
  void AddInt(std::string key, int64_t min, int64_t max, std::string help, Access<int64_t> target);
  void AddBytes(std::string key, int64_t min, int64_t max, std::string help,
                Access<int64_t> target);
  void AddChoice(std::string key, std::vector<std::string> words, std::string help,
                 Access<size_t> word);
  absl::Status Set(std::string_view key, std::string_view value, std::string_view where,
                   std::string origin);
  std::vector<std::pair<std::string, std::string>> Sections() const;  // name, help

  std::vector<Setting> settings_;
  std::vector<std::pair<std::string, std::string>> sections_;  // name, help
  std::vector<std::pair<std::string, std::string>> renamed_;   // old key, new key
};

template <typename T>
void Settings::Choice(std::string key, T* target, std::vector<std::pair<std::string, T>> choices,
                      std::string help) {
  std::vector<std::string> words;
  for (const auto& [word, value] : choices) words.push_back(word);
  Access<size_t> access;
  access.set = [target, choices](size_t i) { *target = choices[i].second; };
  access.get = [target, choices] {
    size_t i = 0;
    while (i + 1 < choices.size() && !(choices[i].second == *target)) ++i;
    return i;
  };
  AddChoice(std::move(key), std::move(words), std::move(help), std::move(access));
}

// The candidate with the fewest edits to `word`, when that is few enough to be a slip; else empty.
std::string NearestWord(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace baton
