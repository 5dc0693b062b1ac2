// A Network: a model as a directed acyclic graph of operators over tensors of static shape, what importers produce and
// passes rewrite.
//
// Conventions
// - Tensors and nodes are named by position. `nodes` is a topological order, and the order in which all passes and the
//   partition walk, so equal sources give equal results; names are for people and for inputs and outputs only.
// - An operator has exactly one result. Importers turn those with several (Split) into one node a result, and resolve
//   optional inputs into attributes or leave trailing ones out: there is no "absent" input.
// - Operators that know about images carry an attribute "layout": "NCHW" (weights OIHW) or "NHWC" (weights HWIO: kernel
//   height, kernel width, input channels of a group, output channels). The default is NCHW, as in ONNX.
// - Negative axes are allowed in attributes, as in ONNX.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compiler/tensor/array.h"
#include "compiler/tensor/dtype.h"

namespace diapason {

// Type and shape of a tensor.
struct TensorType {
  DType dtype = DType::kFloat32;
  std::vector<int64_t> shape;
  int64_t elements() const;
  bool operator==(const TensorType& other) const { return dtype == other.dtype && shape == other.shape; }
  std::string ToString() const;  // "float32 1x3x224x224"
};

struct Tensor {
  std::string name;
  TensorType type;
  std::shared_ptr<const Array> data;  // the value of a constant (shared by copies of a network); else null
  bool constant() const { return data != nullptr; }
};

using AttributeValue = std::variant<int64_t, double, std::string, std::vector<int64_t>>;

// Attributes of a node. A getter returns the fallback when the name is absent; a value of another kind is a bug of the
// importer (DIAPASON_CHECK), but an integer serves where a number is asked for.
class Attributes {
 public:
  Attributes() = default;
  Attributes(std::initializer_list<std::pair<const std::string, AttributeValue>> values) : values_(values) {}
  bool has(const std::string& name) const { return values_.count(name) != 0; }
  int64_t Int(const std::string& name, int64_t fallback) const;
  double Float(const std::string& name, double fallback) const;
  std::string String(const std::string& name, const std::string& fallback) const;
  std::vector<int64_t> Ints(const std::string& name, const std::vector<int64_t>& fallback) const;
  void Set(const std::string& name, AttributeValue value) { values_[name] = std::move(value); }
  void Erase(const std::string& name) { values_.erase(name); }
  const std::map<std::string, AttributeValue>& values() const { return values_; }

 private:
  std::map<std::string, AttributeValue> values_;
};

struct Node {
  std::string op;  // a name of operator.h
  std::string name;
  Attributes attributes;
  std::vector<int> inputs;  // tensor ids
  int output = -1;          // tensor id
};

struct Network {
  std::string name;
  std::vector<Tensor> tensors;
  std::vector<Node> nodes;
  std::vector<int> inputs;
  std::vector<int> outputs;

  // Building. Each returns the id of the new tensor.
  int AddInput(std::string name, TensorType type);
  int AddConstant(std::string name, Array value);
  // A result that no node has yet.
  int AddTensor(std::string name, TensorType type);
  // Appends a node, with type and shape of the result inferred. InvalidArgument names the node, the operator and what
  // is wrong with its inputs or attributes. An empty node name becomes "<op>_<position>"; the result bears the node's
  // name.
  absl::StatusOr<int> AddNode(const std::string& op, std::vector<int> inputs, Attributes attributes = {},
                              std::string name = "");

  const Tensor& tensor(int id) const { return tensors[id]; }
  // Node that computes each tensor, or -1.
  std::vector<int> Producers() const;
  // Nodes that read each tensor, each once, in order.
  std::vector<std::vector<int>> Consumers() const;
  bool is_output(int tensor) const;

  // Checks ids, topological order, single producers, known operators, and that every tensor has the type and shape that
  // its operator infers. InvalidArgument names the node or tensor. Cyclic graphs fail here (no topological order).
  absl::Status Validate() const;
  // Readable text, one line a node.
  std::string ToString() const;
};

// InvalidArgument names the first index that is outside. Row by row, element d of the last axis is one of an axis of
// extents[d]; with one extent all are of that axis. Negative ones count from the end.
absl::Status CheckIndices(const Array& indices, const std::vector<int64_t>& extents);

}  // namespace diapason
