// Integer linear layers with vpdpbusd.
#include "engine/cpu/linear/gemm_integer_zmm.h"

namespace baton {
namespace {

struct Vnni : ZmmBytes {
  // Inline assembly, because with the intrinsic g++ 12 moves sums between registers and to memory.
  static Vec Dot(Vec acc, Vec weights, Vec x) {
    __asm__("vpdpbusd %2, %1, %0" : "+v"(acc) : "v"(weights), "v"(x));
    return acc;
  }
};

}  // namespace

constexpr LinearKernelTable kInt8Vnni = IntegerGemm<Vnni, Int8Weights>::Table();
constexpr LinearKernelTable kInt4Vnni = IntegerGemm<Vnni, Int4Weights>::Table();
constexpr LinearKernelTable kInt8VnniZen = IntegerGemm<ReadInOrder<Vnni>, Int8Weights>::Table();
constexpr LinearKernelTable kInt4VnniZen = IntegerGemm<ReadInOneStream<Vnni>, Int4Weights>::Table();

}  // namespace baton
