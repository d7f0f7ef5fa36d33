// One line of `baton doctor`: what was looked at, what was found, and what to change.
#pragma once

#include <string>
#include <utility>

namespace baton {

struct Finding {
  enum class Mark { kGood, kNote, kBad };
  Mark mark = Mark::kGood;
  std::string name;  // "architecture", "memlock", ...
  std::string text;
};

inline Finding Good(std::string name, std::string text) {
  return {Finding::Mark::kGood, std::move(name), std::move(text)};
}
inline Finding Note(std::string name, std::string text) {
  return {Finding::Mark::kNote, std::move(name), std::move(text)};
}
inline Finding Bad(std::string name, std::string text) {
  return {Finding::Mark::kBad, std::move(name), std::move(text)};
}

}  // namespace baton
