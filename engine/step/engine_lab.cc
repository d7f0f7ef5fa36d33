#include "engine/step/engine_lab.h"

namespace baton {

void DeclareEngineLab(EngineLab* lab, Settings* settings) {
  settings->Choice<bool>("lab.attention", &lab->dense_mask,
                         {{"causal", false}, {"dense_mask", true}},
                         "dense_mask computes what a query does not see and masks it: the same "
                         "tokens, slower, to compare with engines that do so");
}

}  // namespace baton
