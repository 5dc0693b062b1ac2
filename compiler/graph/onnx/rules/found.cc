// Results with as many rows as the network finds: NonMaxSuppression, NonZero, Compress. Their extents are fixed by
// --dim RESULT.rows=N (those of NonZero and Compress may stay open where found_rows.h can follow them): the first rows
// are those found, in ONNX's order, and the others have the index -1. The network says how many were found in an output
// RESULT.rows; that nothing in it depends on the other rows is proven by who reads the model (service/importer.cc).
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/graph/onnx/rules/composer.h"
#include "compiler/graph/onnx/rules/rules.h"

namespace diapason::onnx_rules {
namespace {

using Ints = Composer::Ints;

// Boxes of a class are taken one after the other.
constexpr int64_t kMostBoxes = 1024;
// Behind all scores, and in front of those of boxes that are out of the race; both are numbers of float16 too.
constexpr double kLeastScore = -65000, kNobodysScore = -65504;

// 0, 1, ... along the first axis.
ImportValue CountingColumn(Composer& c, int64_t n) {
  Array values(DType::kInt64, {n, 1});
  for (int64_t i = 0; i < n; ++i) values.set_int(i, i);
  return c.Constant(std::move(values));
}

// For each of the flags (1 or 0, int64), how many there are up to it. A running sum takes time in proportion to the
// square of an axis, so it is made of those within rows of a square and that of the rows' sums; the square's end has no
// flags.
ImportValue RunningCount(Composer& c, const ImportValue& flags) {
  const int64_t n = flags->type.elements();
  const auto row = static_cast<int64_t>(std::ceil(std::sqrt(static_cast<double>(n))));
  const int64_t rows = (n + row - 1) / row;
  ImportValue all = rows * row == n ? flags : c.Op("pad", {flags}, {{"pads", Ints{0, rows * row - n}}});
  ImportValue within = c.Op("cumulative_sum", {c.Reshape(all, {rows, row})}, {{"axis", int64_t{1}}});
  if (rows == 1) return c.Reshape(within, {row});
  ImportValue before =
      c.Op("cumulative_sum", {c.Slice(within, 1, row - 1, row)}, {{"axis", int64_t{0}}, {"exclusive", int64_t{1}}});
  return c.Reshape(c.Add(within, before), {rows * row});
}

// The flags that are set, in order.
struct Rows {
  ImportValue place;  // capacity x 1: of the flag; of rows that are not real, beyond the last one
  ImportValue real;   // capacity x 1: bool
};

// Also tells the network how many there are.
Rows FindRows(NodeImporter& node, Composer& c, const ImportValue& flags, int64_t capacity) {
  ImportValue counts = RunningCount(c, flags);
  const int64_t n = counts->type.elements();
  ImportValue count = c.Slice(counts, 0, n - 1, n), row = CountingColumn(c, capacity);
  if (!c.ok()) return {flags, flags};
  // The flag that row r stands for has as many in front of it, itself not counted, as flags have a running count of at
  // most r.
  ImportValue behind = c.Op("less_equal", {c.Reshape(counts, {1, n}), row});
  ImportValue place =
      c.Op("reduce_sum", {c.Cast(behind, DType::kInt64)}, {{"axes", Ints{1}}, {"keepdims", int64_t{1}}});
  Rows rows{place, c.Op("less", {row, count})};
  if (c.ok()) node.rows().SetCount(count);
  return rows;
}

ImportValue RealOrNone(Composer& c, const Rows& rows, const ImportValue& x) {
  return c.Op("where", {rows.real, x, c.Scalar(-1, x)});
}

// As result 0, which has the rows along that axis.
absl::Status FinishGiven(NodeImporter& node, Composer& c, const Rows& rows, const ImportValue& result, int axis) {
  ImportValue flags = c.Reshape(rows.real, {-1});
  RETURN_IF_ERROR(c.Finish(result));
  result->found.rows = node.rows().Bounded(std::move(flags));
  result->found.axis = axis;
  return absl::OkStatus();
}

// What place / step % extent is.
ImportValue Coordinate(Composer& c, const ImportValue& place, int64_t step, int64_t extent) {
  ImportValue x = step == 1 ? place : c.Div(place, c.Scalar(static_cast<double>(step), place));
  return c.Op("mod", {x, c.Scalar(static_cast<double>(extent), x)});
}

// ---- non-maximum suppression

// Candidates with one behind them that nobody chose: it is taken when no other is left, and overlaps none.
struct Candidates {
  int64_t batch = 0, classes = 0, boxes = 0;
  ImportValue corners = {};   // batch x boxes+1 x 5: y and x of the one corner, y and x of the other, the area
  ImportValue sides[5] = {};  // the same, each batch x 1 x boxes+1
  ImportValue scores = {};    // batch x classes x boxes+1
  ImportValue threshold = {};
};

ImportValue BoxColumn(Composer& c, const ImportValue& boxes, int64_t k) { return c.Slice(boxes, -1, k, k + 1); }

// Lower and upper corners, y first.
std::vector<ImportValue> Corners(Composer& c, const ImportValue& boxes, bool centred) {
  ImportValue a[4];
  for (int64_t k = 0; k < 4; ++k) a[k] = BoxColumn(c, boxes, k);
  if (centred) {  // x y width height
    ImportValue w = c.Mul(a[2], c.Scalar(0.5, boxes)), h = c.Mul(a[3], c.Scalar(0.5, boxes));
    return {c.Sub(a[1], h), c.Sub(a[0], w), c.Add(a[1], h), c.Add(a[0], w)};
  }
  return {c.Op("minimum", {a[0], a[2]}), c.Op("minimum", {a[1], a[3]}), c.Op("maximum", {a[0], a[2]}),
          c.Op("maximum", {a[1], a[3]})};
}

// How much of box and candidates together both cover. Each column of the box is read once, so that all is one kernel.
ImportValue Overlap(Composer& c, const Candidates& all, const ImportValue* box) {
  ImportValue inner[2];
  for (int d = 0; d < 2; ++d) {
    ImportValue extent =
        c.Sub(c.Op("minimum", {all.sides[d + 2], box[d + 2]}), c.Op("maximum", {all.sides[d], box[d]}));
    inner[d] = c.Op("maximum", {extent, c.Scalar(0, extent)});
  }
  ImportValue both = c.Mul(inner[0], inner[1]);
  return c.Div(both, c.Sub(c.Add(all.sides[4], box[4]), both));
}

// The indices of the boxes taken, batch x classes x steps; `boxes` where none was left.
ImportValue TakeBoxes(Composer& c, const Candidates& all, int64_t steps) {
  Array places(DType::kInt64, {1, 1, all.boxes + 1});
  for (int64_t i = 0; i < all.boxes; ++i) places.set_int(i, i);
  places.set_int(all.boxes, -1);  // never taken away
  ImportValue place = c.Constant(std::move(places)), left = all.scores;
  ImportValue gone = c.Scalar(-std::numeric_limits<double>::infinity(), left);
  std::vector<ImportValue> taken;
  for (int64_t k = 0; k < steps && c.ok(); ++k) {
    ImportValue best = c.Op("arg_max", {left}, {{"axis", int64_t{2}}});
    taken.push_back(best);
    if (k + 1 == steps) break;
    ImportValue corners = c.Op("gather_nd", {all.corners, best}, {{"batch_dims", int64_t{1}}}), box[5];
    for (int64_t d = 0; d < 5; ++d) box[d] = BoxColumn(c, corners, d);
    ImportValue out = c.Op("or", {c.Op("less", {all.threshold, Overlap(c, all, box)}), c.Op("equal", {place, best})});
    left = c.Op("where", {out, gone, left});
  }
  return c.ok() ? c.Concat(taken, 2) : place;
}

absl::StatusOr<Candidates> CandidatesOf(NodeImporter& node, Composer& c) {
  ImportValue boxes = c.Input(0), scores = c.Input(1);
  RETURN_IF_ERROR(c.status());
  const Ints &b = boxes->type.shape, &s = scores->type.shape;
  if (b.size() != 3 || s.size() != 3 || b[2] != 4 || b[0] != s[0] || b[1] != s[2] || !IsFloat(boxes->type.dtype) ||
      scores->type.dtype != boxes->type.dtype) {
    return absl::InvalidArgumentError(absl::StrCat("boxes of ", boxes->type.ToString(), " and scores of ",
                                                   scores->type.ToString(), " do not fit together"));
  }
  Candidates all{s[0], s[1], s[2]};
  const int64_t centred = node.Int("center_point_box", 0);
  if (centred != 0 && centred != 1)
    return absl::InvalidArgumentError(absl::StrCat("center_point_box must be 0 or 1, not ", centred));
  auto threshold = [&](int i) {
    return node.HasInput(i) ? c.Reshape(c.Input(i), {1, 1, 1}) : c.Reshape(c.Scalar(0, scores), {1, 1, 1});
  };
  all.threshold = threshold(3);
  std::vector<ImportValue> columns = Corners(c, boxes, centred == 1);
  columns.push_back(c.Mul(c.Sub(columns[2], columns[0]), c.Sub(columns[3], columns[1])));
  all.corners = c.Op("pad", {c.Concat(columns, 2)}, {{"pads", Ints{0, 0, 0, 0, 1, 0}}});
  ImportValue turned = c.Transpose(all.corners, {0, 2, 1});
  for (int64_t d = 0; d < 5; ++d) all.sides[d] = c.Slice(turned, 1, d, d + 1);
  ImportValue high = c.Op("maximum", {scores, c.Scalar(kLeastScore, scores)});
  if (node.HasInput(4)) {
    ImportValue enough = c.Op("less", {threshold(4), scores});
    high = c.Op("where", {enough, high, c.Scalar(-std::numeric_limits<double>::infinity(), scores)});
  }
  if (scores->found.rows) {  // found_rows.h: others are not there
    ImportValue real = c.Reshape(scores->found.rows->flags, {1, 1, -1});
    high = c.Op("where", {real, high, c.Scalar(-std::numeric_limits<double>::infinity(), scores)});
  }
  all.scores = c.Op("pad", {high}, {{"pads", Ints{0, 0, 0, 0, 0, 1}}, {"value", kNobodysScore}});
  RETURN_IF_ERROR(c.status());
  return all;
}

absl::Status NonMaxSuppression(NodeImporter& node) {
  Composer c(node);
  ASSIGN_OR_RETURN(const Candidates all, CandidatesOf(node, c));
  int64_t most = 0;
  if (node.HasInput(2)) {
    ASSIGN_OR_RETURN(const std::vector<int64_t> given, node.KnownInts(2, "the most boxes of a class"));
    if (given.size() == 1) most = std::min(given[0], all.boxes);
  }
  if (most < 1)
    return absl::InvalidArgumentError(
        "input 2 (the most boxes of a class) must be one number above 0: it would find none");
  ASSIGN_OR_RETURN(const int64_t capacity, node.rows().Capacity("boxes it finds"));
  // The first `capacity` rows have no more of any class.
  if (most > kMostBoxes) most = std::min(most, node.rows().Taken());
  if (most > kMostBoxes) {
    return absl::InvalidArgumentError(
        absl::StrCat("it may find ", most, " boxes of a class, and up to ", kMostBoxes,
                     " are taken one after the other: give its result less room by --dim, or a smaller "
                     "max_output_boxes_per_class (input 2)"));
  }
  ImportValue taken = c.Reshape(TakeBoxes(c, all, most), {all.batch * all.classes * most});
  ImportValue flags = c.Cast(c.Op("less", {taken, c.Scalar(static_cast<double>(all.boxes), taken)}), DType::kInt64);
  const Rows rows = FindRows(node, c, flags, capacity);
  ImportValue within =
      c.Op("minimum", {rows.place, c.Scalar(static_cast<double>(taken->type.elements() - 1), rows.place)});
  ImportValue box = c.Op("gather", {taken, within}, {{"axis", int64_t{0}}});
  ImportValue found = c.Concat(
      {Coordinate(c, within, all.classes * most, all.batch), Coordinate(c, within, most, all.classes), box}, 1);
  ImportValue result = RealOrNone(c, rows, found);
  result->found.positions = c.Input(0)->found.rows;
  return FinishGiven(node, c, rows, result, 0);
}

// ---- what is not 0

// 1 where it is not 0, in one row.
ImportValue FlagsOf(Composer& c, const ImportValue& x) {
  ImportValue flags = x->type.dtype == DType::kBool ? x : c.Op("not", {c.Op("equal", {x, c.Scalar(0, x)})});
  return c.Cast(c.Reshape(flags, {-1}), DType::kInt64);
}

absl::Status NonZeroOfConstant(Composer& c, const ImportValue& x) {
  std::vector<int64_t> found;
  for (int64_t i = 0, n = x->type.elements(); i < n; ++i) {
    bool hit = IsFloat(x->type.dtype) ? x->value->at(i) != 0 : x->value->int_at(i) != 0;
    if (hit) found.push_back(i);
  }
  int64_t count = static_cast<int64_t>(found.size()), rank = std::max<int64_t>(RankOf(x), 1);
  Array result(DType::kInt64, {rank, count});
  for (int64_t k = 0; k < count; ++k) {
    int64_t rest = found[k];
    for (int64_t d = RankOf(x); d-- > 0; rest /= x->type.shape[d])
      result.set_int(d * count + k, rest % x->type.shape[d]);
  }
  return c.Finish(c.Constant(std::move(result)));
}

// Without --dim: the places of all elements, with flags.
absl::Status NonZeroOfAll(NodeImporter& node, Composer& c, const ImportValue& x, const absl::Status& no_capacity) {
  const int64_t rank = std::max<int64_t>(RankOf(x), 1);
  if (!node.rows().IsUnbounded() || !node.SpendConstantBytes(8 * rank * x->type.elements())) return no_capacity;
  Array all(DType::kBool, x->type.shape);
  for (int64_t i = 0, n = all.elements(); i < n; ++i) all.set_int(i, 1);
  RETURN_IF_ERROR(NonZeroOfConstant(c, KnownValue(std::move(all), node.node().name)));
  ImportValue flags = c.Op("equal", {FlagsOf(c, x), c.Scalar(1, DType::kInt64)});
  if (x->found.rows) flags = c.Op("and", {flags, x->found.rows->flags});
  RETURN_IF_ERROR(c.status());
  FoundFact& found = node.Results()[0]->found;
  found.rows = node.rows().Flagged(no_capacity, x, std::move(flags));
  found.axis = 1;
  found.positions = x->found.rows;
  found.own_place = rank == 1;
  return absl::OkStatus();
}

absl::Status NonZero(NodeImporter& node) {
  Composer c(node);
  ImportValue x = c.Input(0);
  if (x->value) return NonZeroOfConstant(c, x);
  const absl::StatusOr<int64_t> bound = node.rows().Capacity("elements are not 0");
  if (!bound.ok()) return NonZeroOfAll(node, c, x, bound.status());
  const int64_t capacity = *bound;
  const Rows rows = FindRows(node, c, FlagsOf(c, x), capacity);
  std::vector<ImportValue> coordinates;
  int64_t step = x->type.elements();
  for (int64_t extent : x->type.shape) {
    step /= extent;
    coordinates.push_back(Coordinate(c, rows.place, step, extent));
  }
  if (coordinates.empty()) coordinates.push_back(Coordinate(c, rows.place, 1, 1));
  return FinishGiven(node, c, rows, c.Transpose(RealOrNone(c, rows, c.Concat(coordinates, 1)), {1, 0}), 1);
}

absl::Status Compress(NodeImporter& node) {
  Composer c(node);
  ImportValue x = c.Input(0), condition = c.Input(1);
  int64_t axis = 0;
  if (node.Has("axis")) {
    ASSIGN_OR_RETURN(axis, NormalAxis(node.Int("axis", 0), x));
  } else {
    x = c.Reshape(x, {-1});
  }
  RETURN_IF_ERROR(c.status());
  if (RankOf(condition) != 1)
    return absl::InvalidArgumentError(absl::StrCat("its condition must be a list, not ", condition->type.ToString()));
  const int64_t n = std::min(condition->type.elements(), x->type.shape[axis]);
  if (!condition->value) {
    const absl::StatusOr<int64_t> bound = node.rows().Capacity("elements it takes");
    if (!bound.ok() && node.rows().IsUnbounded() && n == x->type.shape[axis]) {
      ImportValue all = c.Op("identity", {x}),
                  flags = c.Op("equal", {FlagsOf(c, condition), c.Scalar(1, DType::kInt64)});
      RETURN_IF_ERROR(c.status());
      all->found.rows = node.rows().Flagged(bound.status(), condition, std::move(flags));
      all->found.axis = static_cast<int>(axis);
      return c.Finish(all);
    }
    RETURN_IF_ERROR(bound.status());
    const int64_t capacity = *bound;
    const Rows rows = FindRows(node, c, FlagsOf(c, c.Slice(condition, 0, 0, n)), capacity);
    ImportValue taken = c.Op("gather", {x, c.Reshape(RealOrNone(c, rows, rows.place), {-1})}, {{"axis", axis}});
    return FinishGiven(node, c, rows, taken, static_cast<int>(axis));
  }
  Ints kept;
  for (int64_t i = 0; i < n; ++i) {
    if (condition->value->int_at(i) != 0) kept.push_back(i);
  }
  if (kept.empty()) return absl::InvalidArgumentError("its result would be empty, which is not supported");
  return c.Finish(c.Op("gather", {x, c.Indices(kept)}, {{"axis", axis}}));
}

}  // namespace

std::vector<OnnxRule> Found() {
  return {{"NonMaxSuppression", NonMaxSuppression}, {"NonZero", NonZero}, {"Compress", Compress}};
}

}  // namespace diapason::onnx_rules
