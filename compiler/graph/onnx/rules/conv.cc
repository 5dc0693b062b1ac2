// Convolution, and its transpose, over one to three dimensions.
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/check.h"
#include "compiler/graph/onnx/rules/composer.h"
#include "compiler/graph/onnx/rules/rules.h"
#include "compiler/graph/onnx/rules/window.h"

namespace diapason::onnx_rules {
namespace {

using Ints = Composer::Ints;

// The spatial extents of the weights, which kernel_shape, if it is given, must repeat.
absl::StatusOr<std::vector<int64_t>> KernelOf(NodeImporter& node, const ImportValue& x, const ImportValue& w) {
  const std::vector<int64_t>& weights = w->type.shape;
  if (weights.size() < 3 || weights.size() != x->type.shape.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("weights of ", w->type.ToString(), " do not fit images of ", x->type.ToString()));
  }
  std::vector<int64_t> kernel(weights.begin() + 2, weights.end());
  std::vector<int64_t> given = node.Ints("kernel_shape", kernel);
  if (given == kernel) return kernel;
  return absl::InvalidArgumentError(absl::StrCat("kernel_shape is ", absl::StrJoin(given, "x"), ", but the weights ",
                                                 "are for ", absl::StrJoin(kernel, "x")));
}

// Weights or a bias. PyTorch's exporter leaves those of a bfloat16 model in float32 where it has folded a normalization
// into them, which ONNX does not allow.
absl::StatusOr<ImportValue> Parameter(NodeImporter& node, int input, const ImportValue& x) {
  ASSIGN_OR_RETURN(ImportValue parameter, node.Input(input));
  const bool narrows = parameter->value && IsNarrowFloat(x->type.dtype) && parameter->type.dtype == DType::kFloat32;
  return narrows ? node.Add("cast", {parameter}, {{"to", NameOf(x->type.dtype)}}) : parameter;
}

absl::Status ImportConv(NodeImporter& node) {
  ASSIGN_OR_RETURN(ImportValue x, node.Input(0));
  ASSIGN_OR_RETURN(ImportValue w, Parameter(node, 1, x));
  ASSIGN_OR_RETURN(std::vector<int64_t> kernel, KernelOf(node, x, w));
  ASSIGN_OR_RETURN(Attributes attributes, WindowAttributes(node, x, kernel));
  attributes.Set("group", node.Int("group", 1));
  ASSIGN_OR_RETURN(ImportValue image, WithHeight(node, x));
  ASSIGN_OR_RETURN(ImportValue filter, WithHeight(node, w));
  std::vector<ImportValue> inputs = {image, filter};
  if (node.HasInput(2)) {
    ASSIGN_OR_RETURN(ImportValue bias, Parameter(node, 2, x));
    inputs.push_back(bias);
  }
  return EmitImage(node, x, kernel.size() == 3 ? "conv3d" : "conv2d", inputs, std::move(attributes));
}

// auto_pad and output_shape say how large the result is, and so how much is cut off.
absl::Status FitOutput(NodeImporter& node, const std::vector<int64_t>& image, const std::vector<int64_t>& kernel,
                       Attributes& a) {
  size_t rank = kernel.size();
  std::string same = node.String("auto_pad", "NOTSET");
  std::vector<int64_t> wanted = node.Ints("output_shape", {}), strides = a.Ints("strides", {});
  std::vector<int64_t> dilations = a.Ints("dilations", {}), extra = a.Ints("output_padding", {});
  if (same == "VALID") a.Set("pads", Ints(2 * rank, 0));
  bool by_stride = same == "SAME_UPPER" || same == "SAME_LOWER";
  if (wanted.empty() && !by_stride) return absl::OkStatus();
  if (wanted.size() == rank + 2) wanted.erase(wanted.begin(), wanted.begin() + 2);
  if (!wanted.empty() && wanted.size() != rank) {
    return absl::InvalidArgumentError(absl::StrCat("output_shape must have ", rank, " numbers, not ", wanted.size()));
  }
  Ints pads(2 * rank);
  for (size_t d = 0; d < rank; ++d) {
    int64_t output = wanted.empty() ? image[d] * strides[d] : wanted[d];
    int64_t total = strides[d] * (image[d] - 1) + extra[d] + (kernel[d] - 1) * dilations[d] + 1 - output;
    // A result that is larger than all taps reach ends in zeros.
    if (total < 0) {
      extra[d] -= total;
      total = 0;
    }
    pads[d] = same == "SAME_UPPER" ? total / 2 : total - total / 2;
    pads[d + rank] = total - pads[d];
  }
  a.Set("pads", pads);
  a.Set("output_padding", extra);
  return absl::OkStatus();
}

absl::Status ImportConvTranspose(NodeImporter& node) {
  Composer c(node);
  ImportValue x = c.Input(0);
  RETURN_IF_ERROR(c.status());
  ASSIGN_OR_RETURN(ImportValue w, Parameter(node, 1, x));
  ASSIGN_OR_RETURN(std::vector<int64_t> kernel, KernelOf(node, x, w));
  size_t rank = kernel.size();
  std::vector<int64_t> image(x->type.shape.begin() + 2, x->type.shape.end());
  Attributes a{{"strides", node.Ints("strides", Ints(rank, 1))},
               {"dilations", node.Ints("dilations", Ints(rank, 1))},
               {"pads", node.Ints("pads", Ints(2 * rank, 0))},
               {"output_padding", node.Ints("output_padding", Ints(rank, 0))},
               {"group", node.Int("group", 1)}};
  for (const char* name : {"strides", "dilations", "output_padding"}) {
    if (a.Ints(name, {}).size() == rank) continue;
    return absl::InvalidArgumentError(absl::StrCat(name, " must have ", rank, " numbers"));
  }
  RETURN_IF_ERROR(FitOutput(node, image, kernel, a));
  std::vector<ImportValue> inputs = {x, w};
  if (node.HasInput(2)) {
    ASSIGN_OR_RETURN(ImportValue bias, Parameter(node, 2, x));
    inputs.push_back(bias);
  }
  return c.Finish(c.Op("conv_transpose", inputs, std::move(a)));
}

}  // namespace

std::vector<OnnxRule> Conv() { return {{"Conv", ImportConv}, {"ConvTranspose", ImportConvTranspose}}; }

}  // namespace diapason::onnx_rules
