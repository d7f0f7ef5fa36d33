#include "engine/cpu/machine/amx_tiles.h"
#include "tests/engine/cpu/tile_operations.h"

namespace baton {

constexpr TileOperations kMachineTiles = {
    OperationsOf<AmxTiles>::kAll,
    static_cast<int>(sizeof OperationsOf<AmxTiles>::kAll / sizeof(TileOperation))};

}  // namespace baton
