// Makers of the built-in sketch rules, one file each.
#pragma once

#include <memory>

#include "scheduler/sketch/rule.h"

namespace diapason {

std::unique_ptr<SketchRule> MakeAttention();
std::unique_ptr<SketchRule> MakeSkip();
std::unique_ptr<SketchRule> MakePrologue();
std::unique_ptr<SketchRule> MakeInline();
std::unique_ptr<SketchRule> MakeMultiLevelTilingWithFusion();
std::unique_ptr<SketchRule> MakeMultiLevelTiling();
std::unique_ptr<SketchRule> MakeCacheWrite();
std::unique_ptr<SketchRule> MakeCacheReadShared();
std::unique_ptr<SketchRule> MakeComputeLocation();
std::unique_ptr<SketchRule> MakePackConstant();
std::unique_ptr<SketchRule> MakeRfactor();
std::unique_ptr<SketchRule> MakeRowReductions();
std::unique_ptr<SketchRule> MakeClusterReduction();
std::unique_ptr<SketchRule> MakeCrossThreadReduction();
std::unique_ptr<SketchRule> MakePlainReduction();
std::unique_ptr<SketchRule> MakeSimplifyConstTensor();
std::unique_ptr<SketchRule> MakeSpecialComputeLocation();

}  // namespace diapason
