#include "common/settings.h"

#include <yaml-cpp/eventhandler.h>
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
#include "absl/strings/str_replace.h"
#include "common/check.h"

namespace baton {
namespace {

constexpr size_t kMaxFileBytes = 1 << 20;
constexpr int kMaxDepth = 4;  // names in a key

// Notes where documents of a text begin, and nothing of what they say.
class DocumentStarts : public YAML::EventHandler {
 public:
  void OnDocumentStart(const YAML::Mark& mark) override { starts.push_back(mark); }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark&, YAML::anchor_t) override {}
  void OnAlias(const YAML::Mark&, YAML::anchor_t) override {}
  void OnScalar(const YAML::Mark&, const std::string&, YAML::anchor_t,
                const std::string&) override {}
  void OnSequenceStart(const YAML::Mark&, const std::string&, YAML::anchor_t,
                       YAML::EmitterStyle::value) override {}
  void OnSequenceEnd() override {}
  void OnMapStart(const YAML::Mark&, const std::string&, YAML::anchor_t,
                  YAML::EmitterStyle::value) override {}
  void OnMapEnd() override {}

  std::vector<YAML::Mark> starts{};
};

// The line of a second document; 0: there is none. Not by LoadAll: where the parser takes nothing
// of a text, such as ",", that finds documents without end.
int SecondDocument(const std::string& text) {
  std::istringstream stream(text);
  YAML::Parser parser(stream);
  DocumentStarts documents;
  while (documents.starts.size() < 2 && parser.HandleNextDocument(documents)) {
  }
  return documents.starts.size() < 2 ? 0 : documents.starts[1].line + 1;
}

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

// The word before the first dot.
std::string_view SectionOf(std::string_view key) {
  const size_t dot = key.find('.');
  BATON_CHECK(dot != std::string_view::npos);
  return key.substr(0, dot);
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

// The digits that a user writes, or as many as give the same number back.
std::string NumberText(double value) {
  const std::string text = absl::StrFormat("%.15g", value);
  double read = 0;
  return absl::SimpleAtod(text, &read) && read == value ? text : absl::StrFormat("%.17g", value);
}

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

void Settings::Section(std::string name, std::string help) {
  sections_.emplace_back(std::move(name), std::move(help));
}

void Settings::Renamed(std::string old_key, std::string new_key) {
  BATON_CHECK(Find(old_key) == nullptr && Find(new_key) != nullptr);
  renamed_.emplace_back(std::move(old_key), std::move(new_key));
}

void Settings::Add(Setting setting) {
  for (Setting& there : settings_) {
    if (there.key != setting.key) continue;
    BATON_CHECK(there.allowed == setting.allowed && there.help == setting.help &&
                there.get() == setting.get());
    there.set = [first = there.set, second = setting.set](std::string_view text) {
      return first(text) && second(text);
    };
    return;
  }
  settings_.push_back(std::move(setting));
}

void Settings::Bool(std::string key, bool* target, std::string help) {
  Setting setting{.key = std::move(key), .allowed = "true or false", .help = std::move(help)};
  setting.is_bool = true;
  setting.set = [target](std::string_view text) {
    if (text != "true" && text != "false") return false;
    *target = text == "true";
    return true;
  };
  setting.get = [target] { return *target ? "true" : "false"; };
  Add(std::move(setting));
}

void Settings::AddInt(std::string key, int64_t min, int64_t max, std::string help,
                      Access<int64_t> target) {
  Setting setting{.key = std::move(key),
                  .allowed = absl::StrCat("an integer from ", min, " to ", max),
                  .help = std::move(help)};
  setting.set = [=](std::string_view text) {
    int64_t value = 0;
    if (!absl::SimpleAtoi(std::string(text), &value) || value < min || value > max) return false;
    target.set(value);
    return true;
  };
  setting.get = [=] { return absl::StrCat(target.get()); };
  Add(std::move(setting));
}

void Settings::Number(std::string key, double* target, double min, double max, std::string help) {
  Setting setting{.key = std::move(key),
                  .allowed = absl::StrFormat("a number from %g to %g", min, max),
                  .help = std::move(help)};
  setting.set = [=](std::string_view text) {
    double value = 0;
    if (!absl::SimpleAtod(std::string(text), &value) || !std::isfinite(value)) return false;
    if (value < min || value > max) return false;
    *target = value;
    return true;
  };
  setting.get = [target] { return NumberText(*target); };
  Add(std::move(setting));
}

void Settings::AddBytes(std::string key, int64_t min, int64_t max, std::string help,
                        Access<int64_t> target) {
  Setting setting{.key = std::move(key),
                  .allowed = absl::StrCat("a size from ", BytesText(min), " to ", BytesText(max),
                                          " (like 512KiB, 64MiB, 8GiB)"),
                  .help = std::move(help)};
  setting.set = [=](std::string_view text) {
    int64_t value = 0;
    if (!ParseBytes(text, &value) || value < min || value > max) return false;
    target.set(value);
    return true;
  };
  setting.get = [=] { return BytesText(target.get()); };
  Add(std::move(setting));
}

void Settings::Duration(std::string key, absl::Duration* target, absl::Duration min,
                        absl::Duration max, std::string help) {
  Setting setting{.key = std::move(key),
                  .allowed = absl::StrCat("a time from ", absl::FormatDuration(min), " to ",
                                          absl::FormatDuration(max), " (like 200ms, 15s, 2m)"),
                  .help = std::move(help)};
  setting.set = [=](std::string_view text) {
    absl::Duration value;
    if (!absl::ParseDuration(std::string(text), &value)) return false;
    if (value < min || value > max) return false;
    *target = value;
    return true;
  };
  setting.get = [target] { return absl::FormatDuration(*target); };
  Add(std::move(setting));
}

void Settings::Text(std::string key, std::string* target, std::string help) {
  Setting setting{.key = std::move(key), .allowed = "text", .help = std::move(help)};
  setting.is_text = true;
  setting.set = [target](std::string_view text) {
    *target = text;
    return true;
  };
  setting.get = [target] { return *target; };
  Add(std::move(setting));
}

void Settings::Choice(std::string key, std::string* target, const std::vector<std::string>& choices,
                      std::string help) {
  std::vector<std::pair<std::string, std::string>> pairs;
  for (const std::string& choice : choices) pairs.emplace_back(choice, choice);
  Choice<std::string>(std::move(key), target, std::move(pairs), std::move(help));
}

void Settings::AddChoice(std::string key, std::vector<std::string> words, std::string help,
                         Access<size_t> word) {
  Setting setting{.key = std::move(key),
                  .allowed = absl::StrCat("one of ", absl::StrJoin(words, ", ")),
                  .help = std::move(help)};
  setting.set = [=](std::string_view text) {
    const auto found = std::find(words.begin(), words.end(), text);
    if (found == words.end()) return false;
    word.set(static_cast<size_t>(found - words.begin()));
    return true;
  };
  setting.get = [=] { return words[word.get()]; };
  Add(std::move(setting));
}

const Settings::Setting* Settings::Find(std::string_view key) const {
  for (const Setting& setting : settings_) {
    if (setting.key == key) return &setting;
  }
  return nullptr;
}

std::string Settings::NewName(std::string_view old_key) const {
  for (const auto& [from, to] : renamed_) {
    if (from == old_key) return to;
  }
  return "";
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
  const std::string new_name = NewName(key);
  if (!new_name.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(std::string(where), std::string(key), " was renamed to ", new_name));
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
    if (const int line = SecondDocument(text); line > 0)
      return walk.Error(line, "", "a second document (---), or what cannot be read as the first's");
    const YAML::Node document = YAML::Load(text);
    if (document.IsNull()) return absl::OkStatus();
    if (!document.IsMap())
      return walk.Error(1, "", "the file must be sections of `key: value` lines");
    RETURN_IF_ERROR(walk.Section(document, "", 1));
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

std::vector<std::pair<std::string, std::string>> Settings::Sections() const {
  std::vector<std::pair<std::string, std::string>> sections = sections_;
  for (const Setting& setting : settings_) {
    const std::string name(SectionOf(setting.key));
    const auto is_it = [&](const auto& section) { return section.first == name; };
    if (std::none_of(sections.begin(), sections.end(), is_it)) sections.emplace_back(name, "");
  }
  return sections;
}

std::string Settings::Resolved() const {
  std::string text;
  for (const auto& [section, help] : Sections()) {
    absl::StrAppend(&text, section, ":\n");
    for (const Setting& setting : settings_) {
      if (SectionOf(setting.key) != section) continue;
      const std::string value = setting.is_text ? Quoted(setting.get()) : setting.get();
      const std::string name = setting.key.substr(section.size() + 1);
      absl::StrAppend(&text,
                      absl::StrFormat("  %-44s # %s\n", name + ": " + value, setting.origin));
    }
  }
  return text;
}

std::string Settings::Markdown() const {
  const auto cell = [](const std::string& text) {
    return absl::StrReplaceAll(text, {{"|", "\\|"}});
  };
  std::string text;
  for (const auto& [section, help] : Sections()) {
    absl::StrAppend(&text, "\n## ", section, "\n\n", help, help.empty() ? "" : "\n\n",
                    "| key | default | allowed | meaning |\n|---|---|---|---|\n");
    for (const Setting& setting : settings_) {
      if (SectionOf(setting.key) != section) continue;
      const std::string value = setting.get().empty() ? "\"\"" : setting.get();
      absl::StrAppend(&text, "| `", setting.key, "` | `", cell(value), "` | ",
                      cell(setting.allowed), " | ", cell(setting.help), " |\n");
    }
  }
  return text;
}

}  // namespace baton
