// Constants of the graph.
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "compiler/graph/onnx/rules/rules.h"
#include "compiler/tensor/check.h"

namespace diapason::onnx_rules {
namespace {

// Larger ones are expanded when the network runs (or is optimised).
constexpr int64_t kSmallElements = 4096;

Array FloatArray(std::vector<int64_t> shape, const std::vector<double>& values) {
  Array array(DType::kFloat32, std::move(shape));
  for (size_t i = 0; i < values.size(); ++i) array.set(static_cast<int64_t>(i), values[i]);
  return array;
}

Array IntArray(std::vector<int64_t> shape, const std::vector<int64_t>& values) {
  Array array(DType::kInt64, std::move(shape));
  for (size_t i = 0; i < values.size(); ++i) array.set_int(static_cast<int64_t>(i), values[i]);
  return array;
}

// The one attribute of many that a Constant has, as an array.
struct ToArray {
  absl::StatusOr<Array> operator()(int64_t value) const { return IntArray({}, {value}); }
  absl::StatusOr<Array> operator()(double value) const { return FloatArray({}, {value}); }
  absl::StatusOr<Array> operator()(const std::vector<int64_t>& values) const {
    return IntArray({static_cast<int64_t>(values.size())}, values);
  }
  absl::StatusOr<Array> operator()(const std::vector<double>& values) const {
    return FloatArray({static_cast<int64_t>(values.size())}, values);
  }
  absl::StatusOr<Array> operator()(const std::shared_ptr<const Array>& value) const { return *value; }
  absl::StatusOr<Array> operator()(const std::string&) const { return Refused("text"); }
  absl::StatusOr<Array> operator()(const std::vector<std::string>&) const { return Refused("text"); }
  absl::StatusOr<Array> operator()(const OnnxOtherAttribute&) const { return Refused("a sparse tensor"); }
  static absl::Status Refused(const std::string& what) {
    return absl::InvalidArgumentError(absl::StrCat("a constant of ", what, " is not supported"));
  }
};

absl::Status ImportConstant(NodeImporter& node) {
  if (node.node().attributes.size() != 1) return absl::InvalidArgumentError("it must have exactly one attribute");
  ASSIGN_OR_RETURN(Array value, std::visit(ToArray(), node.node().attributes.begin()->second));
  node.Set(0, KnownValue(std::move(value), node.node().name));
  return absl::OkStatus();
}

absl::Status ImportConstantOfShape(NodeImporter& node) {
  ASSIGN_OR_RETURN(std::vector<int64_t> shape, node.KnownInts(0, "the shape"));
  Array fill = FloatArray({}, {0});
  if (node.Has("value")) {
    ASSIGN_OR_RETURN(fill, std::visit(ToArray(), node.node().attributes.at("value")));
  }
  if (fill.elements() != 1) return absl::InvalidArgumentError("value must have one element");
  fill.shape.clear();
  int64_t elements = 1;
  for (int64_t extent : shape) {
    if (extent < 0) {
      return absl::InvalidArgumentError(absl::StrCat("the shape ", absl::StrJoin(shape, "x"), " is negative"));
    }
    if (elements <= kSmallElements) elements *= std::min(extent, kSmallElements + 1);
  }
  if (elements > kSmallElements) {
    return node.Emit("expand", {KnownValue(std::move(fill), node.node().name)}, {{"shape", shape}});
  }
  Array array(fill.dtype, shape);
  int bytes = BytesOf(fill.dtype);
  for (int64_t i = 0; i < elements * bytes; ++i) array.data[i] = fill.data[i % bytes];
  node.Set(0, KnownValue(std::move(array), node.node().name));
  return absl::OkStatus();
}

}  // namespace

std::vector<OnnxRule> Constant() { return {{"Constant", ImportConstant}, {"ConstantOfShape", ImportConstantOfShape}}; }

}  // namespace diapason::onnx_rules
