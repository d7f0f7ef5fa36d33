#include "engine/cpu/linear/gemm_integer_zmm.h"
#include "engine/cpu/linear/gemm_tile_integers.h"
#include "engine/cpu/linear/gemm_tile_rows_in_l2.h"
#include "engine/cpu/linear/gemm_tile_stream.h"
#include "engine/cpu/linear/gemm_tile_weights_in_l2.h"
#include "tests/engine/cpu/emulated_instructions.h"
#include "tests/engine/cpu/emulated_kernels.h"

namespace baton {

using Vnni = EmulatedVnni<ZmmBytes>;

constexpr LinearKernelTable kEmulatedInt8Avx512 = IntegerGemm<ZmmShorts, Int8Weights>::Table();
constexpr LinearKernelTable kEmulatedInt4Avx512 = IntegerGemm<ZmmBytes, Int4Weights>::Table();
constexpr LinearKernelTable kEmulatedInt8Vnni = IntegerGemm<Vnni, Int8Weights>::Table();
constexpr LinearKernelTable kEmulatedInt4Vnni = IntegerGemm<Vnni, Int4Weights>::Table();
constexpr LinearKernelTable kEmulatedInt8VnniZen =
    IntegerGemm<ReadInOrder<Vnni>, Int8Weights>::Table();
constexpr LinearKernelTable kEmulatedInt4VnniZen =
    IntegerGemm<ReadInOneStream<Vnni>, Int4Weights>::Table();
using Tiles = EmulatedTiles;
constexpr LinearKernelTable kEmulatedInt8AmxStream = TileStream<Tiles, Int8OnTiles>::Table();
constexpr LinearKernelTable kEmulatedInt8AmxRowsInL2 =
    TileNest<Tiles, Int8OnTiles, RowsInL2>::Table();
constexpr LinearKernelTable kEmulatedInt8AmxWeightsInL2 =
    TileNest<Tiles, Int8OnTiles, WeightsInL2>::Table();
constexpr LinearKernelTable kEmulatedInt4AmxStream = TileStream<Tiles, Int4OnTiles>::Table();
constexpr LinearKernelTable kEmulatedInt4AmxRowsInL2 =
    TileNest<Tiles, Int4OnTiles, RowsInL2>::Table();
constexpr LinearKernelTable kEmulatedInt4AmxWeightsInL2 =
    TileNest<Tiles, Int4OnTiles, WeightsInL2>::Table();

}  // namespace baton
