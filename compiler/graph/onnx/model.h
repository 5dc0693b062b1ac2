// An ONNX model as plain data: what the reader (the only part that sees ONNX's protobufs) hands to the importer.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "compiler/tensor/array.h"
#include "compiler/tensor/dtype.h"

namespace diapason {

// An attribute that no operator we read has: a type, several tensors.
struct OnnxOtherAttribute {
  std::string kind;
};

// In the body of a function: the attribute of that name of the node that calls it.
struct OnnxAttributeReference {
  std::string name;
};

struct OnnxGraph;

// Numbers are the nearest short decimals of ONNX's float32 (0.1f is 0.1), so that a network read from a file has the
// same attributes as one that was built here.
using OnnxAttribute = std::variant<int64_t, double, std::string, std::vector<int64_t>, std::vector<double>,
                                   std::vector<std::string>, std::shared_ptr<const Array>, OnnxOtherAttribute,
                                   OnnxAttributeReference, std::shared_ptr<const OnnxGraph>>;

struct OnnxNode {
  std::string op;
  std::string domain;                // empty for ONNX's own
  std::string name;                  // the first result's if the model gives none
  std::vector<std::string> inputs;   // an empty name is an absent optional input
  std::vector<std::string> outputs;  // likewise
  std::map<std::string, OnnxAttribute> attributes;
  std::string narrow;  // of the attribute that is a tensor, as in OnnxModel
};

// A body of If, Loop or Scan. It reads names of the graphs around it too.
struct OnnxGraph {
  std::vector<std::string> inputs;
  std::map<std::string, std::shared_ptr<const Array>> initializers;
  std::map<std::string, std::string> narrow;  // as in OnnxModel
  std::vector<OnnxNode> nodes;
  std::vector<std::string> outputs;
};

// An operator that the model defines by others.
struct OnnxFunction {
  std::vector<std::string> inputs, outputs;
  std::map<std::string, OnnxAttribute> defaults;  // of attributes that a call may leave out
  std::vector<OnnxNode> nodes;
};

// One dimension of an input: an extent, or what the model leaves open, with the name it bears there (may be empty).
struct OnnxDimension {
  int64_t extent = -1;
  std::string symbol;
  bool open() const { return extent < 0; }
};

struct OnnxInput {
  std::string name;
  DType dtype = DType::kFloat32;
  bool has_shape = false;
  std::vector<OnnxDimension> shape;
  std::string narrow;  // as in OnnxModel
};

struct OnnxModel {
  std::string name;
  std::map<std::string, int64_t> opsets;  // version of each domain
  std::vector<OnnxInput> inputs;          // without those that have a value in `initializers`
  std::map<std::string, std::shared_ptr<const Array>> initializers;
  std::vector<OnnxNode> nodes;
  std::vector<std::string> outputs;
  std::map<std::pair<std::string, std::string>, OnnxFunction> functions;  // by domain and name
  // Initializers whose type we do not have and keep in a wider one: "int16" in int32 (tensor_proto.h).
  std::map<std::string, std::string> narrow;
  // Version of ONNX's own operators; at least kOldestOpset.
  int64_t opset() const { return opsets.at(""); }
};

constexpr int64_t kOldestOpset = 7, kNewestOpset = 28;  // of those whose operators are known

}  // namespace diapason
