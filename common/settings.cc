#include "common/settings.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/check.h"

namespace baton {
namespace {

constexpr size_t kMaxFileBytes = 1 << 20;
constexpr int kMaxDepth = 4;  // names in a key

std::string BytesText(int64_t bytes) {
  constexpr struct {
    int shift;
    const char* unit;
  } kUnits[] = {{30, "GiB"}, {20, "MiB"}, {10, "KiB"}};
  for (const auto& [shift, unit] : kUnits) {
    if (bytes != 0 && bytes % (int64_t{1} << shift) == 0) return absl::StrCat(bytes >> shift, unit);
  }
  return absl::StrCat(bytes);
}

bool ParseBytes(std::string_view text, int64_t* bytes) {
  int shift = 0;
  constexpr struct {
    std::string_view unit;
    int shift;
  } kUnits[] = {{"GiB", 30}, {"MiB", 20}, {"KiB", 10}, {"B", 0}};
  for (const auto& [unit, unit_shift] : kUnits) {
    if (text.size() > unit.size() && text.substr(text.size() - unit.size()) == unit) {
      text.remove_suffix(unit.size());
      shift = unit_shift;
      break;
    }
  }
  int64_t count = 0;
  if (!absl::SimpleAtoi(std::string(text), &count)) return false;
  if (count < 0 || count > (INT64_MAX >> shift)) return false;
  *bytes = count << shift;
  return true;
}

std::string Quoted(std::string_view text) {
  std::string quoted = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    if (static_cast<unsigned char>(c) < 0x20) {
      quoted += absl::StrFormat("\\x%02x", static_cast<unsigned char>(c));
    } else {
      quoted += c;
    }
  }
  return quoted + "\"";
}

size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t above = row[j];
      row[j] = std::min({above + 1, row[j - 1] + 1, diagonal + (a[i - 1] == b[j - 1] ? 0 : 1)});
      diagonal = above;
    }
  }
  return row[b.size()];
}

std::string Clipped(std::string_view value) {
  return value.size() <= 80 ? std::string(value) : std::string(value.substr(0, 77)) + "...";
}

// One scalar of the file, in order of appearance.
struct FileValue {
  std::string key, value;
  int line;
};

class FileWalk {
 public:
  explicit FileWalk(const std::string& origin) : origin_(origin) {}

  absl::Status Section(const YAML::Node& node, const std::string& prefix, int depth) {
    for (const auto& entry : node) {
      const int line = entry.first.Mark().line + 1;
      if (!entry.first.IsScalar()) return Error(line, prefix, "a key must be a plain name");
      const std::string name = entry.first.Scalar();
      const std::string key = prefix.empty() ? name : absl::StrCat(prefix, ".", name);
      if (entry.second.IsMap() && depth < kMaxDepth) {
        RETURN_IF_ERROR(Section(entry.second, key, depth + 1));
      } else if (entry.second.IsScalar()) {
        values_.push_back({key, entry.second.Scalar(), line});
      } else if (entry.second.IsNull() && depth == 1) {  // an empty section is fine
        empty_sections_.push_back({key, "", line});
      } else {
        return Error(line, key, "must have one plain value, not a list, a map or nothing");
      }
    }
    return absl::OkStatus();
  }
  absl::Status Error(int line, std::string_view key, std::string_view what) const {
    return absl::InvalidArgumentError(absl::StrCat(origin_, ":", line, ": ", Clipped(key),
                                                   key.empty() ? "" : " ", std::string(what)));
  }
  const std::vector<FileValue>& values() const { return values_; }
  const std::vector<FileValue>& empty_sections() const { return empty_sections_; }

 private:
  const std::string& origin_;
  std::vector<FileValue> values_, empty_sections_;
};

}  // namespace

std::string NearestWord(std::string_view word, const std::vector<std::string>& candidates) {
  std::string best;
  size_t fewest = std::max<size_t>(2, word.size() / 3) + 1;
  for (const std::string& candidate : candidates) {
    const size_t edits = EditDistance(word, candidate);
    if (edits < fewest) {
      fewest = edits;
      best = candidate;
    }
  }
  return best;
}

Settings::Setting& Settings::Add(std::string key, std::string allowed, std::string help) {
  CHECK(Find(key) == nullptr);
  Setting setting;
  setting.key = std::move(key);
  setting.allowed = std::move(allowed);
  setting.help = std::move(help);
  settings_.push_back(std::move(setting));
  return settings_.back();
}

void Settings::Bool(std::string key, bool* target, std::string help) {
  Setting& setting = Add(std::move(key), "true or false", std::move(help));
  setting.is_bool = true;
  setting.set = [target](std::string_view text) {
    if (text != "true" && text != "false") return false;
    *target = text == "true";
    return true;
  };
  setting.get = [target] { return *target ? "true" : "false"; };
}

void Settings::Int(std::string key, int* target, int least, int most, std::string help) {
  Setting& setting = Add(std::move(key), absl::StrFormat("an integer from %d to %d", least, most),
                         std::move(help));
  setting.set = [=](std::string_view text) {
    int value = 0;
    if (!absl::SimpleAtoi(std::string(text), &value) || value < least || value > most) return false;
    *target = value;
    return true;
  };
  setting.get = [target] { return absl::StrCat(*target); };
}

void Settings::Number(std::string key, double* target, double least, double most,
                      std::string help) {
  Setting& setting =
      Add(std::move(key), absl::StrFormat("a number from %g to %g", least, most), std::move(help));
  setting.set = [=](std::string_view text) {
    double value = 0;
    if (!absl::SimpleAtod(std::string(text), &value) || !std::isfinite(value)) return false;
    if (value < least || value > most) return false;
    *target = value;
    return true;
  };
  setting.get = [target] { return absl::StrFormat("%.17g", *target); };
}

void Settings::Bytes(std::string key, int64_t* target, int64_t least, int64_t most,
                     std::string help) {
  Setting& setting = Add(std::move(key),
                         absl::StrCat("a size from ", BytesText(least), " to ", BytesText(most),
                                      " (like 512KiB, 64MiB, 8GiB)"),
                         std::move(help));
  setting.set = [=](std::string_view text) {
    int64_t value = 0;
    if (!ParseBytes(text, &value) || value < least || value > most) return false;
    *target = value;
    return true;
  };
  setting.get = [target] { return BytesText(*target); };
}

void Settings::Duration(std::string key, absl::Duration* target, absl::Duration least,
                        absl::Duration most, std::string help) {
  Setting& setting = Add(std::move(key),
                         absl::StrCat("a time from ", absl::FormatDuration(least), " to ",
                                      absl::FormatDuration(most), " (like 200ms, 15s, 2m)"),
                         std::move(help));
  setting.set = [=](std::string_view text) {
    absl::Duration value;
    if (!absl::ParseDuration(std::string(text), &value)) return false;
    if (value < least || value > most) return false;
    *target = value;
    return true;
  };
  setting.get = [target] { return absl::FormatDuration(*target); };
}

void Settings::Text(std::string key, std::string* target, std::string help) {
  Setting& setting = Add(std::move(key), "text", std::move(help));
  setting.is_text = true;
  setting.set = [target](std::string_view text) {
    *target = text;
    return true;
  };
  setting.get = [target] { return *target; };
}

void Settings::Choice(std::string key, std::string* target, std::vector<std::string> choices,
                      std::string help) {
  Setting& setting =
      Add(std::move(key), absl::StrCat("one of ", absl::StrJoin(choices, ", ")), std::move(help));
  setting.set = [target, choices = std::move(choices)](std::string_view text) {
    if (std::find(choices.begin(), choices.end(), text) == choices.end()) return false;
    *target = text;
    return true;
  };
  setting.get = [target] { return *target; };
}

const Settings::Setting* Settings::Find(std::string_view key) const {
  for (const Setting& setting : settings_) {
    if (setting.key == key) return &setting;
  }
  return nullptr;
}

std::string Settings::Nearest(std::string_view key) const {
  std::vector<std::string> keys, names;
  for (const Setting& setting : settings_) {
    keys.push_back(setting.key);
    // A right name in the wrong section is as common a slip as a misspelt name.
    if (setting.key.substr(setting.key.rfind('.') + 1) == key.substr(key.rfind('.') + 1)) {
      names.push_back(setting.key);
    }
  }
  std::string nearest = NearestWord(key, keys);
  return nearest.empty() && !names.empty() ? names.front() : nearest;
}

absl::Status Settings::Set(std::string_view key, std::string_view value, std::string_view where,
                           std::string origin) {
  for (Setting& setting : settings_) {
    if (setting.key != key) continue;
    if (!setting.set(value)) {
      return absl::InvalidArgumentError(absl::StrCat(std::string(where), std::string(key), ": \"",
                                                     Clipped(value), "\" must be ",
                                                     setting.allowed));
    }
    setting.origin = std::move(origin);
    return absl::OkStatus();
  }
  const std::string nearest = Nearest(key);
  return absl::InvalidArgumentError(
      absl::StrCat(std::string(where), "unknown key ", Clipped(key),
                   nearest.empty() ? "; `baton config` lists all keys"
                                   : absl::StrCat("; did you mean ", nearest, "?")));
}

absl::Status Settings::SetFlag(std::string_view key, std::string_view value,
                               std::string_view flag) {
  const bool is_key = flag == absl::StrCat("--", std::string(key));
  return Set(key, value, is_key ? "--" : absl::StrCat(std::string(flag), ": "), std::string(flag));
}

absl::Status Settings::ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    return absl::NotFoundError(
        absl::StrCat(path, ": cannot be read; give an existing file with --config"));
  }
  std::string text(kMaxFileBytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (file.bad()) return absl::InvalidArgumentError(absl::StrCat(path, ": cannot be read"));
  text.resize(static_cast<size_t>(file.gcount()));
  return ReadText(text, path);
}

absl::Status Settings::ReadText(const std::string& text, const std::string& origin) {
  if (text.size() > kMaxFileBytes) {
    return absl::InvalidArgumentError(absl::StrCat(origin, ": longer than 1 MiB"));
  }
  FileWalk walk(origin);
  try {  // yaml-cpp reports by exceptions; none leaves this function
    const std::vector<YAML::Node> documents = YAML::LoadAll(text);
    if (documents.empty() || (documents.size() == 1 && documents[0].IsNull())) {
      return absl::OkStatus();
    }
    if (documents.size() > 1) {
      return walk.Error(documents[1].Mark().line + 1, "",
                        "a second document (---); only one is read");
    }
    if (!documents[0].IsMap()) {
      return walk.Error(1, "", "the file must be sections of `key: value` lines");
    }
    RETURN_IF_ERROR(walk.Section(documents[0], "", 1));
  } catch (const YAML::Exception& error) {
    return absl::InvalidArgumentError(
        absl::StrCat(origin, ":", error.mark.line + 1, ": not YAML: ", error.msg));
  } catch (const std::exception& error) {
    return absl::InvalidArgumentError(absl::StrCat(origin, ": not YAML: ", error.what()));
  }
  for (const FileValue& section : walk.empty_sections()) {
    const bool known = std::any_of(settings_.begin(), settings_.end(), [&](const Setting& setting) {
      return setting.key.rfind(section.key + ".", 0) == 0;
    });
    if (!known) return walk.Error(section.line, section.key, "is not a section");
  }
  for (size_t i = 0; i < walk.values().size(); ++i) {
    const FileValue& item = walk.values()[i];
    for (size_t j = 0; j < i; ++j) {
      if (walk.values()[j].key == item.key) {
        return walk.Error(
            item.line, item.key,
            absl::StrCat("is given twice (first in line ", walk.values()[j].line, ")"));
      }
    }
    const std::string place = absl::StrCat(origin, ":", item.line);
    RETURN_IF_ERROR(Set(item.key, item.value, place + ": ", place));
  }
  return absl::OkStatus();
}

std::string Settings::Resolved() const {
  std::string text, section;
  for (const Setting& setting : settings_) {
    const size_t dot = setting.key.find('.');
    CHECK(dot != std::string::npos);
    if (setting.key.substr(0, dot) != section) {
      section = setting.key.substr(0, dot);
      absl::StrAppend(&text, section, ":\n");
    }
    const std::string value = setting.is_text ? Quoted(setting.get()) : setting.get();
    absl::StrAppend(&text,
                    absl::StrFormat("  %-44s # %s\n", setting.key.substr(dot + 1) + ": " + value,
                                    setting.origin));
  }
  return text;
}

}  // namespace baton
