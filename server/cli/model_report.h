// Reports what is supported of a model's files and what is not, by the name of the architecture,
// field, tensor, type or file: for `baton doctor MODEL`. Reads no values of tensors. Any thread.
#pragma once

#include <string>
#include <vector>

#include "server/cli/finding.h"

namespace baton {

// path: any folder or file, or random:<config.json>; what cannot be read is a bad finding. Without
// a bad finding the model can be loaded, unless values are not finite or the engine cannot compute
// the widths.
std::vector<Finding> InspectModel(const std::string& path);

}  // namespace baton
