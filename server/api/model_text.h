// Tokenizer and chat template of a model, from the files of its folder or from its GGUF file.
#pragma once

#include <memory>
#include <string>

#include "common/status.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace baton {

// path: a resolved model (model_folder.h) that is not random. Errors name file and field.
absl::StatusOr<std::unique_ptr<Tokenizer>> LoadTokenizer(const std::string& path);
// `tokenizer`: of the same model. NotFound: the model has no template.
absl::StatusOr<std::unique_ptr<ChatTemplate>> LoadChatTemplate(const std::string& path,
                                                               const Tokenizer& tokenizer);

}  // namespace baton
