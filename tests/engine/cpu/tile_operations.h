// Each operation on AMX tiles that kernel units use, as a function on tiles of 16 rows of 64 bytes.
// A unit instantiates the functions for its policy (engine/cpu/machine/amx_tiles.h, or the
// emulation).
#pragma once

#include <cstdint>

namespace baton {

struct alignas(64) TileWords {
  uint32_t at[16][16] = {};
};

struct TileOperation {
  const char* name;
  void (*run)(const TileWords& c, const TileWords& a, const TileWords& b, TileWords* out);
};
struct TileOperations {
  const TileOperation* first;
  int n;
};
extern const TileOperations kEmulatedTiles, kMachineTiles;

namespace {

template <class T>
struct OperationsOf {
  using W = const TileWords&;
  template <class Fn>
  static void Run(W c, W a, W b, TileWords* out, const Fn& fn) {
    T::Configure();
    T::template Load<3>(&c, 64);
    T::template Load<5>(&a, 64);
    T::template Load<7>(&b, 64);
    fn();
    T::template Store<3>(out, 64);
    T::Release();
  }
  static constexpr TileOperation kAll[] = {
      {"tilezero",
       [](W c, W a, W b, TileWords* out) { Run(c, a, b, out, [] { T::template Zero<3>(); }); }},
      {"tileloadd",
       [](W c, W a, W b, TileWords* out) {
         Run(c, a, b, out, [&] { T::template Load<3>(&b, 64); });
       }},
      {"tileloaddt1",
       [](W c, W a, W b, TileWords* out) {
         Run(c, a, b, out, [&] { T::template LoadOnce<3>(&b, 64); });
       }},
      {"tileloadd, rows reversed",
       [](W c, W a, W b, TileWords* out) {
         Run(c, a, b, out, [&] { T::template Load<3>(b.at[15], -64); });
       }},
      {"tileloaddt1, rows reversed",
       [](W c, W a, W b, TileWords* out) {
         Run(c, a, b, out, [&] { T::template LoadOnce<3>(b.at[15], -64); });
       }},
      {"tdpbf16ps", [](W c, W a, W b,
                       TileWords* out) { Run(c, a, b, out, [] { T::template Dot<3, 5, 7>(); }); }},
      {"tdpbf16ps, five rows",
       [](W c, W a, W b, TileWords* out) {
         T::ConfigureRows(5);
         T::template Load<3>(&c, 64);
         T::template Load<4>(&a, 64);
         T::template Load<7>(&b, 64);
         T::template Dot<3, 4, 7>();
         T::template Store<3>(out, 64);
         T::Release();
       }},
      {"tdpbsud",
       [](W c, W a, W b, TileWords* out) {
         Run(c, a, b, out, [] { T::template DotInt8<3, 5, 7>(); });
       }},
      {"tdpbssd",
       [](W c, W a, W b, TileWords* out) {
         Run(c, a, b, out, [] { T::template DotSigned<3, 5, 7>(); });
       }},
  };
};

}  // namespace
}  // namespace baton
