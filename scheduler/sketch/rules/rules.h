// Makers of the built-in sketch rules, one file each, in which the rule is described. registry.cc has their order,
// which matters.
#pragma once

#include <memory>

#include "scheduler/sketch/rule.h"

namespace diapason {

std::unique_ptr<SketchRule> MakeAttention();                   // attention in one kernel
std::unique_ptr<SketchRule> MakeSkip();                        // leaves a stage as it is
std::unique_ptr<SketchRule> MakePrologue();                    // stages of constants alone: once, at build time
std::unique_ptr<SketchRule> MakeInline();                      // element-wise stages, computed where they are read
std::unique_ptr<SketchRule> MakeMultiLevelTilingWithFusion();  // a reduction in tiles, inside its element-wise consumer
std::unique_ptr<SketchRule> MakeMultiLevelTiling();            // a reduction in tiles (CPU)
std::unique_ptr<SketchRule> MakeCacheWrite();        // a reduction that accumulates in registers, and a copy of these
std::unique_ptr<SketchRule> MakeCacheReadShared();   // a tile's operands through shared memory (GPU)
std::unique_ptr<SketchRule> MakeComputeLocation();   // a costly element-wise stage, whole or for each tile (CPU)
std::unique_ptr<SketchRule> MakePackConstant();      // weights in the order in which tiles read them (CPU)
std::unique_ptr<SketchRule> MakeRunSums();           // sums of what another kernel makes, perhaps there
std::unique_ptr<SketchRule> MakeRfactor();           // a long reduction in slices (split-K)
std::unique_ptr<SketchRule> MakeRowReductions();     // normalisations and softmax in one kernel
std::unique_ptr<SketchRule> MakeRowOfProduct();      // reductions of the row that a streamed product reads
std::unique_ptr<SketchRule> MakeStream();            // a reduction of what is read once, by many sets of threads (GPU)
std::unique_ptr<SketchRule> MakeClusterReduction();  // a reduction over the blocks of a cluster (sm_90)
std::unique_ptr<SketchRule> MakeCrossThreadReduction();    // a reduction over the threads of a block (GPU)
std::unique_ptr<SketchRule> MakePlainReduction();          // a reduction without reuse (pooling)
std::unique_ptr<SketchRule> MakeSimplifyConstTensor();     // products with a small constant matrix, unrolled (Winograd)
std::unique_ptr<SketchRule> MakeSpecialComputeLocation();  // what these read, gathered into registers

}  // namespace diapason
