// The ISA paths of the CPU engine: their names, and which ones this machine can run. Detection is
// by cpuid and XCR0 (what the operating system saves), compiled for plain x86-64. Any thread;
// RequestAmxPermission before threads start.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/status.h"

namespace baton {

// Path of the kernels. Order = preference on machines where the measurement is not decisive.
//   kAvx2        AVX2, FMA, F16C
//   kAvx512      AVX-512 F, BW, DQ, VL
//   kAvx512Bf16  + AVX512_BF16, AVX512_VNNI
//   kAmx         + AMX-TILE, AMX-BF16, AMX-INT8
enum class Isa { kAvx2, kAvx512, kAvx512Bf16, kAmx };

std::string_view IsaName(Isa isa);                    // "avx2", "avx512", "avx512bf16", "amx"
absl::StatusOr<Isa> ParseIsa(std::string_view name);  // error lists the names

// Paths of this machine, best guess last; empty if even AVX2 is missing. kAmx is included only
// after RequestAmxPermission() succeeded in this process.
std::vector<Isa> SupportedIsas();
// OK, or an error that names the paths this machine has.
absl::Status CheckIsaSupported(Isa isa);
// CheckIsaSupported for a machine named `cpu` that has the paths `supported`.
absl::Status CheckIsaAmong(Isa isa, const std::vector<Isa>& supported, const std::string& cpu);

// True if the CPU has AVX512_VNNI, which some machines of kAvx512 have too.
bool HasVnni();

// Asks the kernel for AMX tiles; call after exec (which clears the permission), before threads.
// False if the CPU has no tiles or the kernel refuses. Calling it again is harmless.
bool RequestAmxPermission();
// True if the CPU has tiles that this process may not use: permission was not requested yet, or the
// kernel refused it (the signal stack of some thread is too small for tiles).
bool IsAmxRefused();

// Brand string of cpuid, such as "AMD EPYC 9R14".
std::string CpuModelName();

}  // namespace baton
