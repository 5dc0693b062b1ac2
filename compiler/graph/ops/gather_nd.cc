// Elements and slices chosen by tensors of indices, and the reverse: elements and slices replaced. Negative indices
// count from the end; of those outside, which the runtime rejects in inputs of a network, computed ones choose the
// first or last element and replace nothing. Of several updates of one place the last one counts, unless they are
// combined.
#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "compiler/graph/ops/emit.h"
#include "compiler/graph/ops/registry.h"

namespace diapason::ops {
namespace {

absl::Status RequireIndices(const OperatorArgs& args) {
  DType type = args.inputs[1].dtype;
  if (type == DType::kInt64 || type == DType::kInt32) return absl::OkStatus();
  return absl::InvalidArgumentError("indices must be int32 or int64");
}

// Random inputs of a task lie inside the longest axis that is chosen from.
void LimitIndices(DagBuilder& b, int stage, int64_t extent) {
  Stage& indices = b.stage(stage);
  if (!indices.placeholder) return;
  indices.valid_min = -extent;
  indices.valid_max = extent - 1;
}

absl::StatusOr<TensorType> InferGatherElements(const OperatorArgs& args) {
  RETURN_IF_ERROR(RequireIndices(args));
  const std::vector<int64_t>&x = args.inputs[0].shape, &indices = args.inputs[1].shape;
  RETURN_IF_ERROR(RequireRank(args, 1, x.size()));
  ASSIGN_OR_RETURN(int64_t axis, NormalAxis(args.attributes->Int("axis", 0), x.size()));
  for (size_t d = 0; d < x.size(); ++d) {
    if (static_cast<int64_t>(d) == axis || indices[d] <= x[d]) continue;
    return absl::InvalidArgumentError(absl::StrCat("indices of ", args.inputs[1].ToString(), " are larger than ",
                                                   args.inputs[0].ToString(), " in axis ", d));
  }
  return TensorType{args.inputs[0].dtype, indices};
}

int EmitGatherElements(DagBuilder& b, const OperatorArgs& args, const std::vector<int>& stages) {
  const std::vector<int64_t>& x = args.inputs[0].shape;
  int64_t axis = AxisOf(args, "axis", 0, x.size());
  LimitIndices(b, stages[1], x[axis]);
  return b.Compute("gather_elements", args.output.shape, [&](const Vars& i) {
    Vars at = i;
    at[axis] = PlaceOnAxis(b, stages[1], i, x[axis]);
    return Raw(b, stages[0], at);
  });
}

// indices: batch..., q..., k -> result: batch..., q..., the axes of x behind batch and k.
absl::StatusOr<TensorType> InferGatherNd(const OperatorArgs& args) {
  RETURN_IF_ERROR(RequireIndices(args));
  const std::vector<int64_t>&x = args.inputs[0].shape, &indices = args.inputs[1].shape;
  int64_t batch = args.attributes->Int("batch_dims", 0), rank = static_cast<int64_t>(x.size());
  if (indices.empty() || batch < 0 || batch >= static_cast<int64_t>(indices.size()) || batch + indices.back() > rank ||
      indices.back() < 1 || !std::equal(x.begin(), x.begin() + batch, indices.begin())) {
    return absl::InvalidArgumentError(absl::StrCat("indices of ", args.inputs[1].ToString(), " do not fit ",
                                                   args.inputs[0].ToString(), " with ", batch, " batch dimensions"));
  }
  TensorType out{args.inputs[0].dtype, {indices.begin(), indices.end() - 1}};
  out.shape.insert(out.shape.end(), x.begin() + batch + indices.back(), x.end());
  return out;
}

int EmitGatherNd(DagBuilder& b, const OperatorArgs& args, const std::vector<int>& stages) {
  const std::vector<int64_t>&x = args.inputs[0].shape, &indices = args.inputs[1].shape;
  int64_t batch = args.attributes->Int("batch_dims", 0);
  size_t chosen = indices.size() - 1;  // axes of the result that choose
  LimitIndices(b, stages[1], *std::max_element(x.begin() + batch, x.begin() + batch + indices.back()));
  return b.Compute("gather_nd", args.output.shape, [&](const Vars& i) {
    Vars at(i.begin(), i.begin() + batch), where(i.begin(), i.begin() + chosen);
    where.push_back(IntImm(0));
    for (int64_t k = 0; k < indices.back(); ++k) {
      where.back() = IntImm(k);
      at.push_back(PlaceOnAxis(b, stages[1], where, x[batch + k]));
    }
    at.insert(at.end(), i.begin() + chosen, i.end());
    return Raw(b, stages[0], at);
  });
}

// How an update meets what is there. "none": it takes its place.
absl::StatusOr<Combiner> ReductionOf(const Attributes& attributes) {
  std::string reduction = attributes.String("reduction", "none");
  if (reduction == "none") return Combiner::kNone;
  if (reduction == "add") return Combiner::kSum;
  if (reduction == "mul") return Combiner::kProd;
  if (reduction == "max") return Combiner::kMax;
  if (reduction == "min") return Combiner::kMin;
  return absl::InvalidArgumentError(absl::StrCat("unknown reduction '", reduction, "': none, add, mul, max or min"));
}

absl::Status CheckUpdates(const OperatorArgs& args) {
  RETURN_IF_ERROR(RequireIndices(args));
  RETURN_IF_ERROR(ReductionOf(*args.attributes).status());
  if (args.inputs[2].dtype == args.inputs[0].dtype) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("updates must be ", NameOf(args.inputs[0].dtype), ", not ", NameOf(args.inputs[2].dtype)));
}

// One place of the result and the updates r of it.
struct Updates {
  std::vector<int64_t> extents;                             // of r
  std::function<Expr(const Vars& i)> reaches;               // unless null: whether there are updates of place i
  std::function<Expr(const Vars& i, const Vars& r)> hits;   // whether update r is of place i
  std::function<Expr(const Vars& i, const Vars& r)> value;  // update r, read only where it hits
};

int EmitScatter(DagBuilder& b, const OperatorArgs& args, int x, const Updates& updates) {
  Combiner combiner = ReductionOf(*args.attributes).value();
  const std::vector<int64_t>& shape = args.output.shape;
  // Nothing is read of updates and indices elsewhere, where they may have no such element.
  const auto where_reached = [&](const Vars& i, const Expr& value, const Expr& elsewhere) {
    return updates.reaches ? Select(updates.reaches(i), value, elsewhere) : value;
  };
  if (combiner != Combiner::kNone) {
    int combined = b.Reduce("updates", shape, updates.extents, combiner, [&](const Vars& i, const Vars& r) {
      Expr value = updates.value(i, r), none = IdentityOf(combiner, value->dtype);
      return where_reached(i, Select(updates.hits(i, r), value, none), none);
    });
    return b.Compute("scatter", shape,
                     [&](const Vars& i) { return Combine(combiner, Wide(b, x, i), Raw(b, combined, i)); });
  }
  int last = b.Reduce("last_update", shape, updates.extents, Combiner::kMax, [&](const Vars& i, const Vars& r) {
    Expr position = IntImm(0);
    for (size_t d = 0; d < r.size(); ++d) position = Add(Mul(position, IntImm(updates.extents[d])), r[d]);
    return where_reached(i, Select(updates.hits(i, r), position, IntImm(-1)), IntImm(-1));
  });
  return b.Compute("scatter", shape, [&](const Vars& i) {
    Expr position = Raw(b, last, i);
    Vars r(updates.extents.size());
    int64_t stride = 1;
    for (size_t d = r.size(); d-- > 0; stride *= updates.extents[d]) {
      r[d] = d == 0 ? FloorDiv(position, stride) : FloorMod(FloorDiv(position, stride), updates.extents[d]);
    }
    const Expr old = Wide(b, x, i);
    return where_reached(i, Select(Le(IntImm(0), position), updates.value(i, r), old), old);
  });
}

absl::StatusOr<TensorType> InferScatterElements(const OperatorArgs& args) {
  RETURN_IF_ERROR(CheckUpdates(args));
  RETURN_IF_ERROR(InferGatherElements(args).status());
  if (args.inputs[2].shape == args.inputs[1].shape) return args.inputs[0];
  return absl::InvalidArgumentError(
      absl::StrCat("updates of ", args.inputs[2].ToString(), " do not fit indices of ", args.inputs[1].ToString()));
}

int EmitScatterElements(DagBuilder& b, const OperatorArgs& args, const std::vector<int>& stages) {
  const std::vector<int64_t>&x = args.inputs[0].shape, &indices = args.inputs[1].shape;
  int64_t axis = AxisOf(args, "axis", 0, x.size());
  LimitIndices(b, stages[1], x[axis]);
  auto at = [&](Vars i, const Expr& r) {
    i[axis] = r;
    return i;
  };
  Updates updates{{indices[axis]}, nullptr, nullptr, nullptr};
  std::vector<size_t> shorter;
  for (size_t d = 0; d < x.size(); ++d)
    if (static_cast<int64_t>(d) != axis && indices[d] < x[d]) shorter.push_back(d);
  if (!shorter.empty()) {
    updates.reaches = [&](const Vars& i) {
      std::vector<Expr> inside;
      for (const size_t d : shorter) inside.push_back(Lt(i[d], IntImm(indices[d])));
      return And(inside);
    };
  }
  updates.hits = [&](const Vars& i, const Vars& r) {
    return Eq(FromEnd(Raw(b, stages[1], at(i, r[0])), x[axis]), i[axis]);
  };
  updates.value = [&](const Vars& i, const Vars& r) { return Wide(b, stages[2], at(i, r[0])); };
  return EmitScatter(b, args, stages[0], updates);
}

// indices: q..., k; updates: q..., the axes of x behind k.
absl::StatusOr<TensorType> InferScatterNd(const OperatorArgs& args) {
  RETURN_IF_ERROR(CheckUpdates(args));
  ASSIGN_OR_RETURN(TensorType slices, InferGatherNd(args));
  if (args.inputs[2].shape == slices.shape) return args.inputs[0];
  return absl::InvalidArgumentError(absl::StrCat("updates of ", args.inputs[2].ToString(), " do not fit indices of ",
                                                 args.inputs[1].ToString(), ", which ask for ", slices.ToString()));
}

int EmitScatterNd(DagBuilder& b, const OperatorArgs& args, const std::vector<int>& stages) {
  const std::vector<int64_t>&x = args.inputs[0].shape, &indices = args.inputs[1].shape;
  int64_t depth = indices.back();
  LimitIndices(b, stages[1], *std::max_element(x.begin(), x.begin() + depth));
  Updates updates{{indices.begin(), indices.end() - 1}, nullptr, nullptr, nullptr};
  if (updates.extents.empty()) updates.extents = {1};
  bool single = indices.size() == 1;
  auto position = [&](const Vars& r) { return single ? Vars{} : r; };
  updates.hits = [&](const Vars& i, const Vars& r) {
    std::vector<Expr> equal;
    for (int64_t k = 0; k < depth; ++k) {
      Vars at = position(r);
      at.push_back(IntImm(k));
      equal.push_back(Eq(FromEnd(Raw(b, stages[1], at), x[k]), i[k]));
    }
    return And(equal);
  };
  updates.value = [&](const Vars& i, const Vars& r) {
    Vars at = position(r);
    at.insert(at.end(), i.begin() + depth, i.end());
    return Wide(b, stages[2], at);
  };
  return EmitScatter(b, args, stages[0], updates);
}

}  // namespace

std::vector<Operator> GatherNd() {
  return {{"gather_elements", OperatorKind::kInjective, 2, 2, InferGatherElements, EmitGatherElements},
          {"gather_nd", OperatorKind::kInjective, 2, 2, InferGatherNd, EmitGatherNd},
          {"scatter_elements", OperatorKind::kAnchor, 3, 3, InferScatterElements, EmitScatterElements},
          {"scatter_nd", OperatorKind::kAnchor, 3, 3, InferScatterNd, EmitScatterNd}};
}

}  // namespace diapason::ops
