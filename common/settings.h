// The scheme of the configuration: every setting is declared once, with its key, target, bounds and
// help; its default is what the target holds at that moment. Values then come from one YAML file
// (a section per room) and from flags; what was given where is remembered.
// Start of a process, one thread. The targets must outlive the object.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
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
    bool is_text = false;                       // printed in quotes
    std::function<bool(std::string_view)> set;  // false: not one of the allowed values
    std::function<std::string()> get;
  };

  void Bool(std::string key, bool* target, std::string help);
  void Int(std::string key, int* target, int least, int most, std::string help);
  void Number(std::string key, double* target, double least, double most, std::string help);
  // 4096, 512KiB, 64MiB, 8GiB.
  void Bytes(std::string key, int64_t* target, int64_t least, int64_t most, std::string help);
  // 200ms, 15s, 2m, 1h.
  void Duration(std::string key, absl::Duration* target, absl::Duration least, absl::Duration most,
                std::string help);
  void Text(std::string key, std::string* target, std::string help);
  void Choice(std::string key, std::string* target, std::vector<std::string> choices,
              std::string help);

  // Errors name file, line, key, value and what is allowed; an unknown key names its nearest.
  absl::Status ReadFile(const std::string& path);
  absl::Status ReadText(const std::string& text, const std::string& origin);
  // `flag` is how the user wrote it ("--port"), for errors and origins.
  absl::Status SetFlag(std::string_view key, std::string_view value, std::string_view flag);

  // The whole configuration as YAML; each line ends in a comment with the value's origin. Reading
  // it back gives the same values.
  std::string Resolved() const;
  const std::vector<Setting>& all() const { return settings_; }
  const Setting* Find(std::string_view key) const;
  // The declared key (or other word of `words`) most like `key`, or empty when none is near.
  std::string Nearest(std::string_view key) const;

 private:
  Setting& Add(std::string key, std::string allowed, std::string help);
  absl::Status Set(std::string_view key, std::string_view value, std::string_view where,
                   std::string origin);

  std::vector<Setting> settings_;
};

// The candidate with the fewest edits to `word`, when that is few enough to be a slip; else empty.
std::string NearestWord(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace baton
