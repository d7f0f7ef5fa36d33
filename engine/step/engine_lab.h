// Options of an engine for comparisons only (LoadLabBackend). Plain data, set at the start of the
// process.
#pragma once

#include "common/settings.h"

namespace baton {

struct EngineLab {
  // Every query is computed against all keys its page table has room for, and what it does not see
  // is masked, as some engines do. The same bits, slower.
  bool dense_mask = false;

  const char* attention() const { return dense_mask ? "dense_mask" : "causal"; }
};

// Declares lab.attention. `lab` must outlive `settings`.
void DeclareEngineLab(EngineLab* lab, Settings* settings);

}  // namespace baton
