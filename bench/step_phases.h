// What `bench step --phases` prints: where the time of steps went.
#pragma once

#include <string>
#include <vector>

#include "bench/kernel_result.h"
#include "engine/cpu/phase_clock.h"

namespace baton {

// Lines in milliseconds of a step, each a part of the first, NAME/step: NAME/pack, ... for every
// phase that took time, without waiting; NAME/waiting, at barriers of all phases; and NAME/rest,
// what no phase claims. clock: of n_steps steps.
std::vector<KernelResult> PhaseLines(const std::string& name, const PhaseClock& clock, int n_steps);

}  // namespace baton
