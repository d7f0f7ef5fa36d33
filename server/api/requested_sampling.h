// The fields of an API request that say how tokens are drawn and what is told of them, with the
// model's defaults, as SamplingParams. Pure: any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/sampling_params.h"
#include "server/api/api_error.h"
#include "server/api/api_request.h"
#include "server/api/served_model.h"

namespace baton {

// Nothing: *sampling is whole, but for the seed, which each prompt and choice has of its own
// (choice_seed.h). The error names an id that the model or its tokenizer does not have, or a word
// that cannot be tokenized.
std::optional<ApiError> ReadSampling(const ServedModel& model, const ApiRequest& request,
                                     SamplingParams* sampling);

// The error names the first id that is not from 0 to the model's last one.
std::optional<ApiError> CheckTokenIds(const ServedModel& model, const std::vector<int32_t>& ids,
                                      const std::string& param);

}  // namespace baton
