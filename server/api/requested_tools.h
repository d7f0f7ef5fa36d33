// Tools, reasoning and structured output together: how the answer to a chat is read, and the
// grammar that holds it to what the request demands. Pure: any thread.
#pragma once

#include <optional>
#include <string>

#include "common/sampling_params.h"
#include "server/api/api_error.h"
#include "server/api/api_request.h"
#include "server/api/served_model.h"
#include "text/tools/answer_format.h"

namespace baton {

// Calls only where tools may be called, reasoning where it is to be told apart; neither in a
// completion.
AnswerFormat AnswerFormatOf(const ServedModel& model, const ApiRequest& request);

// The field that errors of the answer's grammar name.
std::string GrammarPath(const ApiRequest& request);

// Sets *grammar to what holds the answer to response_format and its kin and to tools, after the
// reasoning if the model reasons. The error names the field that cannot be met.
// inside_reasoning: the prompt has opened reasoning.
std::optional<ApiError> MakeAnswerGrammar(const ServedModel& model, const ApiRequest& request,
                                          bool inside_reasoning, GrammarSpec* grammar);

}  // namespace baton
