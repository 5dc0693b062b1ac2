#include "compiler/schedule/windows_of_copy.h"

#include <set>
#include <utility>
#include <vector>

#include "compiler/schedule/tensor_of_copy.h"
#include "compiler/tensor/simplify.h"

namespace diapason {
namespace {

// One after the other into a single number, the last one innermost, and back: the axis of rows has the image and the
// window's place in it, that of columns the element's place in the window and the channel.
struct Digits {
  std::vector<Expr> vars;
  std::vector<int64_t> extents;

  explicit Digits(std::vector<int64_t> of) : extents(std::move(of)) {
    for (size_t d = 0; d < extents.size(); ++d) vars.push_back(MakeVar("digit"));
  }
  Expr Number() const {
    Expr number = IntImm(0);
    for (size_t d = 0; d < extents.size(); ++d) number = Add(Mul(number, IntImm(extents[d])), vars[d]);
    return number;
  }
};

// Numbers that the expression divides by.
std::set<int64_t> DivisorsIn(const Expr& e) {
  std::set<int64_t> divisors;
  Visit(e, [&](const ExprNode& node) {
    if ((node.kind == ExprKind::kFloorDiv || node.kind == ExprKind::kFloorMod) &&
        node.args[1]->kind == ExprKind::kIntImm)
      divisors.insert(node.args[1]->value);
  });
  return divisors;
}

// All ways to write `product` as so many factors, of which all products of the last ones are in `inner` (or 1, or the
// product).
void Factors(int64_t product, size_t count, const std::set<int64_t>& inner, std::vector<std::vector<int64_t>>* all) {
  if (count == 1) {
    all->push_back({product});
    return;
  }
  for (int64_t rest : inner) {
    if (rest < 1 || product % rest != 0) continue;
    std::vector<std::vector<int64_t>> below;
    Factors(rest, count - 1, inner, &below);
    for (std::vector<int64_t>& factors : below) {
      factors.insert(factors.begin(), product / rest);
      all->push_back(std::move(factors));
    }
  }
}

// The windows of images whose rows and columns have these digits.
class Windows {
 public:
  Windows(const Stage& images, const std::vector<int64_t>& windows, const std::vector<int64_t>& elements)
      : images_(images),
        rows_(WithFirst(images.axes.front().extent, windows)),
        columns_(WithLast(elements, images.axes.back().extent)) {
    for (const Digits* digits : {&rows_, &columns_})
      for (size_t d = 0; d < digits->vars.size(); ++d) analyzer_.Bind(digits->vars[d], digits->extents[d]);
  }

  // By dimension of the image, the innermost first; nullopt: they are no windows.
  std::optional<std::vector<WindowDim>> Of(const Stage& copy, const Expr& load, const Expr& guard) {
    const VarMap axes = {{copy.axes[0].var.get(), rows_.Number()}, {copy.axes[1].var.get(), columns_.Number()}};
    std::vector<Affine> place;
    for (const Expr& index : load->args) place.push_back(ToAffine(analyzer_.Simplify(Substitute(index, axes))));
    if (!Is(place.front(), rows_.vars.front(), rows_.extents.front()) ||
        !Is(place.back(), columns_.vars.back(), columns_.extents.back()))
      return std::nullopt;
    std::vector<WindowDim> dims;
    for (size_t d = place.size() - 1; d-- > 1;) {
      const std::optional<WindowDim> dim = DimOf(place[d], d);
      if (!dim) return std::nullopt;
      dims.push_back(*dim);
    }
    if (guard && !HoldsInside(analyzer_.Simplify(Substitute(guard, axes)), place)) return std::nullopt;
    return dims;
  }

 private:
  static std::vector<int64_t> WithFirst(int64_t first, std::vector<int64_t> rest) {
    rest.insert(rest.begin(), first);
    return rest;
  }
  static std::vector<int64_t> WithLast(std::vector<int64_t> rest, int64_t last) {
    rest.push_back(last);
    return rest;
  }

  // Whether a place is the variable, which is 0 where it has but one value.
  static bool Is(const Affine& place, const Expr& var, int64_t extent) {
    if (place.constant != 0) return false;
    if (extent == 1) return place.terms.empty();
    return place.terms.size() == 1 && place.terms[0].first.get() == var.get() && place.terms[0].second == 1;
  }

  std::optional<WindowDim> DimOf(const Affine& place, size_t d) const {
    const Expr &window = rows_.vars[d], &element = columns_.vars[d - 1];
    WindowDim dim{.first = place.constant, .windows = rows_.extents[d], .elements = columns_.extents[d - 1]};
    for (const auto& [term, coefficient] : place.terms) {
      if (term.get() != window.get() && term.get() != element.get()) return std::nullopt;
      (term.get() == window.get() ? dim.step : dim.apart) = coefficient;
    }
    const size_t moving = (dim.windows > 1 ? 1 : 0) + (dim.elements > 1 ? 1 : 0);
    if (place.terms.size() != moving) return std::nullopt;
    return dim;
  }

  // Whether the guard holds wherever all places are inside of the images. Where it holds, they are: a copy loads
  // nothing else.
  bool HoldsInside(const Expr& guard, const std::vector<Affine>& place) const {
    if (guard->kind == ExprKind::kAnd) return HoldsInside(guard->args[0], place) && HoldsInside(guard->args[1], place);
    if (guard->kind == ExprKind::kIntImm) return guard->value != 0;
    if (guard->kind != ExprKind::kLt && guard->kind != ExprKind::kLe) return false;
    const Affine room = ToAffine(Sub(guard->args[1], guard->args[0]));
    const int64_t least = guard->kind == ExprKind::kLt ? 1 : 0;
    for (size_t d = 0; d < place.size(); ++d)
      for (int64_t sign : {1, -1})
        if (LeastInside(room, place[d], sign, images_.axes[d].extent) >= least) return true;
    return false;
  }

  // The least value of `room` while the place is in [0, extent), if it is sign * place + a constant; else a negative
  // one.
  static int64_t LeastInside(const Affine& room, const Affine& place, int64_t sign, int64_t extent) {
    if (room.terms.size() != place.terms.size()) return -1;
    for (const auto& [term, coefficient] : place.terms)
      if (room.CoefficientOf(term.get()) != sign * coefficient) return -1;
    const int64_t constant = room.constant - sign * place.constant;
    return sign > 0 ? constant : constant - (extent - 1);
  }

  const Stage& images_;
  Digits rows_, columns_;
  Analyzer analyzer_;
};

TensorBox TensorOf(const Stage& images, std::vector<WindowDim> windows) {
  TensorBox tensor;
  int64_t stride = 1;
  for (size_t d = images.axes.size(); d-- > 0;) {
    tensor.extents.push_back(images.axes[d].extent);
    tensor.strides.push_back(stride);
    stride *= images.axes[d].extent;
  }
  tensor.box = {16 / BytesOf(images.dtype), 1};
  tensor.windows = std::move(windows);
  return tensor;
}

}  // namespace

std::optional<TensorBox> WindowsOfCopy(const State& state, int copy) {
  const Stage& op = state.stage(copy).op;
  const Expr load = LoadOfCopy(op);
  if (load == nullptr || op.axes.size() != 2 || load->args.size() < 3 || load->args.size() > 5) return std::nullopt;
  const Expr guard = op.body == load ? nullptr : op.body->args[0];
  const StageState& from = state.stage(load->buffer);
  if (!from.is_row_major() || from.op.dtype != op.dtype) return std::nullopt;
  const int64_t images = from.op.axes.front().extent, channels = from.op.axes.back().extent;
  const int64_t rows = op.axes[0].extent, columns = op.axes[1].extent;
  if (rows % images != 0 || columns % channels != 0) return std::nullopt;
  const std::set<int64_t> divisors = DivisorsIn(op.body);
  std::set<int64_t> of_rows = divisors, of_columns = divisors;
  for (int64_t divisor : divisors)
    if (divisor % channels == 0) of_columns.insert(divisor / channels);
  of_rows.insert({1, rows / images});
  of_columns.insert({1, columns / channels});
  const size_t dims = load->args.size() - 2;
  std::vector<std::vector<int64_t>> windows, elements;
  Factors(rows / images, dims, of_rows, &windows);
  Factors(columns / channels, dims, of_columns, &elements);
  for (const std::vector<int64_t>& w : windows) {
    for (const std::vector<int64_t>& e : elements) {
      std::optional<std::vector<WindowDim>> found = Windows(from.op, w, e).Of(op, load, guard);
      if (!found) continue;
      TensorBox tensor = TensorOf(from.op, *std::move(found));
      if (IsCopyable(tensor, BytesOf(op.dtype), from.op.elements())) return tensor;
    }
  }
  return std::nullopt;
}

}  // namespace diapason
