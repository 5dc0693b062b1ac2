// A chain of our operators for one node of ONNX. Errors are kept: after the first one, operations do nothing and return
// their first input, and Result() and Finish() return it. So a rule of ten steps reads like a formula.
#pragma once

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compiler/graph/onnx/node_importer.h"

namespace diapason::onnx_rules {

inline int64_t RankOf(const ImportValue& x) { return static_cast<int64_t>(x->type.shape.size()); }

// An axis of x counted from the front; InvalidArgument if it is outside.
absl::StatusOr<int64_t> NormalAxis(int64_t axis, const ImportValue& x);

// diapason::CheckIndices of indices that are known; others are a matter of those who feed the network.
absl::Status CheckIndices(const ImportValue& indices, const std::vector<int64_t>& extents);

class Composer {
 public:
  using Ints = std::vector<int64_t>;

  explicit Composer(NodeImporter& node) : node_(node) {}

  bool ok() const { return status_.ok(); }
  const absl::Status& status() const { return status_; }
  // Keeps the first error, which may be the caller's own.
  void Fail(absl::Status status) {
    if (status_.ok()) status_ = std::move(status);
  }

  // Input i of the node; a missing one is an error.
  ImportValue Input(int i);
  ImportValue Op(const std::string& op, const std::vector<ImportValue>& inputs, Attributes attributes = {});

  // NormalAxis; 0 after an error.
  int64_t Axis(int64_t axis, const ImportValue& x);

  // Constants. A scalar of the type of `like`.
  ImportValue Scalar(double value, DType dtype);
  ImportValue Scalar(double value, const ImportValue& like) { return Scalar(value, like->type.dtype); }
  ImportValue Indices(const Ints& values);  // a list of int64
  ImportValue Constant(Array value);

  ImportValue Add(const ImportValue& a, const ImportValue& b) { return Op("add", {a, b}); }
  ImportValue Sub(const ImportValue& a, const ImportValue& b) { return Op("sub", {a, b}); }
  ImportValue Mul(const ImportValue& a, const ImportValue& b) { return Op("mul", {a, b}); }
  ImportValue Div(const ImportValue& a, const ImportValue& b) { return Op("div", {a, b}); }
  ImportValue Matmul(const ImportValue& a, const ImportValue& b) { return Op("matmul", {a, b}); }
  ImportValue Reshape(const ImportValue& x, const Ints& shape) { return Op("reshape", {x}, {{"shape", shape}}); }
  ImportValue Transpose(const ImportValue& x, const Ints& perm) { return Op("transpose", {x}, {{"perm", perm}}); }
  ImportValue Unsqueeze(const ImportValue& x, const Ints& axes) { return Op("unsqueeze", {x}, {{"axes", axes}}); }
  ImportValue Squeeze(const ImportValue& x, const Ints& axes) { return Op("squeeze", {x}, {{"axes", axes}}); }
  ImportValue Expand(const ImportValue& x, const Ints& shape);
  ImportValue Concat(const std::vector<ImportValue>& parts, int64_t axis);
  // [start, end) of one axis.
  ImportValue Slice(const ImportValue& x, int64_t axis, int64_t start, int64_t end, int64_t step = 1);
  // x itself where it has the type already.
  ImportValue Cast(const ImportValue& x, DType dtype);

  // Sets result i, and says what became of the chain.
  void Set(int i, const ImportValue& value);
  absl::Status Finish(const ImportValue& result) {
    Set(0, result);
    return status_;
  }

 private:
  NodeImporter& node_;
  absl::Status status_;
  std::set<const ImportedTensor*> unnamed_;  // made here and not yet a result
};

// A result of a body, or an element of a sequence, as result `result` of the node; `narrow` is its
// ImportedTensor::narrow.
void HandOn(Composer& c, int result, const ImportValue& value, const std::string& narrow);

}  // namespace diapason::onnx_rules
