#include "tests/engine/cpu/emulated_instructions.h"
#include "tests/engine/cpu/tile_operations.h"

namespace baton {

constexpr TileOperations kEmulatedTiles = {
    OperationsOf<EmulatedTiles>::kAll,
    static_cast<int>(sizeof OperationsOf<EmulatedTiles>::kAll / sizeof(TileOperation))};

}  // namespace baton
