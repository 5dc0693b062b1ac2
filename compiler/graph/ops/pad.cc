// Padding by a constant, by the edge, by reflection or by what is at the other end; negative amounts crop, and what is
// cropped is not there for the other end to be padded with.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "compiler/graph/ops/emit.h"
#include "compiler/graph/ops/registry.h"

namespace diapason::ops {
namespace {

// How many elements of an axis are not cropped.
int64_t KeptOf(int64_t extent, int64_t before, int64_t after) {
  return extent + std::min<int64_t>(before, 0) + std::min<int64_t>(after, 0);
}

absl::StatusOr<TensorType> InferPad(const OperatorArgs& args) {
  TensorType out = args.inputs[0];
  size_t rank = out.shape.size();
  std::vector<int64_t> pads = args.attributes->Ints("pads", {});
  if (pads.size() != 2 * rank) {
    return absl::InvalidArgumentError(absl::StrCat("pads must have ", 2 * rank, " numbers, not ", pads.size()));
  }
  std::string mode = args.attributes->String("mode", "constant");
  if (mode != "constant" && mode != "edge" && mode != "reflect" && mode != "wrap") {
    return absl::InvalidArgumentError(absl::StrCat("unknown mode '", mode, "': constant, edge, reflect or wrap"));
  }
  for (size_t d = 0; d < rank; ++d) {
    const int64_t extent = KeptOf(out.shape[d], pads[d], pads[d + rank]);
    if (extent <= 0 && mode != "constant" && (pads[d] > 0 || pads[d + rank] > 0))
      return absl::InvalidArgumentError(absl::StrCat("nothing of axis ", d, " is left to pad it with"));
    if (mode == "reflect" && (pads[d] >= extent || pads[d + rank] >= extent)) {
      return absl::InvalidArgumentError(absl::StrCat("cannot reflect more than ", extent - 1, " elements of axis ", d));
    }
    out.shape[d] += pads[d] + pads[d + rank];
  }
  return out;
}

// Position in an axis of `extent` of a position that may lie up to extent - 1 outside.
Expr Reflected(Expr at, int64_t extent) {
  Expr positive = Max(at, Sub(IntImm(0), at));
  return Min(positive, Sub(IntImm(2 * (extent - 1)), positive));
}

int EmitPad(DagBuilder& b, const OperatorArgs& args, const std::vector<int>& stages) {
  const std::vector<int64_t>& shape = args.inputs[0].shape;
  size_t rank = shape.size();
  std::vector<int64_t> pads = args.attributes->Ints("pads", {});
  std::string mode = args.attributes->String("mode", "constant");
  return b.Compute("pad", args.output.shape, [&](const Vars& i) {
    Vars at = i;
    Expr inside;
    auto require = [&](Expr condition) { inside = inside ? And(inside, condition) : condition; };
    for (size_t d = 0; d < rank; ++d) {
      int64_t before = pads[d], after = pads[d + rank];
      at[d] = Sub(i[d], IntImm(before));
      if (before <= 0 && after <= 0) continue;
      const int64_t kept = KeptOf(shape[d], before, after), first = std::max<int64_t>(0, -before);
      const auto among_kept = [&](const auto& place) { at[d] = Add(place(Sub(at[d], IntImm(first))), IntImm(first)); };
      if (mode == "edge") among_kept([&](const Expr& e) { return Min(Max(e, IntImm(0)), IntImm(kept - 1)); });
      if (mode == "reflect") among_kept([&](const Expr& e) { return Reflected(e, kept); });
      if (mode == "wrap") among_kept([&](const Expr& e) { return FloorMod(e, kept); });
      if (mode != "constant") continue;
      if (before > 0) require(Le(IntImm(before), i[d]));
      if (after > 0) require(Lt(i[d], IntImm(before + shape[d])));
    }
    Expr value = Raw(b, stages[0], at);
    return inside ? Select(inside, value, Literal(args.attributes->Float("value", 0), value->dtype)) : value;
  });
}

bool PadIsView(const OperatorArgs& args) {
  return args.inputs[0].shape == args.output.shape &&
         args.attributes->Ints("pads", {}) == std::vector<int64_t>(2 * args.output.shape.size(), 0);
}

}  // namespace

std::vector<Operator> Pad() { return {{"pad", OperatorKind::kInjective, 1, 1, InferPad, EmitPad, PadIsView}}; }

}  // namespace diapason::ops
