// ONNX models as Networks.
//
// A model passes ReadOnnxModel (protobuf, tensors), checks of its graph, and then node by node the rules of rules/ (one
// file for an operator or a family of them), which check types, shapes, attributes and inputs. What only
// depends on shapes and constants is computed on the way, so that the chains of Shape, Gather, Concat, Reshape that
// exporters write leave a plain reshape.
#pragma once

#include <istream>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/graph/model.h"
#include "compiler/graph/network.h"

namespace diapason {

// Inputs, outputs and results bear the names of the model; open extents are fixed as FixInputShapes (input_shapes.h)
// says. `facts`, unless null, receives what LoadModel tells beside the network. NotFound if the file cannot be read;
// InvalidArgument, in one sentence that names the file, the node and its operator, for all that is wrong or not
// supported. Never throws and never ends the process, whatever the file holds.
absl::StatusOr<Network> ImportOnnx(const std::string& path, const ModelOptions& options, ModelFacts* facts = nullptr);

// The same from a stream. `name` stands for the file in errors and names the network; files of external data are looked
// for in `directory`.
absl::StatusOr<Network> ImportOnnxStream(std::istream& bytes, const std::string& name, const std::string& directory,
                                         const ModelOptions& options, ModelFacts* facts = nullptr);

// Names of ONNX's operators that can be imported, sorted.
std::vector<std::string> OnnxOperators();

}  // namespace diapason
