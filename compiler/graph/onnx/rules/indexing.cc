// Elements chosen, placed and counted by indices.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/graph/onnx/rules/composer.h"
#include "compiler/graph/onnx/rules/rules.h"
#include "compiler/graph/onnx/tensor_proto.h"

namespace diapason::onnx_rules {
namespace {

using Ints = Composer::Ints;

// 0, 1, ... along one axis of a tensor of that rank.
ImportValue Counting(Composer& c, int64_t extent, int64_t axis, int64_t rank, DType dtype = DType::kInt64) {
  Ints shape(rank, 1);
  shape[axis] = extent;
  Array array(dtype, shape);
  for (int64_t i = 0; i < extent; ++i) array.set_int(i, i);
  return c.Constant(std::move(array));
}

absl::StatusOr<int64_t> KnownInt(NodeImporter& node, int input, const std::string& what) {
  ASSIGN_OR_RETURN(std::vector<int64_t> values, node.KnownInts(input, what));
  if (values.size() == 1) return values[0];
  return absl::InvalidArgumentError(absl::StrCat("input ", input, " (", what, ") must be one number"));
}

// Of GatherElements and ScatterElements.
absl::Status CheckElements(NodeImporter& node, Composer& c) {
  const ImportValue x = c.Input(0), indices = c.Input(1);
  RETURN_IF_ERROR(c.status());
  ASSIGN_OR_RETURN(const int64_t axis, NormalAxis(node.Int("axis", 0), x));
  return CheckIndices(indices, {x->type.shape[axis]});
}

// Of GatherND and ScatterND.
absl::Status CheckRows(Composer& c, int64_t batch_dims) {
  const ImportValue x = c.Input(0), indices = c.Input(1);
  RETURN_IF_ERROR(c.status());
  const std::vector<int64_t>& shape = x->type.shape;
  const int64_t axes = indices->type.shape.empty() ? 0 : indices->type.shape.back();
  if (batch_dims < 0 || axes < 1 || batch_dims + axes > RankOf(x)) return absl::OkStatus();  // the operator refuses it
  return CheckIndices(indices, {shape.begin() + batch_dims, shape.begin() + batch_dims + axes});
}

absl::Status GatherElements(NodeImporter& node) {
  Composer c(node);
  RETURN_IF_ERROR(CheckElements(node, c));
  return c.Finish(c.Op("gather_elements", {c.Input(0), c.Input(1)}, {{"axis", node.Int("axis", 0)}}));
}

// The place in row-major order of the leading axes that each row of known indices names; empty if one lies outside.
std::vector<int64_t> PlacesOf(const Array& indices, const std::vector<int64_t>& shape) {
  const int64_t axes = indices.shape.back(), rows = axes > 0 ? indices.elements() / axes : 0;
  std::vector<int64_t> places(rows, 0);
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t d = 0; d < axes; ++d) {
      const int64_t given = indices.int_at(row * axes + d), at = given + (given < 0 ? shape[d] : 0);
      if (at < 0 || at >= shape[d]) return {};
      places[row] = places[row] * shape[d] + at;
    }
  }
  return places;
}

// GatherND of known places that follow each other is a reshape, or a slice between two.
std::optional<ImportValue> GatherRun(Composer& c, const ImportValue& x, const ImportValue& indices) {
  const int64_t axes = indices->type.shape.empty() ? 0 : indices->type.shape.back();
  if (!indices->value || IsFloat(indices->type.dtype) || indices->type.dtype == DType::kBool || axes < 1 ||
      axes > RankOf(x))
    return std::nullopt;
  const std::vector<int64_t> places = PlacesOf(*indices->value, x->type.shape);
  for (size_t i = 0; i < places.size(); ++i)
    if (places[i] != places[0] + static_cast<int64_t>(i)) return std::nullopt;
  if (places.empty()) return std::nullopt;
  const int64_t count = static_cast<int64_t>(places.size());
  std::vector<int64_t> flat(x->type.shape.begin() + axes, x->type.shape.end()), shape = indices->type.shape;
  shape.pop_back();
  shape.insert(shape.end(), flat.begin(), flat.end());
  int64_t all = 1;
  for (int64_t d = 0; d < axes; ++d) all *= x->type.shape[d];
  if (count == all) return c.Reshape(x, shape);
  flat.insert(flat.begin(), all);
  return c.Reshape(c.Slice(c.Reshape(x, flat), 0, places[0], places[0] + count), shape);
}

absl::Status GatherNd(NodeImporter& node) {
  Composer c(node);
  const int64_t batch_dims = node.Int("batch_dims", 0);
  RETURN_IF_ERROR(CheckRows(c, batch_dims));
  if (const ImportValue x = c.Input(0), indices = c.Input(1); c.ok() && batch_dims == 0 && !x->value) {
    if (const std::optional<ImportValue> run = GatherRun(c, x, indices)) return c.Finish(*run);
  }
  return c.Finish(c.Op("gather_nd", {c.Input(0), c.Input(1)}, {{"batch_dims", batch_dims}}));
}

// Every row is put where it is; found_rows.h has put those that are not real back before.
bool ScattersInPlace(Composer& c, const Ints& indices_shape, const std::string& reduction) {
  const ImportValue x = c.Input(0), indices = c.Input(1), updates = c.Input(2);
  return c.ok() && indices->found.own_place && indices->found.axis == 0 && indices->type.shape == indices_shape &&
         updates->type == x->type && reduction == "none";
}

absl::Status ScatterElements(NodeImporter& node) {
  Composer c(node);
  RETURN_IF_ERROR(CheckElements(node, c));
  const std::string reduction = node.String("reduction", "none");
  if (node.Int("axis", 0) == 0 && ScattersInPlace(c, c.Input(0)->type.shape, reduction))
    return c.Finish(c.Op("identity", {c.Input(2)}));
  return c.Finish(c.Op("scatter_elements", {c.Input(0), c.Input(1), c.Input(2)},
                       {{"axis", node.Int("axis", 0)}, {"reduction", reduction}}));
}

absl::Status ScatterNd(NodeImporter& node) {
  Composer c(node);
  RETURN_IF_ERROR(CheckRows(c, 0));
  const std::string reduction = node.String("reduction", "none");
  if (RankOf(c.Input(0)) > 0 && ScattersInPlace(c, {c.Input(0)->type.shape[0], 1}, reduction))
    return c.Finish(c.Op("identity", {c.Input(2)}));
  return c.Finish(c.Op("scatter_nd", {c.Input(0), c.Input(1), c.Input(2)}, {{"reduction", reduction}}));
}

absl::Status ImportArg(NodeImporter& node, const char* op) {
  Composer c(node);
  ImportValue x = c.Input(0);
  ASSIGN_OR_RETURN(int64_t axis, NormalAxis(node.Int("axis", 0), x));
  bool keep = node.Int("keepdims", 1) != 0;
  ImportValue found = c.Op(op, {x}, {{"axis", axis}, {"select_last_index", node.Int("select_last_index", 0)}});
  return c.Finish(keep ? found : c.Squeeze(found, {axis}));
}
absl::Status ArgMax(NodeImporter& node) { return ImportArg(node, "arg_max"); }
absl::Status ArgMin(NodeImporter& node) { return ImportArg(node, "arg_min"); }

// 1 at the first largest element, 0 elsewhere. Before opset 13 over all axes from `axis` on, as one.
absl::Status Hardmax(NodeImporter& node) {
  Composer c(node);
  ImportValue x = c.Input(0), rows = x;
  ASSIGN_OR_RETURN(int64_t axis, NormalAxis(node.Int("axis", node.opset() >= 13 ? -1 : 1), x));
  if (node.opset() < 13) {
    rows = c.Op("flatten", {x}, {{"axis", axis}});
    axis = 1;
  }
  ImportValue best = c.Op("arg_max", {rows}, {{"axis", axis}});
  ImportValue hit = c.Op("equal", {best, Counting(c, rows->type.shape[axis], axis, RankOf(rows))});
  if (IsFloat(x->type.dtype)) hit = c.Op("and", {hit, c.Op("not", {c.Op("is_nan", {rows})})});  // as in ONNX Runtime
  return c.Finish(c.Reshape(c.Cast(hit, x->type.dtype), x->type.shape));
}

absl::Status ImportCumulative(NodeImporter& node, const char* op) {
  Composer c(node);
  ImportValue x = c.Input(0);
  ASSIGN_OR_RETURN(int64_t given, KnownInt(node, 1, "the axis"));
  ASSIGN_OR_RETURN(int64_t axis, NormalAxis(given, x));
  return c.Finish(
      c.Op(op, {x}, {{"axis", axis}, {"exclusive", node.Int("exclusive", 0)}, {"reverse", node.Int("reverse", 0)}}));
}

absl::Status CumSum(NodeImporter& node) { return ImportCumulative(node, "cumulative_sum"); }
absl::Status CumProd(NodeImporter& node) { return ImportCumulative(node, "cumulative_product"); }

// Elements of a cache replaced from a place on that may differ by batch element.
absl::Status TensorScatter(NodeImporter& node) {
  Composer c(node);
  ImportValue cache = c.Input(0), update = c.Input(1);
  const int64_t axis = c.Axis(node.Int("axis", -2), cache), rank = RankOf(cache);
  const std::string mode = node.String("mode", "linear");
  RETURN_IF_ERROR(c.status());
  if (mode != "linear" && mode != "circular")
    return absl::InvalidArgumentError(absl::StrCat("mode must be linear or circular, not '", mode, "'"));
  Ints expected = cache->type.shape;
  if (RankOf(update) == rank) expected[axis] = update->type.shape[axis];
  if (axis == 0 || update->type.shape != expected || expected[axis] > cache->type.shape[axis]) {
    return absl::InvalidArgumentError(absl::StrCat("an update of ", update->type.ToString(), " does not fit ",
                                                   cache->type.ToString(), " in axis ", axis));
  }
  ImportValue place = Counting(c, expected[axis], axis, rank);
  if (node.HasInput(2)) {
    Ints first(rank, 1);
    first[0] = expected[0];
    place = c.Add(place, c.Reshape(c.Cast(c.Input(2), DType::kInt64), first));
  }
  if (mode == "circular") place = c.Op("mod", {place, c.Scalar(static_cast<double>(cache->type.shape[axis]), place)});
  return c.Finish(c.Op("scatter_elements", {cache, c.Expand(place, expected), update}, {{"axis", axis}}));
}

// k is an attribute before opset 10, an input from there on.
absl::Status TopK(NodeImporter& node) {
  Composer c(node);
  ImportValue x = c.Input(0);
  ASSIGN_OR_RETURN(int64_t axis, NormalAxis(node.Int("axis", -1), x));
  int64_t k = node.opset() < 10 ? node.Int("k", 0) : 0;
  if (node.opset() >= 10) {
    ASSIGN_OR_RETURN(k, KnownInt(node, 1, "k"));
  }
  node.Int("sorted", 1);  // ours always are
  ImportValue indices = c.Op("top_k_indices", {x}, {{"axis", axis}, {"k", k}, {"largest", node.Int("largest", 1)}});
  FoundFact found = x->found;
  if (found.rows && found.axis == axis) {  // a list, in which those that are not real come last (found_rows.h)
    FoundRows best = *found.rows;
    best.flags = c.Op("gather", {found.rows->flags, indices}, {{"axis", int64_t{0}}});
    best.capacity = k;
    best.first = false;
    found.positions = found.rows;
    found.rows = std::make_shared<const FoundRows>(std::move(best));
  }
  if (node.IsRead(0)) {
    ImportValue values = c.Op("gather_elements", {x, indices}, {{"axis", axis}});
    values->found.rows = found.rows;
    values->found.axis = found.axis;
    c.Set(0, values);
  }
  indices->found = found;
  if (node.IsRead(1)) c.Set(1, indices);
  return c.status();
}

constexpr double kMostDepth = 0x1p27;

absl::Status OneHot(NodeImporter& node) {
  Composer c(node);
  ImportValue indices = c.Cast(c.Input(0), DType::kInt64), values = c.Input(2);
  ASSIGN_OR_RETURN(ImportValue depth_value, node.Input(1));
  if (!depth_value->value || depth_value->type.elements() != 1) {
    return absl::InvalidArgumentError("input 1 (the depth) must be a constant of one number");
  }
  // A NaN is neither. Numbers up to the depth become a constant.
  const double given = depth_value->value->at(0);
  if (!(given >= 1 && given < kMostDepth) || !node.SpendConstantBytes(8 * static_cast<int64_t>(given))) {
    return absl::InvalidArgumentError(
        absl::StrCat("input 1 (the depth) cannot be ", given, ": give a number from 1 to 2^27"));
  }
  int64_t depth = static_cast<int64_t>(given), rank = RankOf(indices) + 1;
  int64_t axis = node.Int("axis", -1);
  if (axis < -rank || axis >= rank || values->type.elements() != 2) {
    return absl::InvalidArgumentError(absl::StrCat("depth ", depth, ", axis ", axis, " and ", values->type.elements(),
                                                   " values do not fit together"));
  }
  if (axis < 0) axis += rank;
  ImportValue zero = c.Scalar(0, indices), end = c.Scalar(static_cast<double>(depth), indices);
  ImportValue from_end = c.Op("where", {c.Op("less", {indices, zero}), c.Add(indices, end), indices});
  ImportValue hit = c.Op("equal", {c.Unsqueeze(from_end, {axis}), Counting(c, depth, axis, rank)});
  ImportValue off = c.Reshape(c.Slice(values, 0, 0, 1), {}), on = c.Reshape(c.Slice(values, 0, 1, 2), {});
  return c.Finish(c.Op("where", {hit, on, off}));
}

// The elements on one side of a diagonal; zeros on the other.
absl::Status Trilu(NodeImporter& node) {
  Composer c(node);
  ImportValue x = c.Input(0);
  int64_t k = 0, rank = RankOf(x);
  if (node.HasInput(1)) {
    ASSIGN_OR_RETURN(k, KnownInt(node, 1, "the diagonal"));
  }
  if (rank < 2) return absl::InvalidArgumentError(absl::StrCat("its input is ", x->type.ToString(), ", no matrix"));
  int64_t rows = x->type.shape[rank - 2], columns = x->type.shape[rank - 1];
  bool upper = node.Int("upper", 1) != 0;
  k = std::clamp(k, -rows - columns, rows + columns);
  Array kept(DType::kBool, {rows, columns});
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < columns; ++j) kept.set_int(i * columns + j, upper ? j - i >= k : j - i <= k);
  }
  return c.Finish(c.Op("where", {c.Constant(std::move(kept)), x, c.Scalar(0, x)}));
}

absl::Status EyeLike(NodeImporter& node) {
  Composer c(node);
  ImportValue x = c.Input(0);
  if (RankOf(x) != 2)
    return absl::InvalidArgumentError(absl::StrCat("its input is ", x->type.ToString(), ", no matrix"));
  DType dtype = x->type.dtype;
  if (node.Has("dtype")) {
    ASSIGN_OR_RETURN(dtype, StorageOfOnnx(static_cast<int>(node.Int("dtype", 1))));
  }
  int64_t rows = x->type.shape[0], columns = x->type.shape[1], k = node.Int("k", 0);
  Array eye(dtype, {rows, columns});
  for (int64_t i = 0; i < rows; ++i) {
    if (i + k < 0 || i + k >= columns) continue;
    if (IsFloat(dtype)) {
      eye.set(i * columns + i + k, 1);
    } else {
      eye.set_int(i * columns + i + k, 1);
    }
  }
  return c.Finish(c.Constant(std::move(eye)));
}

absl::Status Range(NodeImporter& node) {
  Composer c(node);
  ImportValue start = c.Input(0), limit = c.Input(1), delta = c.Input(2);
  for (const ImportValue& value : {start, limit, delta}) {
    if (value->value && value->type.elements() == 1) continue;
    return absl::InvalidArgumentError(
        "start, limit and delta must be constants of one number: the extent of the result is not known otherwise");
  }
  double from = start->value->at(0), to = limit->value->at(0), step = delta->value->at(0);
  double count = step == 0 ? -1 : std::ceil((to - from) / step);
  constexpr double kMost = 1 << 28;
  if (!(count >= -1e18) || count > kMost || step == 0) {
    return absl::InvalidArgumentError(absl::StrCat("it counts from ", from, " to ", to, " by ", step,
                                                   ": steps other than 0 and up to ", 1 << 28,
                                                   " numbers are supported"));
  }
  int64_t n = std::max<int64_t>(static_cast<int64_t>(count), 0);
  DType dtype = start->type.dtype;
  if (!node.SpendConstantBytes(n * BytesOf(dtype))) return absl::InvalidArgumentError("its result is too large");
  Array values(dtype, {n});
  for (int64_t i = 0; i < n; ++i) {
    if (IsFloat(dtype)) {
      values.set(i, from + static_cast<double>(i) * step);
    } else {
      values.set_int(i, start->value->int_at(0) + i * delta->value->int_at(0));
    }
  }
  return c.Finish(c.Constant(std::move(values)));
}

absl::Status Tile(NodeImporter& node) {
  Composer c(node);
  ImportValue x = c.Input(0);
  ASSIGN_OR_RETURN(std::vector<int64_t> repeats, node.KnownInts(1, "the repeats"));
  if (static_cast<int64_t>(repeats.size()) != RankOf(x)) {
    return absl::InvalidArgumentError(absl::StrCat(repeats.size(), " repeats do not fit ", x->type.ToString()));
  }
  Ints apart, repeated, together;
  for (size_t d = 0; d < repeats.size(); ++d) {
    int64_t extent = x->type.shape[d], times = repeats[d];
    if (times < 1 || times > (int64_t{1} << 32)) {
      return absl::InvalidArgumentError(absl::StrCat("an axis cannot be repeated ", times, " times"));
    }
    apart.insert(apart.end(), {1, extent});
    repeated.insert(repeated.end(), {times, extent});
    together.push_back(times * extent);
  }
  return c.Finish(c.Reshape(c.Expand(c.Reshape(x, apart), repeated), together));
}

absl::Status DepthToSpace(NodeImporter& node) {
  Composer c(node);
  ImportValue x = c.Input(0);
  int64_t block = node.Int("blocksize", 1);
  std::string mode = node.String("mode", "DCR");
  if (RankOf(x) != 4 || block < 1 || block > 65536 || x->type.shape[1] % (block * block) != 0) {
    return absl::InvalidArgumentError(absl::StrCat("blocks of ", block, " do not fit ", x->type.ToString()));
  }
  if (mode != "DCR" && mode != "CRD") {
    return absl::InvalidArgumentError(absl::StrCat("mode must be DCR or CRD, not '", mode, "'"));
  }
  const Ints& s = x->type.shape;
  int64_t channels = s[1] / block / block;
  ImportValue y = mode == "DCR"
                      ? c.Transpose(c.Reshape(x, {s[0], block, block, channels, s[2], s[3]}), {0, 3, 4, 1, 5, 2})
                      : c.Transpose(c.Reshape(x, {s[0], channels, block, block, s[2], s[3]}), {0, 1, 4, 2, 5, 3});
  return c.Finish(c.Reshape(y, {s[0], channels, s[2] * block, s[3] * block}));
}

// The mode, which says whether blocks or channels come first, is there from opset 28 on.
absl::Status SpaceToDepth(NodeImporter& node) {
  Composer c(node);
  ImportValue x = c.Input(0);
  int64_t block = node.Int("blocksize", 1);
  std::string mode = node.opset() >= 28 ? node.String("mode", "DCR") : "DCR";
  if (RankOf(x) != 4 || block < 1 || x->type.shape[2] % block != 0 || x->type.shape[3] % block != 0) {
    return absl::InvalidArgumentError(absl::StrCat("blocks of ", block, " do not fit ", x->type.ToString()));
  }
  if (mode != "DCR" && mode != "CRD") {
    return absl::InvalidArgumentError(absl::StrCat("mode must be DCR or CRD, not '", mode, "'"));
  }
  const Ints& s = x->type.shape;
  ImportValue y = c.Reshape(x, {s[0], s[1], s[2] / block, block, s[3] / block, block});
  y = c.Transpose(y, mode == "DCR" ? Ints{0, 3, 5, 1, 2, 4} : Ints{0, 1, 3, 5, 2, 4});
  return c.Finish(c.Reshape(y, {s[0], s[1] * block * block, s[2] / block, s[3] / block}));
}

// The first lengths[b] elements of a sequence in reverse, the others as they are.
absl::Status ReverseSequence(NodeImporter& node) {
  Composer c(node);
  ImportValue x = c.Input(0), lengths = c.Cast(c.Input(1), DType::kInt64);
  ASSIGN_OR_RETURN(int64_t time, NormalAxis(node.Int("time_axis", 0), x));
  ASSIGN_OR_RETURN(int64_t batch, NormalAxis(node.Int("batch_axis", 1), x));
  if (time == batch) return absl::InvalidArgumentError("time_axis and batch_axis must differ");
  Ints shape(RankOf(x), 1);
  shape[batch] = x->type.shape[batch];
  ImportValue length = c.Reshape(lengths, shape), step = Counting(c, x->type.shape[time], time, RankOf(x));
  ImportValue back = c.Sub(c.Sub(length, c.Scalar(1, length)), step);
  ImportValue from = c.Op("where", {c.Op("less", {step, length}), back, step});
  return c.Finish(c.Op("gather_elements", {x, c.Expand(from, x->type.shape)}, {{"axis", time}}));
}

}  // namespace

std::vector<OnnxRule> Indexing() {
  return {{"GatherElements", GatherElements},
          {"GatherND", GatherNd},
          {"Scatter", ScatterElements},
          {"ScatterElements", ScatterElements},
          {"ScatterND", ScatterNd},
          {"ArgMax", ArgMax},
          {"ArgMin", ArgMin},
          {"Hardmax", Hardmax},
          {"CumSum", CumSum},
          {"CumProd", CumProd},
          {"TensorScatter", TensorScatter},
          {"TopK", TopK},
          {"OneHot", OneHot},
          {"Trilu", Trilu},
          {"EyeLike", EyeLike},
          {"Range", Range},
          {"Tile", Tile},
          {"DepthToSpace", DepthToSpace},
          {"SpaceToDepth", SpaceToDepth},
          {"ReverseSequence", ReverseSequence}};
}

}  // namespace diapason::onnx_rules
