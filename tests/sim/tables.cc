#include "tests/sim/tables.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "decode_worker/sequence.h"
#include "kvtransfer/protocol/transfer_core.h"
#include "prefill_worker/prompt.h"
#include "router/membership.h"
#include "router/request.h"

namespace baton::sim {
namespace {

struct Taken {
  uint64_t count;
  std::string text;
};

std::vector<Taken> AllTaken(const TransitionCounts& counts) {
  std::vector<Taken> all;
  for (const MachineTable* table : AllTables())
    for (const TransitionRow& row : table->transitions)
      all.push_back(
          {counts.count(*table, row), absl::StrFormat("%s: %s to %s", std::string(table->machine),
                                                      std::string(table->states[row.from].name),
                                                      std::string(table->states[row.to].name))});
  std::stable_sort(all.begin(), all.end(),
                   [](const Taken& a, const Taken& b) { return a.count < b.count; });
  return all;
}

}  // namespace

std::vector<const MachineTable*> AllTables() {
  return {&HandoffSourceTable(), &HandoffSinkTable(), &PagePromiseTable(), &ConnectionTable(),
          &PromptTable(),        &SequenceTable(),    &RequestTable(),     &MembershipTable()};
}

std::string TransitionReport(const TransitionCounts& counts) {
  return TakenLessThan(UINT64_MAX, counts);
}

std::string TakenLessThan(uint64_t n, const TransitionCounts& counts) {
  std::string out;
  for (const Taken& taken : AllTaken(counts))
    if (taken.count < n) out += absl::StrFormat("%12d  %s\n", taken.count, taken.text);
  return out;
}

}  // namespace baton::sim
