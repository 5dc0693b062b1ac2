// Reductions over axes. Those of ReduceSum are an input from opset 13 on, those of the others from opset 18 on.
#include <cmath>
#include <limits>

#include "base/check.h"
#include "compiler/graph/onnx/rules/composer.h"
#include "compiler/graph/onnx/rules/rules.h"

namespace diapason::onnx_rules {
namespace {

// What is done to the elements before and to the result after the reduction.
struct Reduction {
  const char* op;
  int64_t axes_input_opset = 18;
  ImportValue (*before)(Composer& c, const ImportValue& x) = nullptr;
  ImportValue (*after)(Composer& c, const ImportValue& x) = nullptr;
};

ImportValue Abs(Composer& c, const ImportValue& x) { return c.Op("abs", {x}); }
ImportValue Square(Composer& c, const ImportValue& x) { return c.Mul(x, x); }
ImportValue SquareRoot(Composer& c, const ImportValue& x) {
  return c.Cast(c.Op("sqrt", {IsFloat(x->type.dtype) ? x : c.Cast(x, DType::kFloat64)}), x->type.dtype);
}
ImportValue Logarithm(Composer& c, const ImportValue& x) {
  return c.Cast(c.Op("log", {IsFloat(x->type.dtype) ? x : c.Cast(x, DType::kFloat64)}), x->type.dtype);
}

struct Axes {
  bool none = false;  // nothing is reduced
  Attributes attributes;
};

absl::StatusOr<Axes> AxesOf(NodeImporter& node, int64_t input_opset) {
  ASSIGN_OR_RETURN(NodeImporter::OptionalInts axes, node.IntsByOpset("axes", input_opset, 1));
  bool noop = node.Int("noop_with_empty_axes", 0) != 0;
  Axes result{axes.values.empty() && noop, {{"keepdims", node.Int("keepdims", 1)}}};
  if (!axes.values.empty()) result.attributes.Set("axes", axes.values);
  return result;
}

absl::Status ImportReduce(NodeImporter& node, const Reduction& reduction) {
  Composer c(node);
  ImportValue x = c.Input(0);
  ASSIGN_OR_RETURN(Axes axes, AxesOf(node, reduction.axes_input_opset));
  if (reduction.before) x = reduction.before(c, x);
  if (!axes.none) x = c.Op(reduction.op, {x}, axes.attributes);
  if (reduction.after) x = reduction.after(c, x);
  return c.Finish(x);
}

absl::Status ReduceL1(NodeImporter& node) { return ImportReduce(node, {"reduce_sum", 18, Abs}); }
absl::Status ReduceL2(NodeImporter& node) { return ImportReduce(node, {"reduce_sum", 18, Square, SquareRoot}); }
absl::Status ReduceLogSum(NodeImporter& node) { return ImportReduce(node, {"reduce_sum", 18, nullptr, Logarithm}); }
absl::Status ReduceMax(NodeImporter& node) { return ImportReduce(node, {"reduce_max"}); }
absl::Status ReduceMean(NodeImporter& node) { return ImportReduce(node, {"reduce_mean"}); }
absl::Status ReduceMin(NodeImporter& node) { return ImportReduce(node, {"reduce_min"}); }
absl::Status ReduceProd(NodeImporter& node) { return ImportReduce(node, {"reduce_prod"}); }
absl::Status ReduceSum(NodeImporter& node) { return ImportReduce(node, {"reduce_sum", 13}); }
absl::Status ReduceSumSquare(NodeImporter& node) { return ImportReduce(node, {"reduce_sum", 18, Square}); }

double LargestFinite(DType dtype) {
  if (dtype == DType::kFloat16) return 65504;
  return dtype == DType::kBfloat16 ? std::ldexp(255.0 / 128, 127) : std::numeric_limits<float>::max();
}

// The largest exponent is taken out, so that no power overflows; as a finite number, since the difference of two
// infinities would be none. In float32 for narrower types: the logarithm and that exponent may nearly cancel.
absl::Status ReduceLogSumExp(NodeImporter& node) {
  Composer c(node);
  ImportValue x = c.Input(0);
  ASSIGN_OR_RETURN(Axes axes, AxesOf(node, 18));
  if (axes.none) return c.Finish(c.Op("identity", {x}));
  const DType type = x->type.dtype;
  if (type == DType::kFloat16 || type == DType::kBfloat16) x = c.Cast(x, DType::kFloat32);
  Attributes kept = axes.attributes;
  kept.Set("keepdims", int64_t{1});
  ImportValue top = c.Op("reduce_max", {x}, kept);
  if (c.ok() && IsFloat(top->type.dtype)) {
    const double most = LargestFinite(top->type.dtype);
    top = c.Op("clip", {top}, {{"min", -most}, {"max", most}});
  }
  ImportValue sum = c.Op("reduce_sum", {c.Op("exp", {c.Sub(x, top)})}, axes.attributes);
  ImportValue flat = sum->type.shape == top->type.shape ? top : c.Reshape(top, sum->type.shape);
  return c.Finish(c.Cast(c.Add(c.Op("log", {sum}), flat), type));
}

}  // namespace

std::vector<OnnxRule> Reduce() {
  return {{"ReduceL1", ReduceL1},
          {"ReduceL2", ReduceL2},
          {"ReduceLogSum", ReduceLogSum},
          {"ReduceMax", ReduceMax},
          {"ReduceMean", ReduceMean},
          {"ReduceMin", ReduceMin},
          {"ReduceProd", ReduceProd},
          {"ReduceSum", ReduceSum},
          {"ReduceSumSquare", ReduceSumSquare},
          {"ReduceLogSumExp", ReduceLogSumExp}};
}

}  // namespace diapason::onnx_rules
