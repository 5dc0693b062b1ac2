// Constants of the graph.
#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/check.h"
#include "compiler/graph/onnx/rules/rules.h"
#include "compiler/graph/rank.h"

namespace diapason::onnx_rules {
namespace {

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
  absl::StatusOr<Array> operator()(const OnnxOtherAttribute& other) const { return Refused(other.kind); }
  absl::StatusOr<Array> operator()(const OnnxAttributeReference&) const {
    return Refused("an attribute of no function");
  }
  absl::StatusOr<Array> operator()(const std::shared_ptr<const OnnxGraph>&) const { return Refused("a graph"); }
  static absl::Status Refused(const std::string& what) {
    return absl::InvalidArgumentError(absl::StrCat("a constant of ", what, " is not supported"));
  }
};

absl::Status ImportConstant(NodeImporter& node) {
  if (node.node().attributes.size() != 1) return absl::InvalidArgumentError("it must have exactly one attribute");
  node.Ignore({node.node().attributes.begin()->first});  // whatever its name says, its type is what counts
  ASSIGN_OR_RETURN(Array value, std::visit(ToArray(), node.node().attributes.begin()->second));
  node.Set(0, KnownValue(std::move(value), node.node().name));
  return absl::OkStatus();
}

constexpr int64_t kManyBytes = int64_t{1} << 31;  // more than constants may take

Array Filled(const Array& fill, const std::vector<int64_t>& shape) {
  Array array(fill.dtype, shape);
  size_t bytes = fill.data.size();
  bool zero = std::all_of(fill.data.begin(), fill.data.end(), [](uint8_t byte) { return byte == 0; });
  for (size_t at = 0; !zero && at < array.data.size(); at += bytes) {
    std::memcpy(&array.data[at], fill.data.data(), bytes);
  }
  return array;
}

absl::Status ImportConstantOfShape(NodeImporter& node) {
  ASSIGN_OR_RETURN(std::vector<int64_t> shape, node.KnownInts(0, "the shape"));
  Array fill = FloatArray({}, {0});
  if (node.Has("value")) {
    ASSIGN_OR_RETURN(fill, std::visit(ToArray(), node.node().attributes.at("value")));
  }
  if (fill.elements() != 1) return absl::InvalidArgumentError("value must have one element");
  fill.shape.clear();
  if (shape.size() > kMaxRank) {
    return absl::InvalidArgumentError(
        absl::StrCat("the shape has ", shape.size(), " dimensions, and ", kMaxRank, " are supported"));
  }
  int64_t bytes = BytesOf(fill.dtype);
  for (int64_t extent : shape) {
    if (extent < 0) {
      return absl::InvalidArgumentError(absl::StrCat("the shape ", absl::StrJoin(shape, "x"), " is negative"));
    }
    bytes *= std::min(extent, kManyBytes);
    bytes = std::min(bytes, kManyBytes);
  }
  // Weights of models that were made light. What is too large to be one is expanded when the network runs.
  if (!node.SpendConstantBytes(bytes)) {
    return node.Emit("expand", {KnownValue(std::move(fill), node.node().name)}, {{"shape", shape}});
  }
  node.Set(0, KnownValue(Filled(fill, shape), node.node().name));
  return absl::OkStatus();
}

}  // namespace

std::vector<OnnxRule> Constant() { return {{"Constant", ImportConstant}, {"ConstantOfShape", ImportConstantOfShape}}; }

}  // namespace diapason::onnx_rules
