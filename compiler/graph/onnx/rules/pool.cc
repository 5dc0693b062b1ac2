// Pools over windows of one to three dimensions, and over whole images.
#include <string>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/graph/onnx/rules/composer.h"
#include "compiler/graph/onnx/rules/rules.h"
#include "compiler/graph/onnx/rules/window.h"

namespace diapason::onnx_rules {
namespace {

absl::Status ImportPool(NodeImporter& node, const char* op) {
  ASSIGN_OR_RETURN(ImportValue x, node.Input(0));
  std::vector<int64_t> kernel = node.Ints("kernel_shape", {});
  ASSIGN_OR_RETURN(Attributes attributes, WindowAttributes(node, x, kernel));
  attributes.Set("kernel", kernel.size() == 1 ? TwoDimensional(kernel, 1) : kernel);
  if (node.Int("count_include_pad", 0) != 0) attributes.Set("count_include_pad", int64_t{1});
  ASSIGN_OR_RETURN(ImportValue image, WithHeight(node, x));
  bool volume = kernel.size() == 3;
  return EmitImage(node, x, volume ? std::string(op) + "3d" : op, {image}, std::move(attributes));
}

// Result 1 are the positions of the maxima.
absl::Status MaxPool(NodeImporter& node) {
  const int64_t column_major = node.Int("storage_order", 0);
  if (!node.IsRead(1)) return ImportPool(node, "max_pool");
  Composer c(node);
  ImportValue x = c.Input(0);
  const std::vector<int64_t> kernel = node.Ints("kernel_shape", {});
  ASSIGN_OR_RETURN(Attributes attributes, WindowAttributes(node, x, kernel));
  attributes.Set("kernel", kernel.size() == 1 ? TwoDimensional(kernel, 1) : kernel);
  ASSIGN_OR_RETURN(ImportValue image, WithHeight(node, x));
  const std::string volume = kernel.size() == 3 ? "3d" : "";
  auto pooled = [&](const std::string& op, const Attributes& a) {
    ImportValue y = c.Op(op, {image}, a);
    return RankOf(x) == 3 ? c.Squeeze(y, {2}) : y;
  };
  if (node.IsRead(0)) c.Set(0, pooled("max_pool" + volume, attributes));
  attributes.Set("column_major", column_major);
  c.Set(1, pooled(volume.empty() ? "max_pool_indices" : "max_pool3d_indices", attributes));
  return c.status();
}

ImportValue Power(Composer& c, const ImportValue& x, int64_t p) {
  ImportValue size = c.Op("abs", {x});
  return p == 1 ? size : p == 2 ? c.Mul(x, x) : c.Op("pow", {size, c.Scalar(static_cast<double>(p), x)});
}
ImportValue Root(Composer& c, const ImportValue& sum, int64_t p) {
  if (p == 1) return sum;
  return p == 2 ? c.Op("sqrt", {sum}) : c.Op("pow", {sum, c.Scalar(1 / static_cast<double>(p), sum)});
}

// (sum of |x|^p)^(1/p).
absl::Status LpPool(NodeImporter& node) {
  Composer c(node);
  ImportValue x = c.Input(0);
  const int64_t p = node.Int("p", 2);
  if (p < 1) return absl::InvalidArgumentError(absl::StrCat("p must be at least 1, not ", p));
  const std::vector<int64_t> kernel = node.Ints("kernel_shape", {});
  ASSIGN_OR_RETURN(Attributes attributes, WindowAttributes(node, x, kernel));
  attributes.Set("kernel", kernel.size() == 1 ? TwoDimensional(kernel, 1) : kernel);
  ImportValue powers = Power(c, x, p);
  if (RankOf(x) == 3) powers = c.Unsqueeze(powers, {2});
  ImportValue sum = c.Op(kernel.size() == 3 ? "sum_pool3d" : "sum_pool", {powers}, std::move(attributes));
  if (RankOf(x) == 3) sum = c.Squeeze(sum, {2});
  return c.Finish(Root(c, sum, p));
}

absl::Status GlobalLpPool(NodeImporter& node) {
  Composer c(node);
  ImportValue x = c.Input(0);
  const int64_t p = node.Int("p", 2);
  if (p < 1 || RankOf(x) < 3)
    return absl::InvalidArgumentError(absl::StrCat("p=", p, " does not fit ", x->type.ToString()));
  std::vector<int64_t> axes;
  for (int64_t d = 2; d < RankOf(x); ++d) axes.push_back(d);
  return c.Finish(Root(c, c.Op("reduce_sum", {Power(c, x, p)}, {{"axes", axes}, {"keepdims", int64_t{1}}}), p));
}

absl::Status AveragePool(NodeImporter& node) { return ImportPool(node, "avg_pool"); }

absl::Status ImportGlobal(NodeImporter& node, const char* op) {
  ASSIGN_OR_RETURN(ImportValue x, node.Input(0));
  int64_t rank = static_cast<int64_t>(x->type.shape.size());
  if (rank < 3) {
    return absl::InvalidArgumentError(absl::StrCat("input 0 must be images, not ", x->type.ToString()));
  }
  std::vector<int64_t> axes;
  for (int64_t d = 2; d < rank; ++d) axes.push_back(d);
  return node.Emit(op, {x}, {{"axes", axes}, {"keepdims", int64_t{1}}});
}

absl::Status GlobalMaxPool(NodeImporter& node) { return ImportGlobal(node, "reduce_max"); }
absl::Status GlobalAveragePool(NodeImporter& node) { return ImportGlobal(node, "reduce_mean"); }

}  // namespace

std::vector<OnnxRule> Pool() {
  return {{"MaxPool", MaxPool},
          {"LpPool", LpPool},
          {"GlobalLpPool", GlobalLpPool},
          {"AveragePool", AveragePool},
          {"GlobalMaxPool", GlobalMaxPool},
          {"GlobalAveragePool", GlobalAveragePool}};
}

}  // namespace diapason::onnx_rules
