// The text of `baton top`, from answers of /v1/cluster/live. Pure: no clock, no terminal.
#pragma once

#include <boost/json.hpp>
#include <cstdint>
#include <deque>
#include <map>
#include <string>

#include "common/status.h"

namespace baton {

class TopScreen {
 public:
  // Takes an answer's body. InvalidArgument: it is none of a server that this binary knows.
  absl::Status Take(const std::string& body);
  const std::string& cursor() const { return cursor_; }  // for the next question

  // Lines of at most `width` columns, at most `height` of them, each with its end of line.
  std::string Text(int width, int height) const;

 private:
  using Sizes = std::map<int64_t, int64_t>;  // floor in us -> latencies, as the server tells
  using Seconds = std::map<int64_t, Sizes>;  // of the last ones
  void Show(const std::string& body);        // throws where something is missing
  void Add(const boost::json::value& told, Seconds* seconds) const;
  std::string LatencyLine(const char* name, const Seconds& seconds) const;

  std::string cursor_;
  boost::json::value last_;
  int64_t second_ = 0;
  Seconds ttft_, itl_;
  std::deque<boost::json::value> ended_;  // requests, the newest first
};

}  // namespace baton
