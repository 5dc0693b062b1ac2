// Products of quantised tensors, for several rules.
#pragma once

#include "compiler/graph/onnx/rules/composer.h"

namespace diapason::onnx_rules {

// x (float32) times weights (depth x columns, int8 or uint8, with a scale for all or for each column, and a zero point
// or null): x is quantised to uint8 by its range, as DynamicQuantizeLinear does it, multiplied as integers and scaled.
ImportValue DynamicProduct(Composer& c, const ImportValue& x, const ImportValue& weights, const ImportValue& scale,
                           const ImportValue& zero);

}  // namespace diapason::onnx_rules
