// The CPUs that the calling thread may run on; threads it starts later inherit them.
#pragma once

#include <cstdint>
#include <vector>

namespace baton {

// Numbers, ascending; none where the system does not tell.
std::vector<int> OwnCpus();
// Only on these from now on. False: none of them can be had, and nothing has changed.
bool StayOnCpus(const std::vector<int>& cpus);
// The same number for processes that run on the same CPUs of one machine; 0: nobody knows.
uint64_t CpuGroup(const std::vector<int>& cpus);

}  // namespace baton
