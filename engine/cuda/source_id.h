// The id of the sources of all that runs on a GPU, of which this program was built.
#pragma once

namespace baton {

extern const char kCudaSourceId[];  // 16 hex digits (engine/cuda/source_id.sh)

}  // namespace baton
