// Part of a tensor: starts, ends and steps along some axes, clamped as in ONNX.
#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "compiler/graph/ops/emit.h"
#include "compiler/graph/ops/registry.h"

namespace diapason::ops {
namespace {

struct Range {
  int64_t start = 0, step = 1, extent = 0;
};

absl::StatusOr<std::vector<Range>> RangesOf(const OperatorArgs& args) {
  const std::vector<int64_t>& shape = args.inputs[0].shape;
  std::vector<int64_t> starts = args.attributes->Ints("starts", {}), ends = args.attributes->Ints("ends", {});
  std::vector<int64_t> first(starts.size());
  std::iota(first.begin(), first.end(), 0);
  std::vector<int64_t> axes = args.attributes->Ints("axes", first);
  std::vector<int64_t> steps = args.attributes->Ints("steps", std::vector<int64_t>(starts.size(), 1));
  if (ends.size() != starts.size() || axes.size() != starts.size() || steps.size() != starts.size()) {
    return absl::InvalidArgumentError("starts, ends, axes and steps must have the same length");
  }
  std::vector<Range> ranges;
  for (int64_t extent : shape) ranges.push_back({0, 1, extent});
  for (size_t k = 0; k < starts.size(); ++k) {
    ASSIGN_OR_RETURN(int64_t axis, NormalAxis(axes[k], shape.size()));
    int64_t extent = shape[axis], step = steps[k];
    if (step == 0) return absl::InvalidArgumentError("a step must not be 0");
    // A step backwards may end before the first element, at -1.
    int64_t low = step > 0 ? 0 : -1, high = step > 0 ? extent : extent - 1;
    auto clamp = [&](int64_t at) { return std::clamp(at < 0 ? std::max(at, -extent - 1) + extent : at, low, high); };
    int64_t start = std::max<int64_t>(clamp(starts[k]), 0), end = clamp(ends[k]);
    int64_t count = step > 0 ? (end - start + step - 1) / step : (start - end - step - 1) / -step;
    ranges[axis] = {start, step, std::max<int64_t>(count, 0)};
  }
  return ranges;
}

absl::StatusOr<TensorType> InferSlice(const OperatorArgs& args) {
  ASSIGN_OR_RETURN(std::vector<Range> ranges, RangesOf(args));
  TensorType out{args.inputs[0].dtype, {}};
  for (const Range& range : ranges) out.shape.push_back(range.extent);
  return out;
}

int EmitSlice(DagBuilder& b, const OperatorArgs& args, const std::vector<int>& stages) {
  std::vector<Range> ranges = RangesOf(args).value();
  return b.Compute("slice", args.output.shape, [&](const Vars& i) {
    Vars at;
    for (size_t d = 0; d < i.size(); ++d) at.push_back(Add(Mul(i[d], IntImm(ranges[d].step)), IntImm(ranges[d].start)));
    return Raw(b, stages[0], at);
  });
}

}  // namespace

std::vector<Operator> Slice() { return {{"slice", OperatorKind::kInjective, 1, 1, InferSlice, EmitSlice}}; }

}  // namespace diapason::ops
