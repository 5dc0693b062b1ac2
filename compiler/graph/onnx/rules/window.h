// What convolutions and pools share: attributes of windows, and one-dimensional images as two-dimensional ones.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "compiler/graph/onnx/node_importer.h"

namespace diapason::onnx_rules {

// strides, pads (from auto_pad too), dilations and ceil_mode of a node over the image x (N, C and one or two further
// dimensions) as our attributes. A one-dimensional image counts as one of height 1.
absl::StatusOr<Attributes> WindowAttributes(NodeImporter& node, const ImportValue& x,
                                            const std::vector<int64_t>& kernel);

// An image or weights with a height of 1 where they have one dimension, else the value itself.
absl::StatusOr<ImportValue> WithHeight(NodeImporter& node, const ImportValue& value);
// Adds the node and sets the result, without the height where the image `like` has none.
absl::Status EmitImage(NodeImporter& node, const ImportValue& like, const std::string& op,
                       const std::vector<ImportValue>& inputs, Attributes attributes);

// `list` of a one-dimensional window as that of a two-dimensional one, `fill` in front of each half or list.
std::vector<int64_t> TwoDimensional(const std::vector<int64_t>& list, int64_t fill);

}  // namespace diapason::onnx_rules
