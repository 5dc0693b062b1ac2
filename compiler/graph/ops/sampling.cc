// Images read between their points: at places that a tensor holds (grid_sample), along a kernel whose points are moved
// (deform_conv: Dai et al. 2017), and over regions (roi_align: He et al. 2017). Any place may be asked for: indices are
// clamped after they are computed, so that none reads outside.
#include <cmath>

#include "absl/strings/str_cat.h"
#include "compiler/graph/ops/emit.h"
#include "compiler/graph/ops/registry.h"

namespace diapason::ops {
namespace {

Expr Number(double value, DType type) { return Literal(value, type); }

// A whole number of float type as an index into [0, extent).
Expr Index(const Expr& at, int64_t extent) {
  return Min(Max(diapason::Cast(DType::kInt64, at), IntImm(0)), IntImm(extent - 1));
}

Expr Between(const Expr& at, double low, double high) {
  return And(Le(Number(low, at->dtype), at), Le(at, Number(high, at->dtype)));
}

// x reflected at the borders until it lies between them.
Expr ReflectedCoordinate(const Expr& x, double low, double high) {
  const DType type = x->dtype;
  const double range = high - low;
  if (range <= 0) return Number(low, type);
  const Expr away = Max(Sub(x, Number(low, type)), Sub(Number(low, type), x));
  const Expr turns = Call("floor", {Div(away, Number(2 * range, type))});
  const Expr rest = Sub(away, Mul(turns, Number(2 * range, type)));
  return Add(Number(low, type), Select(Le(rest, Number(range, type)), rest, Sub(Number(2 * range, type), rest)));
}

struct Sampling {
  std::string mode, padding;
  bool align = false;
  std::vector<int64_t> image;

  static Sampling Of(const OperatorArgs& args) {
    const Attributes& a = *args.attributes;
    const std::vector<int64_t>& x = args.inputs[0].shape;
    return {a.String("mode", "linear"),
            a.String("padding", "zeros"),
            a.Int("align_corners", 0) != 0,
            {x.begin() + 2, x.end()}};
  }
  double low() const { return align ? 0 : -0.5; }
  double high(size_t d) const { return static_cast<double>(image[d]) - (align ? 1 : 0.5); }
  int64_t taps() const { return mode == "nearest" ? 1 : mode == "linear" ? 2 : 4; }

  // Where a number from -1 to 1 lies on axis d.
  Expr Place(const Expr& x, size_t d) const {
    const DType type = x->dtype;
    const double extent = static_cast<double>(image[d]);
    const Expr one = Add(x, Number(1, type));
    Expr at = align ? Mul(one, Number((extent - 1) / 2, type))
                    : Div(Sub(Mul(one, Number(extent, type)), Number(1, type)), Number(2, type));
    if (mode == "nearest") at = Call("round", {at});
    // Between the taps of a cubic curve a point outside lies where it lies: each tap is the border's pixel instead, as
    // PyTorch and ONNX Runtime have it.
    if (padding == "border" && mode == "cubic") return at;
    if (padding == "border")
      return Select(Between(at, low(), high(d)), at, Min(Max(at, Number(0, type)), Number(extent - 1, type)));
    if (padding == "reflection")
      return Select(Between(at, low(), high(d)), at, ReflectedCoordinate(at, low(), high(d)));
    return at;
  }
};

// The weight of tap r, at r - 1 (cubic) or r behind the point that `fraction` is measured from: Keys 1981 with a =
// -0.75.
Expr WeightOf(const Sampling& s, const Expr& fraction, const Expr& r) {
  const DType type = fraction->dtype;
  const auto n = [&](double value) { return Number(value, type); };
  const Expr &x = fraction, y = Sub(n(1), fraction);
  if (s.mode == "linear") return Select(Eq(r, IntImm(0)), y, x);
  const auto near = [&](const Expr& t) { return Add(Mul(Mul(Sub(Mul(n(1.25), t), n(2.25)), t), t), n(1)); };
  const auto far = [&](const Expr& t) {  // of t = distance: ((a t - 5a) t + 8a) t - 4a
    return Add(Mul(Sub(Mul(Add(Mul(n(-0.75), t), n(3.75)), t), n(6)), t), n(3));
  };
  return Select(Eq(r, IntImm(0)), far(Add(x, n(1))),
                Select(Eq(r, IntImm(1)), near(x), Select(Eq(r, IntImm(2)), near(y), far(Add(y, n(1))))));
}

absl::StatusOr<TensorType> InferGridSample(const OperatorArgs& args) {
  RETURN_IF_ERROR(RequireFloat(args));
  const std::vector<int64_t>&x = args.inputs[0].shape, &grid = args.inputs[1].shape;
  const Attributes& a = *args.attributes;
  const std::string mode = a.String("mode", "linear"), padding = a.String("padding", "zeros");
  if (mode != "linear" && mode != "nearest" && mode != "cubic")
    return absl::InvalidArgumentError(absl::StrCat("mode must be linear, nearest or cubic, not '", mode, "'"));
  if (padding != "zeros" && padding != "border" && padding != "reflection")
    return absl::InvalidArgumentError(absl::StrCat("padding must be zeros, border or reflection, not '", padding, "'"));
  const bool fits = x.size() >= 3 && x.size() <= 5 && grid.size() == x.size() && grid[0] == x[0] &&
                    IsFloat(args.inputs[1].dtype) && grid.back() == static_cast<int64_t>(x.size()) - 2;
  if (!fits) {
    return absl::InvalidArgumentError(
        absl::StrCat("a grid of ", args.inputs[1].ToString(), " does not fit ", args.inputs[0].ToString()));
  }
  TensorType out{args.inputs[0].dtype, {x[0], x[1]}};
  out.shape.insert(out.shape.end(), grid.begin() + 1, grid.end() - 1);
  return out;
}

int EmitGridSample(DagBuilder& b, const OperatorArgs& args, const std::vector<int>& stages) {
  const Sampling s = Sampling::Of(args);
  const size_t rank = s.image.size();
  // The last axis of the grid counts from the fastest image axis.
  const int places = b.Compute("places", args.inputs[1].shape, [&](const Vars& i) {
    Expr x = Wide(b, stages[1], i), place;
    for (size_t d = 0; d < rank; ++d) {
      const Expr own = s.Place(x, d);
      place = d == 0 ? own : Select(Eq(i.back(), IntImm(static_cast<int64_t>(rank - 1 - d))), own, place);
    }
    return place;
  });
  auto place = [&](const Vars& i, size_t d) {
    Vars at = {i[0]};
    at.insert(at.end(), i.begin() + 2, i.end());
    at.push_back(IntImm(static_cast<int64_t>(rank - 1 - d)));
    return Raw(b, places, at);
  };
  auto body = [&](const Vars& i, const Vars& r) {
    Vars at = {i[0], i[1]};
    Expr weight, inside = IntImm(1, DType::kBool);
    for (size_t d = 0; d < rank; ++d) {
      const Expr x = place(i, d);
      Expr tap = x;
      if (s.taps() > 1) {
        const Expr floor = Call("floor", {x}), own = WeightOf(s, Sub(x, floor), r[d]);
        weight = weight ? Mul(weight, own) : own;
        tap = Add(floor, diapason::Cast(x->dtype, s.taps() == 4 ? Sub(r[d], IntImm(1)) : r[d]));
      }
      const int64_t extent = s.image[d];
      if (s.padding == "zeros") inside = And(inside, Between(tap, 0, static_cast<double>(extent - 1)));
      if (s.padding == "reflection") tap = ReflectedCoordinate(tap, s.low(), s.high(d));
      at.push_back(Index(tap, extent));
    }
    const Expr pixel = Wide(b, stages[0], at),
               value = weight ? Mul(diapason::Cast(pixel->dtype, weight), pixel) : pixel;
    return Select(inside, value, Number(0, value->dtype));
  };
  if (s.taps() == 1) return b.Compute("grid_sample", args.output.shape, [&](const Vars& i) { return body(i, {}); });
  return b.Reduce("grid_sample", args.output.shape, std::vector<int64_t>(rank, s.taps()), Combiner::kSum, body);
}

struct Position {
  Expr y, x;
};

// The value at a position of an image with axes of those extents, zero around it; `prefix` are the indices in front.
Expr Bilinear(DagBuilder& b, int image, const Vars& prefix, const std::vector<int64_t>& extents,
              const Position& position) {
  const auto& [y, x] = position;
  const Expr top = Call("floor", {y}), left = Call("floor", {x}), down = Sub(y, top), right = Sub(x, left);
  const DType type = y->dtype;
  Expr sum;
  for (int k = 0; k < 4; ++k) {
    const Expr row = k / 2 == 0 ? top : Add(top, Number(1, type)),
               column = k % 2 == 0 ? left : Add(left, Number(1, type));
    const Expr weight =
        Mul(k / 2 == 0 ? Sub(Number(1, type), down) : down, k % 2 == 0 ? Sub(Number(1, type), right) : right);
    Vars at = prefix;
    at.insert(at.end(), {Index(row, extents[0]), Index(column, extents[1])});
    const Expr inside = And(Between(row, 0, static_cast<double>(extents[0] - 1)),
                            Between(column, 0, static_cast<double>(extents[1] - 1)));
    const Expr pixel = Wide(b, image, at);
    const Expr value = Select(inside, Mul(diapason::Cast(pixel->dtype, weight), pixel), Number(0, pixel->dtype));
    sum = sum ? Add(sum, value) : value;
  }
  return sum;
}

absl::StatusOr<TensorType> InferDeformConv(const OperatorArgs& args) {
  RETURN_IF_ERROR(RequireFloats(args));
  for (int k = 0; k < 3; ++k) RETURN_IF_ERROR(RequireRank(args, k, 4));
  const std::vector<int64_t>&x = args.inputs[0].shape, &w = args.inputs[1].shape, &offset = args.inputs[2].shape;
  ASSIGN_OR_RETURN(std::vector<Window> windows, WindowsOf(*args.attributes, {x[2], x[3]}, {w[2], w[3]}));
  const int64_t group = args.attributes->Int("group", 1), groups = args.attributes->Int("offset_group", 1),
                taps = w[2] * w[3];
  const std::vector<int64_t> moved = {x[0], 2 * groups * taps, windows[0].output, windows[1].output};
  const std::vector<int64_t> masked = {x[0], groups * taps, windows[0].output, windows[1].output};
  const bool fits = group >= 1 && groups >= 1 && x[1] == w[1] * group && w[0] % group == 0 && x[1] % groups == 0 &&
                    offset == moved && (args.inputs.size() < 4 || args.inputs[3].shape == masked) &&
                    (args.inputs.size() < 5 || args.inputs[4].shape == std::vector<int64_t>{w[0]});
  if (fits) return TensorType{args.inputs[0].dtype, {x[0], w[0], windows[0].output, windows[1].output}};
  return absl::InvalidArgumentError(absl::StrCat("weights of ", args.inputs[1].ToString(), ", offsets of ",
                                                 args.inputs[2].ToString(), " and ", args.inputs[0].ToString(),
                                                 " do not fit together"));
}

int EmitDeformConv(DagBuilder& b, const OperatorArgs& args, const std::vector<int>& stages) {
  const std::vector<int64_t>&x = args.inputs[0].shape, &w = args.inputs[1].shape;
  const std::vector<Window> windows = WindowsOf(*args.attributes, {x[2], x[3]}, {w[2], w[3]}).value();
  const int64_t group = args.attributes->Int("group", 1), groups = args.attributes->Int("offset_group", 1),
                taps = w[2] * w[3];
  // Axes: batch, channel, kernel row and column, row and column.
  const int columns =
      b.Compute("deformed", {x[0], x[1], w[2], w[3], args.output.shape[2], args.output.shape[3]}, [&](const Vars& i) {
        const Expr of = FloorDiv(i[1], x[1] / groups), tap = Add(Mul(i[2], IntImm(w[3])), i[3]);
        auto place = [&](int axis) {
          const Expr at = Add(Mul(Add(Mul(of, IntImm(taps)), tap), IntImm(2)), IntImm(axis));
          const Expr moved = Wide(b, stages[2], {i[0], at, i[4], i[5]});
          const Window& window = windows[axis];
          const Expr still =
              Sub(Add(Mul(i[4 + axis], IntImm(window.stride)), Mul(i[2 + axis], IntImm(window.dilation))),
                  IntImm(window.before));
          return Add(diapason::Cast(moved->dtype, still), moved);
        };
        Expr value = Bilinear(b, stages[0], {i[0], i[1]}, {x[2], x[3]}, {place(0), place(1)});
        if (args.inputs.size() > 3)
          value = Mul(value, Wide(b, stages[3], {i[0], Add(Mul(of, IntImm(taps)), tap), i[4], i[5]}));
        return value;
      });
  const int sum =
      b.Reduce("deform_conv", args.output.shape, {w[1], w[2], w[3]}, Combiner::kSum, [&](const Vars& i, const Vars& r) {
        const Expr channel = Add(Mul(FloorDiv(i[1], w[0] / group), IntImm(w[1])), r[0]);
        return Mul(Wide(b, columns, {i[0], channel, r[1], r[2], i[2], i[3]}),
                   Wide(b, stages[1], {i[1], r[0], r[1], r[2]}));
      });
  if (args.inputs.size() < 5) return sum;
  return b.Compute("bias", args.output.shape,
                   [&](const Vars& i) { return Add(Wide(b, sum, i), Wide(b, stages[4], {i[1]})); });
}

absl::StatusOr<TensorType> InferRoiAlign(const OperatorArgs& args) {
  RETURN_IF_ERROR(RequireFloat(args));
  RETURN_IF_ERROR(RequireRank(args, 0, 4));
  const std::vector<int64_t> size = args.attributes->Ints("size", {});
  const std::vector<int64_t>&rois = args.inputs[1].shape, &of = args.inputs[2].shape;
  const int64_t samples = args.attributes->Int("samples", 0);
  const bool positive = size.size() == 2 && size[0] >= 1 && size[1] >= 1 && samples >= 0;
  if (positive && rois.size() == 2 && rois[1] == 4 && of == std::vector<int64_t>{rois[0]} &&
      args.inputs[1].dtype == args.inputs[0].dtype && !IsFloat(args.inputs[2].dtype)) {
    return TensorType{args.inputs[0].dtype, {rois[0], args.inputs[0].shape[1], size[0], size[1]}};
  }
  return absl::InvalidArgumentError(absl::StrCat("regions of ", args.inputs[1].ToString(), " of batch elements of ",
                                                 args.inputs[2].ToString(), " do not fit ", args.inputs[0].ToString(),
                                                 ", or a size or samples is not positive"));
}

// One axis (0: rows) of a region.
struct RoiSide {
  Expr start, length;
};

RoiSide RoiSideOf(DagBuilder& b, const OperatorArgs& args, int rois, const Expr& region, int axis) {
  const bool half = args.attributes->Int("half_pixel", 1) != 0;
  const double scale = args.attributes->Float("scale", 1);
  const auto corner = [&](int k) {
    const Expr at = Wide(b, rois, {region, IntImm(k)});
    return Sub(Mul(at, Number(scale, at->dtype)), Number(half ? 0.5 : 0, at->dtype));
  };
  const Expr start = corner(1 - axis), end = corner(3 - axis);
  return {start, half ? Sub(end, start) : Max(Sub(end, start), Number(1, start->dtype))};
}

// The batch element of a region.
Expr RoiImage(DagBuilder& b, int of, const Expr& region, int64_t images) {
  if (images == 1) return IntImm(0);
  return Min(Max(diapason::Cast(DType::kInt64, Raw(b, of, {region})), IntImm(0)), IntImm(images - 1));
}

// Where the samples of all regions lie on one axis, as a stage [regions, bins, samples]; -1 for those outside. Each
// place is read for all channels and all places of the other axis: too often to be computed there.
int EmitRoiPlaces(DagBuilder& b, const OperatorArgs& args, int rois, int axis) {
  const Attributes& a = *args.attributes;
  const int64_t bins = a.Ints("size", {})[axis], samples = a.Int("samples", 1);
  const double extent = static_cast<double>(args.inputs[0].shape[2 + axis]);
  return b.Compute(axis == 0 ? "rows" : "columns", {args.output.shape[0], bins, samples}, [&](const Vars& i) {
    const auto [start, length] = RoiSideOf(b, args, rois, i[0], axis);
    const DType type = start->dtype;
    const Expr bin = Mul(length, Number(1.0 / static_cast<double>(bins), type));
    const Expr step =
        Mul(Add(diapason::Cast(type, i[2]), Number(0.5, type)), Number(1.0 / static_cast<double>(samples), type));
    const Expr place = Add(start, Mul(bin, Add(diapason::Cast(type, i[1]), step)));
    // Up to one point outside counts as the border.
    const Expr bounded = Min(Max(place, Number(0, type)), Number(extent - 1, type));
    return Select(Between(place, -1, extent), bounded, Number(-1, type));
  });
}

// The samples on one axis of a bin, where ceil(bin) of them are spread evenly.
struct BinSamples {
  Expr begin, bin, count, step;

  BinSamples(const RoiSide& side, int64_t bins, const Expr& index) {
    const DType type = side.start->dtype;
    bin = Div(side.length, Number(static_cast<double>(bins), type));
    count = Max(Call("ceil", {bin}), Number(1, type));
    step = Div(bin, count);
    begin = Add(side.start, Mul(bin, diapason::Cast(type, index)));
  }

  Expr Place(const Expr& sample) const { return Add(begin, Mul(Add(sample, Number(0.5, begin->dtype)), step)); }
  // Whether the bin has such a sample. A bin of no extent has none.
  Expr Has(const Expr& sample) const { return And(Lt(Number(0, bin->dtype), bin), Lt(sample, count)); }
  // A sample in front of all that lie behind `point`, give or take a rounding error.
  Expr FirstBehind(const Expr& point) const {
    const DType type = begin->dtype;
    const Expr before = Div(Sub(point, begin), step);
    return Max(Sub(Call("ceil", {Sub(before, Number(0.5, type))}), Number(1, type)), Number(0, type));
  }
};

// What each point of the image on one axis counts in the mean of a bin, as a stage [regions, bins, points]. Two samples
// are more than half a point apart, so that at most four lie within one point of any; with one more on either side for
// rounding errors, six are looked at.
int EmitRoiWeights(DagBuilder& b, const OperatorArgs& args, int rois, int axis) {
  const int64_t bins = args.attributes->Ints("size", {})[axis], points = args.inputs[0].shape[2 + axis];
  const double last = static_cast<double>(points - 1);
  auto term = [&](const Vars& i, const Vars& r) {
    const BinSamples samples(RoiSideOf(b, args, rois, i[0], axis), bins, i[1]);
    const DType type = samples.begin->dtype;
    const Expr point = diapason::Cast(type, i[2]);
    const Expr sample = Add(samples.FirstBehind(Sub(point, Number(1, type))), diapason::Cast(type, r[0]));
    const Expr place = samples.Place(sample);
    // Up to one point outside counts as the border.
    const Expr away = Sub(Min(Max(place, Number(0, type)), Number(last, type)), point);
    const Expr share = Sub(Number(1, type), Max(away, Sub(Number(0, type), away)));
    const Expr counts = And(samples.Has(sample), Between(place, -1, last + 1));
    return Select(counts, Div(Max(share, Number(0, type)), samples.count), Number(0, type));
  };
  return b.Reduce(axis == 0 ? "row_weights" : "column_weights", {args.output.shape[0], bins, points}, {6},
                  Combiner::kSum, term);
}

constexpr double kNoSample = 2;  // no share is as large

// The smallest (kMin) or largest (kMax) share that samples of a bin have of each point of the image on one axis, as a
// stage [regions, bins, points]; kNoSample, or its negative, for a point that no sample reads. A sample reads two
// points even if its share of the second is 0, and those outside read at the border: samples between the point before
// the last one and the next one are looked at, of which there are up to six.
int EmitRoiShares(DagBuilder& b, const OperatorArgs& args, int rois, int axis, Combiner combiner) {
  const int64_t bins = args.attributes->Ints("size", {})[axis], points = args.inputs[0].shape[2 + axis];
  const double last = static_cast<double>(points - 1);
  const bool smallest = combiner == Combiner::kMin;
  auto term = [&](const Vars& i, const Vars& r) {
    const BinSamples samples(RoiSideOf(b, args, rois, i[0], axis), bins, i[1]);
    const DType type = samples.begin->dtype;
    const Expr point = diapason::Cast(type, i[2]);
    const Expr sample = Add(samples.FirstBehind(Sub(point, Number(2, type))), diapason::Cast(type, r[0]));
    const Expr place = samples.Place(sample), within = Min(Max(place, Number(0, type)), Number(last, type));
    const Expr floor = Call("floor", {within}), share = Sub(within, floor);
    // The point after the last one is the last one.
    const Expr next = Min(Add(floor, Number(1, type)), Number(last, type));
    const Expr is_first = Eq(point, floor), is_second = Eq(point, next);
    const Expr first = Sub(Number(1, type), share), none = Number(smallest ? kNoSample : -kNoSample, type);
    const Expr of_first = Select(is_first, first, none), of_second = Select(is_second, share, none);
    const Expr counts = And(samples.Has(sample), Between(place, -1, last + 1));
    return Select(counts, smallest ? Min(of_first, of_second) : Max(of_first, of_second), none);
  };
  const std::string name = absl::StrCat(smallest ? "smallest" : "largest", axis == 0 ? "_of_rows" : "_of_columns");
  return b.Reduce(name, {args.output.shape[0], bins, points}, {8}, combiner, term);
}

// Whether a sample of a bin lies outside on one axis, or there is none, as a stage [regions, bins] of 0 and 1.
int EmitRoiOutside(DagBuilder& b, const OperatorArgs& args, int rois, int axis) {
  const int64_t bins = args.attributes->Ints("size", {})[axis];
  const double extent = static_cast<double>(args.inputs[0].shape[2 + axis]);
  return b.Compute(axis == 0 ? "rows_outside" : "columns_outside", {args.output.shape[0], bins}, [&](const Vars& i) {
    const BinSamples samples(RoiSideOf(b, args, rois, i[0], axis), bins, i[1]);
    const DType type = samples.begin->dtype;
    const Expr first = samples.Place(Number(0, type)), end = samples.Place(Sub(samples.count, Number(1, type)));
    const Expr inside = And({samples.Has(Number(0, type)), Le(Number(-1, type), first), Le(end, Number(extent, type))});
    return Select(inside, Number(0, type), Number(1, type));
  });
}

// The largest of all shares of samples times the points that they read, where the number of samples is known only when
// the network runs. That of a row and a column is the product of both axes' shares, so that the largest is found first
// over rows and then over columns: by the largest share of what is positive and the smallest of what is negative.
int EmitAdaptiveRoiMax(DagBuilder& b, const OperatorArgs& args, const std::vector<int>& stages) {
  const std::vector<int64_t>&x = args.inputs[0].shape, &y = args.output.shape;
  int large[2], small[2], outside[2];
  for (int axis = 0; axis < 2; ++axis) {
    large[axis] = EmitRoiShares(b, args, stages[1], axis, Combiner::kMax);
    small[axis] = EmitRoiShares(b, args, stages[1], axis, Combiner::kMin);
    outside[axis] = EmitRoiOutside(b, args, stages[1], axis);
  }
  auto largest = [&](int axis, const Vars& at, const Expr& value) {
    const Expr most = Wide(b, large[axis], at), least = Wide(b, small[axis], at);
    const Expr nothing = IdentityOf(Combiner::kMax, value->dtype), zero = Number(0, value->dtype);
    const Expr read = And(Le(Number(0, most->dtype), most), Lt(nothing, value));
    return Select(read, Mul(Select(Le(zero, value), most, least), value), nothing);
  };
  const int across =
      b.Reduce("bins_of_rows", {y[0], x[1], y[2], x[3]}, {x[2]}, Combiner::kMax, [&](const Vars& i, const Vars& r) {
        const Expr pixel = Wide(b, stages[0], {RoiImage(b, stages[2], i[0], x[0]), i[1], r[0], i[3]});
        return largest(0, {i[0], i[2], r[0]}, pixel);
      });
  const int both = b.Reduce("largest", y, {x[3]}, Combiner::kMax, [&](const Vars& i, const Vars& r) {
    return largest(1, {i[0], i[3], r[0]}, Wide(b, across, {i[0], i[1], i[2], r[0]}));
  });
  // A sample outside is 0.
  return b.Compute("roi_align", y, [&](const Vars& i) {
    const Expr value = Wide(b, both, i), none = Number(0, value->dtype);
    const Expr some = Add(Wide(b, outside[0], {i[0], i[2]}), Wide(b, outside[1], {i[0], i[3]}));
    return Select(Lt(none, some), Max(value, none), value);
  });
}

// The number of samples is one of the run: rows, then columns, are summed with their weights.
int EmitAdaptiveRoiAlign(DagBuilder& b, const OperatorArgs& args, const std::vector<int>& stages) {
  const std::vector<int64_t>&x = args.inputs[0].shape, &y = args.output.shape;
  const int rows = EmitRoiWeights(b, args, stages[1], 0), columns = EmitRoiWeights(b, args, stages[1], 1);
  const int across =
      b.Reduce("bins_of_rows", {y[0], x[1], y[2], x[3]}, {x[2]}, Combiner::kSum, [&](const Vars& i, const Vars& r) {
        return Mul(Wide(b, rows, {i[0], i[2], r[0]}),
                   Wide(b, stages[0], {RoiImage(b, stages[2], i[0], x[0]), i[1], r[0], i[3]}));
      });
  return b.Reduce("roi_align", y, {x[3]}, Combiner::kSum, [&](const Vars& i, const Vars& r) {
    return Mul(Wide(b, across, {i[0], i[1], i[2], r[0]}), Wide(b, columns, {i[0], i[3], r[0]}));
  });
}

// The two points around each sample on each axis are reduced over, as the samples are.
int EmitRoiAlign(DagBuilder& b, const OperatorArgs& args, const std::vector<int>& stages) {
  const Attributes& a = *args.attributes;
  const std::vector<int64_t>& x = args.inputs[0].shape;
  const int64_t samples = a.Int("samples", 1);
  b.stage(stages[2]).valid_max = x[0] - 1;
  const bool largest = a.String("mode", "avg") == "max";
  if (samples == 0) return largest ? EmitAdaptiveRoiMax(b, args, stages) : EmitAdaptiveRoiAlign(b, args, stages);
  const int places[] = {EmitRoiPlaces(b, args, stages[1], 0), EmitRoiPlaces(b, args, stages[1], 1)};
  auto tap = [&](const Vars& i, const Vars& r) {
    const Expr batch = Min(Max(diapason::Cast(DType::kInt64, Raw(b, stages[2], {i[0]})), IntImm(0)), IntImm(x[0] - 1));
    Vars at = {batch, i[1]};
    Expr weight, inside;
    for (int axis = 0; axis < 2; ++axis) {
      const Expr place = Raw(b, places[axis], {i[0], i[2 + axis], r[axis]}), floor = Call("floor", {place}),
                 share = Sub(place, floor), &second = r[2 + axis];
      const Expr own = Select(Eq(second, IntImm(0)), Sub(Number(1, place->dtype), share), share);
      at.push_back(Min(Add(Index(floor, x[2 + axis]), second), IntImm(x[2 + axis] - 1)));
      weight = weight ? Mul(weight, own) : own;
      const Expr reached = Le(Number(0, place->dtype), place);
      inside = inside ? And(inside, reached) : reached;
    }
    const Expr value = Mul(weight, Wide(b, stages[0], at));
    return Select(inside, value, Number(0, value->dtype));
  };
  const int reduced = b.Reduce("roi_align", args.output.shape, {samples, samples, 2, 2},
                               largest ? Combiner::kMax : Combiner::kSum, tap);
  if (largest) return reduced;
  return b.Compute("mean", args.output.shape, [&](const Vars& i) {
    const Expr sum = Wide(b, reduced, i);
    return Mul(sum, Number(1.0 / static_cast<double>(samples * samples), sum->dtype));
  });
}

}  // namespace

std::vector<Operator> ImageSampling() {
  return {{"grid_sample", OperatorKind::kAnchor, 2, 2, InferGridSample, EmitGridSample},
          {"deform_conv", OperatorKind::kAnchor, 3, 5, InferDeformConv, EmitDeformConv},
          {"roi_align", OperatorKind::kAnchor, 3, 3, InferRoiAlign, EmitRoiAlign}};
}

}  // namespace diapason::ops
