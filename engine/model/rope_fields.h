// Reads the fields of a config.json about RoPE, in both spellings. Pure function, any thread.
#pragma once

#include <string>

#include "common/status.h"
#include "engine/model/json_fields.h"
#include "engine/model/model_families.h"

namespace baton {

inline constexpr int kMaxPositions = 1 << 21;

// Sets rope, window_rope and rotary_dim of a model whose heads and positions are already read; yarn
// may raise max_positions. `config` remembers errors in the config's own fields; errors in the
// nested rope object, InvalidArgument, are returned and name `origin` and field.
absl::Status ReadRope(JsonFields& config, const Family& family, const std::string& origin,
                      ModelDesc& model);

}  // namespace baton
