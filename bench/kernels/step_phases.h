// Lines of `bench step --phases`: the time of steps by phase.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "bench/kernel_result.h"
#include "engine/threads/phase_clock.h"

namespace baton {

// Lines in milliseconds of a step, each a part of the first, NAME/step: NAME/pack, ... for every
// phase that took time, without waiting; NAME/waiting, at barriers of all phases; and NAME/rest,
// what no phase claims. runs: clocks of steps_each steps; the faster half of them (one at least)
// counts, for in the others the machine did something else.
std::vector<KernelResult> PhaseLines(const std::string& name, std::span<const PhaseClock> runs,
                                     int steps_each);

}  // namespace baton
