#include "engine/cpu/machine/isa.h"

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace baton {
namespace {

constexpr std::array kAllIsas = {Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Bf16, Isa::kAmx};

struct CpuidLeaf {
  uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
};

CpuidLeaf Cpuid(uint32_t leaf, uint32_t subleaf) {
  CpuidLeaf r;
  __get_cpuid_count(leaf, subleaf, &r.eax, &r.ebx, &r.ecx, &r.edx);  // zeros if unknown
  return r;
}

constexpr bool Bit(uint32_t word, int bit) { return (word >> bit & 1u) != 0; }

// State components the operating system saves: 2 = ymm, 5..7 = AVX-512, 17..18 = tiles.
uint64_t EnabledState(const CpuidLeaf& leaf1) {
  if (!Bit(leaf1.ecx, 27)) return 0;  // no OSXSAVE
  uint32_t eax, edx;
  __asm__ volatile("xgetbv" : "=a"(eax), "=d"(edx) : "c"(0));
  return uint64_t{edx} << 32 | eax;
}

// The kernel's answer for tiles (arch_prctl codes of <asm/prctl.h>, newer than Debian 12's libc).
constexpr int kGetPermission = 0x1022;
constexpr int kRequestPermission = 0x1023;
constexpr unsigned long kTileData = 18;

bool HasAmxPermission() {
  unsigned long permitted = 0;
  if (syscall(SYS_arch_prctl, kGetPermission, &permitted) != 0) return false;
  return (permitted >> kTileData & 1u) != 0;
}

struct CpuFeatures {
  bool avx2 = false, avx512 = false, vnni = false, avx512bf16 = false, amx = false;
};

CpuFeatures DetectFeatures() {
  CpuFeatures has;
  const CpuidLeaf leaf1 = Cpuid(1, 0), leaf7 = Cpuid(7, 0), leaf7_1 = Cpuid(7, 1);
  const uint64_t state = EnabledState(leaf1);
  const bool ymm_saved = (state & 0x6) == 0x6;
  const bool zmm_saved = ymm_saved && (state & 0xe0) == 0xe0;
  const bool tiles_saved = (state & 0x60000) == 0x60000;
  has.avx2 = ymm_saved && Bit(leaf1.ecx, 28) && Bit(leaf1.ecx, 12) && Bit(leaf1.ecx, 29) &&
             Bit(leaf7.ebx, 5);
  has.avx512 = has.avx2 && zmm_saved && Bit(leaf7.ebx, 16) && Bit(leaf7.ebx, 17) &&
               Bit(leaf7.ebx, 30) && Bit(leaf7.ebx, 31);
  has.vnni = has.avx512 && Bit(leaf7.ecx, 11);
  has.avx512bf16 = has.vnni && Bit(leaf7_1.eax, 5);
  has.amx = has.avx512bf16 && Bit(leaf7.ecx, 1) && tiles_saved && Bit(leaf7.edx, 22) &&
            Bit(leaf7.edx, 24) && Bit(leaf7.edx, 25);
  return has;
}

bool Has(const CpuFeatures& has, Isa isa) {
  switch (isa) {
    case Isa::kAvx2:
      return has.avx2;
    case Isa::kAvx512:
      return has.avx512;
    case Isa::kAvx512Bf16:
      return has.avx512bf16;
    case Isa::kAmx:
      return has.amx && HasAmxPermission();
  }
  return false;
}

template <typename Isas>
std::string JoinNames(const Isas& isas) {
  return absl::StrJoin(isas, ", ", [](std::string* out, Isa isa) { out->append(IsaName(isa)); });
}

}  // namespace

std::string_view IsaName(Isa isa) {
  switch (isa) {
    case Isa::kAvx2:
      return "avx2";
    case Isa::kAvx512:
      return "avx512";
    case Isa::kAvx512Bf16:
      return "avx512bf16";
    case Isa::kAmx:
      return "amx";
  }
  return "unknown";
}

absl::StatusOr<Isa> ParseIsa(std::string_view name) {
  for (Isa isa : kAllIsas) {
    if (IsaName(isa) == name) return isa;
  }
  return absl::InvalidArgumentError(absl::StrCat("unknown CPU path \"", std::string(name),
                                                 "\"; use one of ", JoinNames(kAllIsas)));
}

std::vector<Isa> SupportedIsas() {
  const CpuFeatures has = DetectFeatures();
  std::vector<Isa> supported;
  std::copy_if(kAllIsas.begin(), kAllIsas.end(), std::back_inserter(supported),
               [&](Isa isa) { return Has(has, isa); });
  return supported;
}

absl::Status CheckIsaSupported(Isa isa) {
  return CheckIsaAmong(isa, SupportedIsas(), CpuModelName());
}

absl::Status CheckIsaAmong(Isa isa, const std::vector<Isa>& supported, const std::string& cpu) {
  if (std::find(supported.begin(), supported.end(), isa) != supported.end()) {
    return absl::OkStatus();
  }
  if (supported.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("this CPU (", cpu,
                     ") lacks AVX2, FMA and F16C, which the CPU engine needs; use a machine from "
                     "2013 or later"));
  }
  return absl::FailedPreconditionError(
      absl::StrCat("this machine (", cpu, ") cannot run the CPU path ", std::string(IsaName(isa)),
                   "; it supports ", JoinNames(supported)));
}

bool HasVnni() { return DetectFeatures().vnni; }

bool RequestAmxPermission() {
  if (!DetectFeatures().amx) return false;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0 && HasAmxPermission();
}

bool IsAmxRefused() { return DetectFeatures().amx && !HasAmxPermission(); }

std::string CpuModelName() {
  if (Cpuid(0x80000000u, 0).eax < 0x80000004u) return "unknown CPU";
  std::array<char, 49> name{};
  for (uint32_t i = 0; i < 3; ++i) {
    const CpuidLeaf leaf = Cpuid(0x80000002u + i, 0);
    std::memcpy(name.data() + 16 * i, &leaf, 16);
  }
  return std::string(absl::StripAsciiWhitespace(name.data()));
}

}  // namespace baton
