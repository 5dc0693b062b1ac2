// The reverse of im2col: columns of windows added up where they lie in an image. x is batch x (channels * taps) x
// columns.
#include "absl/strings/str_cat.h"
#include "compiler/graph/ops/emit.h"
#include "compiler/graph/ops/registry.h"

namespace diapason::ops {
namespace {

int64_t Product(const std::vector<int64_t>& list) {
  int64_t product = 1;
  for (int64_t value : list) product *= value;
  return product;
}

absl::StatusOr<std::vector<Window>> WindowsOfFold(const OperatorArgs& args) {
  const std::vector<int64_t> image = args.attributes->Ints("image", {}), kernel = args.attributes->Ints("kernel", {});
  bool fits = !image.empty() && image.size() == kernel.size();
  for (size_t d = 0; fits && d < image.size(); ++d)
    fits = image[d] >= 1 && kernel[d] >= 1 && image[d] < (1 << 24) && kernel[d] < (1 << 16);
  if (!fits) return absl::InvalidArgumentError("image and kernel must be equally many positive numbers");
  return WindowsOf(*args.attributes, image, kernel);
}

absl::StatusOr<TensorType> InferFold(const OperatorArgs& args) {
  RETURN_IF_ERROR(RequireFloat(args));
  RETURN_IF_ERROR(RequireRank(args, 0, 3));
  ASSIGN_OR_RETURN(std::vector<Window> windows, WindowsOfFold(args));
  const std::vector<int64_t>& x = args.inputs[0].shape;
  const int64_t taps = Product(args.attributes->Ints("kernel", {}));
  int64_t columns = 1;
  for (const Window& w : windows) columns *= w.output;
  if (x[1] % taps != 0 || x[2] != columns) {
    return absl::InvalidArgumentError(
        absl::StrCat(args.inputs[0].ToString(), " does not hold windows of ", taps, " points at ", columns, " places"));
  }
  TensorType out{args.inputs[0].dtype, {x[0], x[1] / taps}};
  for (const Window& w : windows) out.shape.push_back(w.input);
  return out;
}

int EmitFold(DagBuilder& b, const OperatorArgs& args, const std::vector<int>& stages) {
  const std::vector<Window> windows = WindowsOfFold(args).value();
  const std::vector<int64_t> kernel = args.attributes->Ints("kernel", {});
  const int64_t taps = Product(kernel);
  return b.Reduce("fold", args.output.shape, kernel, Combiner::kSum, [&](const Vars& i, const Vars& r) {
    Expr tap = IntImm(0), column = IntImm(0), there = IntImm(1, DType::kBool);
    for (size_t d = 0; d < windows.size(); ++d) {
      const Window& w = windows[d];
      const Expr from = Sub(Add(i[2 + d], IntImm(w.before)), Mul(r[d], IntImm(w.dilation)));
      const Expr place = FloorDiv(from, w.stride);
      there = And(there,
                  And(Eq(FloorMod(from, w.stride), IntImm(0)), And(Le(IntImm(0), place), Lt(place, IntImm(w.output)))));
      tap = Add(Mul(tap, IntImm(w.kernel)), r[d]);
      column = Add(Mul(column, IntImm(w.output)), place);
    }
    const Expr value = Wide(b, stages[0], {i[0], Add(Mul(i[1], IntImm(taps)), tap), column});
    return Select(there, value, Literal(0, value->dtype));
  });
}

}  // namespace

std::vector<Operator> Fold() { return {{"fold", OperatorKind::kAnchor, 1, 1, InferFold, EmitFold}}; }

}  // namespace diapason::ops
