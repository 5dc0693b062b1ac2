#include "scheduler/sketch/rules/rules.h"

namespace diapason {

// Order matters: a rule may end the search for others at its stage. Stages are seen from the outputs to the inputs, so
// a reduction is tiled before the stages that it reads are placed.
SketchRules DefaultRules(const Target& target) {
  SketchRules rules;
  if (target.is_gpu()) {
    rules.push_back(MakeCacheReadShared());
  } else {
    rules.push_back(MakePackConstant());
    rules.push_back(MakeComputeLocation());
  }
  rules.push_back(MakePrologue());
  if (target.is_gpu()) rules.push_back(MakeRunSums());
  rules.push_back(MakeAttention());
  rules.push_back(MakeRowReductions());
  rules.push_back(MakeSpecialComputeLocation());
  rules.push_back(MakeInline());
  rules.push_back(MakeSimplifyConstTensor());
  if (target.is_gpu()) rules.push_back(MakeRowOfProduct());
  if (target.is_gpu()) rules.push_back(MakeStream());
  rules.push_back(MakeRfactor());
  if (target.is_gpu()) rules.push_back(MakeCrossThreadReduction());
  if (target.is_gpu()) rules.push_back(MakeClusterReduction());
  rules.push_back(MakeMultiLevelTilingWithFusion());
  rules.push_back(MakeCacheWrite());
  if (!target.is_gpu()) rules.push_back(MakeMultiLevelTiling());
  rules.push_back(MakePlainReduction());
  rules.push_back(MakeSkip());
  return rules;
}

}  // namespace diapason
