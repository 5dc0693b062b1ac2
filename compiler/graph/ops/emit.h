// What the operators share: loads in the arithmetic type, literals, broadcasting, axes, image geometry.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/check.h"
#include "compiler/graph/operator.h"
#include "compiler/tensor/compute_dag.h"
#include "compiler/tensor/expr.h"

namespace diapason::ops {

using Vars = std::vector<Expr>;

// An element of a stage in the type in which we calculate: float32 for narrow floats, else the stage's own.
Expr Wide(DagBuilder& builder, int stage, Vars indices);
// An element as it is stored: for operators that move data.
Expr Raw(DagBuilder& builder, int stage, Vars indices);
// An index as int64, with negative ones counted from the end of an axis of that extent.
Expr FromEnd(const Expr& index, int64_t extent);
// An element of a tensor of indices, FromEnd, limited to places that exist unless the indices are constants, which
// Network::Validate checks.
Expr PlaceOnAxis(DagBuilder& builder, int indices, Vars at, int64_t extent);
// A literal of any type.
Expr Literal(double value, DType dtype);
// The smaller and the larger of two numbers; NaN if one of them is, as in ONNX Runtime and NumPy.
Expr Minimum(Expr a, Expr b);
Expr Maximum(Expr a, Expr b);
// The element of a tensor of `from` that stands at `index` of a result of rank index.size() it is broadcast to.
Vars BroadcastIndex(const Vars& index, const std::vector<int64_t>& from);
// numpy's rule for two shapes.
absl::StatusOr<std::vector<int64_t>> BroadcastShapes(const std::vector<int64_t>& a, const std::vector<int64_t>& b);

// Counts negative axes from the end. InvalidArgument if out of [-rank, rank).
absl::StatusOr<int64_t> NormalAxis(int64_t axis, size_t rank);
// The same for a list, sorted; an axis named twice is InvalidArgument.
absl::StatusOr<std::vector<int64_t>> NormalAxes(const std::vector<int64_t>& axes, size_t rank);
// NormalAxis on attributes that `infer` accepted.
int64_t AxisOf(const OperatorArgs& args, const std::string& name, int64_t fallback, size_t rank);

// Neighbouring axes [first, last) of a tensor that are reduced, and the others, which are its rows.
struct ReducedAxes {
  int64_t first, last;
  std::vector<int64_t> Rows(std::vector<int64_t> shape) const;
  std::vector<int64_t> Extents(const std::vector<int64_t>& shape) const {
    return {shape.begin() + first, shape.begin() + last};
  }
  // The row of an element, and the element r of a row.
  Vars RowOf(Vars index) const;
  Vars Element(Vars row, const Vars& r) const;
};

// Of the type of the first input.
absl::Status RequireFloat(const OperatorArgs& args);
// All inputs, of one type.
absl::Status RequireFloats(const OperatorArgs& args);
absl::Status RequireProducts(const OperatorArgs& args);  // float, or int32 (of quantised tensors)
absl::Status RequireInteger(const OperatorArgs& args);
absl::Status RequireNumber(const OperatorArgs& args);  // no bool
absl::Status RequireBool(const OperatorArgs& args);
absl::Status RequireRank(const OperatorArgs& args, size_t input, size_t rank);

// Positions of the dimensions of an image tensor.
struct ImageAxes {
  int n, c, h, w;
  std::vector<int> spatial() const { return {h, w}; }
};
absl::StatusOr<ImageAxes> ImageAxesOf(const Attributes& attributes);  // of "layout"

// How a window slides over one image dimension.
struct Window {
  int64_t input = 1, kernel = 1, stride = 1, dilation = 1, before = 0, after = 0;
  int64_t output = 1;
  // Last position read, plus one, counted in padded coordinates.
  int64_t reach() const { return (output - 1) * stride + (kernel - 1) * dilation + 1; }
  bool padded() const { return before > 0 || reach() > input; }
};
// The windows of all spatial dimensions, with the output extents computed. InvalidArgument for attributes of wrong
// length or sign, or a kernel that does not fit the input.
absl::StatusOr<std::vector<Window>> WindowsOf(const Attributes& attributes, const std::vector<int64_t>& image,
                                              const std::vector<int64_t>& kernel);

// A stage "pad" in which the windows, which slide along `axes`, read inside bounds: `fill` outside the image, in the
// type of `stage`. Returns `stage` itself if no window reaches outside.
int EmitImagePad(DagBuilder& builder, int stage, const std::vector<int>& axes, const std::vector<Window>& windows,
                 Expr fill);

}  // namespace diapason::ops
