// Products of quantized tensors, which the rules of several operators share.
#pragma once

#include "compiler/graph/onnx/rules/composer.h"

namespace diapason::onnx_rules {

// q - `zero`, its zero point, as int32. A list of zero points is one for each extent of `axis`; null means 0.
ImportValue Centred(Composer& c, const ImportValue& q, ImportValue zero, int64_t axis);

// The matrix product of a float32 tensor x and quantized weights, in float32: x is quantized to uint8 by the range of
// its values, as ONNX's DynamicQuantizeLinear does, the product is one of integers, and both scales multiply its
// result. `weights` is int8 or uint8 of shape (depth, columns); `scale` has one element, or one for each column;
// `zero`, the weights' zero point, has the same shape, or is null, which means 0. The composer keeps errors
// (composer.h).
ImportValue DynamicProduct(Composer& c, const ImportValue& x, const ImportValue& weights, const ImportValue& scale,
                           const ImportValue& zero);

}  // namespace diapason::onnx_rules
