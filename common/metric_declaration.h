// Declaration of a series as one row of a room's table: the code that feeds the series takes the
// row by its name, and docs/METRICS.md is written from the same rows, so that names cannot drift.
// Constants, any thread.
#pragma once

#include <span>
#include <string_view>

namespace baton {

enum class MetricKind {
  kGauge,      // is the value
  kCounter,    // grows by the value
  kTotal,      // a counter too; the value, which never falls, is the source's count since its start
  kHistogram,  // observes the value, or is the source's counts since its start
};

struct MetricDeclaration {
  MetricKind kind;
  const char* name;
  const char* unit;    // of the value; of what a counter counts
  const char* labels;  // names with blanks between them, in no order; empty: none
  const char* help;    // one sentence, ends in a full stop
};

// A table and the heading that docs/METRICS.md has for it.
struct MetricSection {
  const char* title;
  const char* about;  // whose page has the series, and what their labels say
  std::span<const MetricDeclaration> rows;
};

void NoSuchMetric();  // never defined: a name that the table does not have does not compile

// Returns the row of a name.
template <size_t N>
consteval const MetricDeclaration& FindMetric(const MetricDeclaration (&table)[N],
                                              std::string_view name) {
  for (const MetricDeclaration& row : table)
    if (name == row.name) return row;
  NoSuchMetric();
  return table[0];
}

}  // namespace baton
