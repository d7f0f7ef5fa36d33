// The grammars of requests in a worker, whose engine knows no tokenizer: compiled with one that is
// loaded for the first of them.
#pragma once

#include <string>

#include "common/token_grammar.h"

namespace baton {

// path: a resolved model (model_folder.h). The function belongs to one thread at a time; its errors
// name the file. Null: the model has no tokenizer.
GrammarCompilerFn WorkerGrammars(const std::string& path);

}  // namespace baton
