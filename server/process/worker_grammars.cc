#include "server/process/worker_grammars.h"

#include <memory>
#include <optional>

#include "common/status.h"
#include "engine/checkpoint/weight_source.h"
#include "engine/model/model_path.h"
#include "server/api/model_text.h"
#include "text/grammar_compiler.h"

namespace baton {
namespace {

struct Grammars {
  std::unique_ptr<Tokenizer> tokenizer;
  std::optional<GrammarCompiler> compiler;
};

absl::Status Load(const std::string& path, Grammars* grammars) {
  ASSIGN_OR_RETURN(const ModelDesc desc, ReadModelDesc(path));
  ASSIGN_OR_RETURN(grammars->tokenizer, LoadTokenizer(path));
  grammars->compiler.emplace(grammars->tokenizer.get(), desc.eos_tokens);
  return absl::OkStatus();
}

}  // namespace

GrammarCompilerFn WorkerGrammars(const std::string& path) {
  if (ParseModelPath(path).form == ModelForm::kRandom) return nullptr;
  const auto grammars = std::make_shared<Grammars>();
  return [path, grammars](const GrammarSpec& spec) -> absl::StatusOr<SharedGrammar> {
    if (!grammars->compiler) RETURN_IF_ERROR(Load(path, grammars.get()));
    return grammars->compiler->Compile(spec);
  };
}

}  // namespace baton
