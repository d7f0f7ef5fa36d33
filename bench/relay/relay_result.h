// One time to a first token, of one scheme of prefill on so many workers, simulated or measured;
// as a table and as JSON for scripts/plot_relay.py.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace baton {

struct RelayResult {
  std::string source;  // "simulation" or "measured", on every line
  std::string shape;   // model and machine
  std::string scheme;
  double bytes_per_second = 0;  // link rate, per direction
  int ranks = 1;
  double tokens = 0;
  double seconds = 0;               // time to the first token
  double kv_complete = 0;           // time until the decode worker has all KV; 0: no handoff
  std::vector<double> slices = {};  // tokens, where the scheme has some
};

// A statement about results, and whether it holds.
struct RelayClaim {
  std::string source;
  std::string id;    // R1 ... R14 of docs/PAPER.md, or a name
  std::string what;  // with the machine modelled or measured
  double value = 0;
  bool limit_is_min = true;  // true: value >= limit; false: value <= limit
  double limit = 0;
  std::string detail = {};

  bool holds() const { return limit_is_min ? value >= limit : value <= limit; }
};

// One line per (shape, link, ranks, tokens), a column per scheme in the order of their first
// appearance.
void PrintRelayTable(const std::vector<RelayResult>& results);
void PrintRelayClaims(const std::vector<RelayClaim>& claims);
// One object, as the last line.
void PrintRelayJson(const std::vector<RelayResult>& results, const std::vector<RelayClaim>& claims);

}  // namespace baton
