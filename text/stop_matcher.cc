#include "text/stop_matcher.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"

namespace baton {

absl::StatusOr<StopMatcher> StopMatcher::Create(const std::vector<std::string>& stops) {
  if (stops.size() > kMaxStopStrings)
    return absl::InvalidArgumentError(
        absl::StrFormat("stop: %d strings, at most %d are allowed", stops.size(), kMaxStopStrings));
  StopMatcher matcher;
  matcher.nodes_.emplace_back();
  for (size_t i = 0; i < stops.size(); ++i) {
    if (stops[i].empty())
      return absl::InvalidArgumentError(absl::StrFormat("stop[%d]: an empty string", i));
    if (stops[i].size() > kMaxStopBytes)
      return absl::InvalidArgumentError(absl::StrFormat(
          "stop[%d]: %d bytes, at most %d are allowed", i, stops[i].size(), kMaxStopBytes));
    matcher.Insert(stops[i], static_cast<int>(i));
  }
  matcher.Link();
  return matcher;
}

void StopMatcher::Insert(std::string_view stop, int index) {
  int32_t node = 0;
  for (const char c : stop) {
    const uint8_t byte = static_cast<uint8_t>(c);
    int32_t child = Child(node, byte);
    if (child < 0) {
      child = static_cast<int32_t>(nodes_.size());
      Node fresh;
      fresh.depth = nodes_[static_cast<size_t>(node)].depth + 1;
      nodes_.push_back(std::move(fresh));
      nodes_[static_cast<size_t>(node)].children.emplace_back(byte, child);
    }
    node = child;
  }
  Node& end = nodes_[static_cast<size_t>(node)];
  if (end.stop >= 0) return;  // a repeated stop string keeps its first index
  end.stop = index;
  end.length = end.depth;
}

// Breadth first, so that a failure link, which is shorter, is complete before its use.
void StopMatcher::Link() {
  std::vector<int32_t> queue = {0};
  for (size_t i = 0; i < queue.size(); ++i) {
    const int32_t parent = queue[i];
    for (const auto& [byte, id] : nodes_[static_cast<size_t>(parent)].children) {
      Node& child = nodes_[static_cast<size_t>(id)];
      child.failure = parent == 0 ? 0 : Next(nodes_[static_cast<size_t>(parent)].failure, byte);
      if (child.stop < 0) {
        const Node& shorter = nodes_[static_cast<size_t>(child.failure)];
        child.stop = shorter.stop;
        child.length = shorter.length;
      }
      queue.push_back(id);
    }
  }
}

int32_t StopMatcher::Child(int32_t node, uint8_t byte) const {
  for (const auto& [edge, child] : nodes_[static_cast<size_t>(node)].children)
    if (edge == byte) return child;
  return -1;
}

int32_t StopMatcher::Next(int32_t node, uint8_t byte) const {
  for (;;) {
    if (const int32_t child = Child(node, byte); child >= 0) return child;
    if (node == 0) return 0;
    node = nodes_[static_cast<size_t>(node)].failure;
  }
}

StopMatcher::Result StopMatcher::Push(std::string_view piece) {
  Result result;
  if (stopped_) return result;
  held_.reserve(held_.size() + piece.size());
  for (const char c : piece) {
    state_ = Next(state_, static_cast<uint8_t>(c));
    held_.push_back(c);
    const Node& node = nodes_[static_cast<size_t>(state_)];
    if (node.stop < 0) continue;
    held_.resize(held_.size() - static_cast<size_t>(node.length));
    result.text = std::move(held_);
    result.stop = node.stop;
    held_.clear();
    stopped_ = true;
    return result;
  }
  const size_t kept = static_cast<size_t>(nodes_[static_cast<size_t>(state_)].depth);
  result.text = held_.substr(0, held_.size() - kept);
  held_.erase(0, held_.size() - kept);
  return result;
}

std::string StopMatcher::Finish() {
  stopped_ = true;
  return std::exchange(held_, std::string());
}

}  // namespace baton
