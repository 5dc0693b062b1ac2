#include "compiler/schedule/library_parts.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace diapason {
namespace {

absl::Status NoPart(const std::string& why) {
  return absl::InvalidArgumentError(absl::StrCat("no library call: ", why));
}

// The range of each axis for which a conjunction of comparisons of single axes with numbers holds.
class Box {
 public:
  explicit Box(const std::vector<Axis>& axes) : axes_(axes), low_(axes.size(), 0), high_(axes.size()) {
    for (size_t d = 0; d < axes.size(); ++d) high_[d] = axes[d].extent;
  }
  // False for a condition of another form.
  bool Add(const Expr& condition) {
    if (condition->kind == ExprKind::kAnd) return Add(condition->args[0]) && Add(condition->args[1]);
    if (condition->kind == ExprKind::kIntImm) return condition->value != 0;
    const bool strict = condition->kind == ExprKind::kLt;
    if (!strict && condition->kind != ExprKind::kLe) return false;
    // left + slack <= right, as 0 <= right - left - slack.
    const Affine slack = ToAffine(Sub(Sub(condition->args[1], condition->args[0]), IntImm(strict ? 1 : 0)));
    if (slack.terms.size() != 1) return false;
    for (size_t d = 0; d < axes_.size(); ++d) {
      if (slack.terms[0].first != axes_[d].var) continue;
      if (slack.terms[0].second == 1)
        low_[d] = std::max(low_[d], -slack.constant);
      else if (slack.terms[0].second == -1)
        high_[d] = std::min(high_[d], slack.constant + 1);
      else
        return false;
      return true;
    }
    return false;
  }
  int64_t low(size_t d) const { return low_[d]; }
  int64_t high(size_t d) const { return high_[d]; }

 private:
  const std::vector<Axis>& axes_;
  std::vector<int64_t> low_, high_;
};

}  // namespace

absl::StatusOr<LibraryParts> LibraryParts::Create(absl::Span<const Stage* const> stages,
                                                  const std::vector<int>& outputs) {
  LibraryParts parts;
  parts.stages_.assign(stages.begin(), stages.end());
  parts.outputs_ = outputs;
  for (int id = 0; id < static_cast<int>(stages.size()); ++id) {
    if (!stages[id]->reduces()) continue;
    if (parts.anchor_ >= 0) return NoPart("more than one stage reduces");
    parts.anchor_ = id;
  }
  if (parts.anchor_ < 0) return NoPart("no stage reduces");
  const Stage& anchor = parts.stage(parts.anchor_);
  if (anchor.combiner != Combiner::kSum || anchor.dtype != DType::kFloat32 || anchor.body->kind != ExprKind::kMul)
    return NoPart("the reduction is no sum of products in float32");
  parts.a_ = parts.LoadOf(anchor.body->args[0]);
  parts.b_ = parts.LoadOf(anchor.body->args[1]);
  if (parts.a_ == nullptr || parts.b_ == nullptr) return NoPart("a factor of the product is no tensor element");
  if (parts.a_->buffer == parts.b_->buffer) return NoPart("both factors are the same tensor");
  return parts;
}

LibraryParts LibraryParts::Swapped() const {
  LibraryParts swapped = *this;
  std::swap(swapped.a_, swapped.b_);
  return swapped;
}

bool LibraryParts::is_output(int id) const { return std::find(outputs_.begin(), outputs_.end(), id) != outputs_.end(); }

// The load under a widening cast; null for anything else.
const ExprNode* LibraryParts::LoadOf(const Expr& e) const {
  const ExprNode* node = e.get();
  if (node->kind == ExprKind::kCast && node->dtype == DType::kFloat32 && node->args[0]->dtype == DType::kFloat16)
    node = node->args[0].get();
  return node->kind == ExprKind::kLoad ? node : nullptr;
}

int LibraryParts::SoleConsumer(int id) const {
  if (is_output(id)) return -1;
  int reader = -1, readers = 0;
  for (int other = 0; other < static_cast<int>(stages_.size()); ++other) {
    if (stages_[other]->body == nullptr) continue;
    bool reads = false;
    Visit(stages_[other]->body, [&](const ExprNode& e) { reads |= e.kind == ExprKind::kLoad && e.buffer == id; });
    readers += reads;
    if (reads) reader = other;
  }
  return readers == 1 ? reader : -1;
}

bool LibraryParts::IsAxis(const Expr& index, const Axis& axis) const {
  return index == axis.var || (axis.extent == 1 && IsInt(index, 0));
}

std::optional<Affine> LibraryParts::FlatIndex(const ExprNode& load, const Stage& reader) const {
  const Stage& tensor = stage(load.buffer);
  Expr flat = IntImm(0);
  for (size_t d = 0; d < load.args.size(); ++d) flat = Add(Mul(flat, IntImm(tensor.axes[d].extent)), load.args[d]);
  const Affine all = ToAffine(flat);
  Affine kept;
  kept.constant = all.constant;
  for (const auto& [term, coefficient] : all.terms) {
    if (term->kind != ExprKind::kVar) return std::nullopt;
    int64_t extent = 0;
    for (const auto* axes : {&reader.axes, &reader.reduce_axes})
      for (const Axis& axis : *axes)
        if (axis.var == term) extent = axis.extent;
    if (extent != 1) kept.terms.emplace_back(term, coefficient);
  }
  return kept;
}

std::optional<LibraryParts::Padding> LibraryParts::PaddingOf(int id) const {
  const Stage& padded = stage(id);
  if (padded.placeholder || padded.reduces() || padded.body->kind != ExprKind::kSelect) return std::nullopt;
  const Expr& inside = padded.body->args[1];
  if (inside->kind != ExprKind::kLoad || !IsZero(padded.body->args[2])) return std::nullopt;
  const Stage& source = stage(inside->buffer);
  Box box(padded.axes);
  if (source.axes.size() != padded.axes.size() || source.dtype != padded.dtype || !box.Add(padded.body->args[0]))
    return std::nullopt;
  Padding padding;
  padding.source = inside->buffer;
  for (size_t d = 0; d < padded.axes.size(); ++d) {
    const Affine index = ToAffine(inside->args[d]);
    const bool moved =
        index.terms.size() == 1 && index.terms[0].first == padded.axes[d].var && index.terms[0].second == 1;
    const bool only = index.terms.empty() && padded.axes[d].extent == 1;
    const int64_t before = -index.constant;
    if ((!moved && !only) || before < 0) return std::nullopt;
    // What lies inside the source is read, all else is zero.
    if (box.low(d) != before || box.high(d) != std::min(padded.axes[d].extent, before + source.axes[d].extent))
      return std::nullopt;
    padding.before.push_back(before);
  }
  return padding;
}

// The place of stage id's own element, as a sum over its variables.
std::optional<Affine> LibraryParts::Place(int id, int of) const {
  std::vector<Expr> point;
  for (const Axis& axis : stage(id).axes) point.push_back(axis.var);
  if (stage(of).shape() != stage(id).shape()) return std::nullopt;
  return FlatIndex(*Load(of, stage(of).dtype, point), stage(id));
}

// e is the element of `of` at the point that stage `id` computes.
bool LibraryParts::ReadsPointwise(const Expr& e, int id, int of) const {
  const ExprNode* load = LoadOf(e);
  if (load == nullptr || load->buffer != of) return false;
  const std::optional<Affine> place = FlatIndex(*load, stage(id)), wanted = Place(id, of);
  return place && wanted && place->constant == wanted->constant && place->terms == wanted->terms;
}

bool LibraryParts::IsRelu(int id, int of) const {
  const Stage& s = stage(id);
  if (s.placeholder || s.reduces() || s.body->kind != ExprKind::kMax || s.dtype != stage(of).dtype) return false;
  return (ReadsPointwise(s.body->args[0], id, of) && IsZero(s.body->args[1])) ||
         (ReadsPointwise(s.body->args[1], id, of) && IsZero(s.body->args[0]));
}

bool LibraryParts::IsCast(int id, int of) const {
  const Stage& s = stage(id);
  return !s.placeholder && !s.reduces() && s.body->kind == ExprKind::kCast && ReadsPointwise(s.body->args[0], id, of);
}

const ExprNode* LibraryParts::AddedLoad(int id, int of) const {
  const Stage& s = stage(id);
  if (s.placeholder || s.reduces() || s.body->kind != ExprKind::kAdd || s.dtype != stage(of).dtype) return nullptr;
  for (int side : {0, 1}) {
    const ExprNode* other = LoadOf(s.body->args[1 - side]);
    if (ReadsPointwise(s.body->args[side], id, of) && other != nullptr && other->buffer != of) return other;
  }
  return nullptr;
}

int LibraryParts::AddedTo(int id, int of) const {
  const ExprNode* load = AddedLoad(id, of);
  return load != nullptr ? load->buffer : -1;
}

bool LibraryParts::AddsAlong(int id, int added, int dimension) const {
  const Stage& s = stage(id);
  const Axis& axis = s.axes[dimension];
  if (stage(added).elements() != axis.extent) return false;
  bool along = true;
  Visit(s.body, [&](const ExprNode& e) {
    if (e.kind != ExprKind::kLoad || e.buffer != added) return;
    const std::optional<Affine> place = FlatIndex(e, s);
    along &= place && place->constant == 0 &&
             (axis.extent == 1
                  ? place->terms.empty()
                  : place->terms.size() == 1 && place->terms[0].first == axis.var && place->terms[0].second == 1);
  });
  return along;
}

bool LibraryParts::AddsPointwise(int id, int added) const {
  if (stage(added).elements() != stage(id).elements()) return false;
  const Stage& s = stage(id);
  bool pointwise = true;
  Visit(s.body, [&](const ExprNode& e) {
    if (e.kind != ExprKind::kLoad || e.buffer != added) return;
    const std::optional<Affine> place = FlatIndex(e, s);
    // The place of the result's own element, whatever the shape of the other tensor.
    Affine wanted;
    int64_t stride = 1;
    for (size_t d = s.axes.size(); d-- > 0; stride *= s.axes[d].extent)
      if (s.axes[d].extent > 1) wanted.terms.insert(wanted.terms.begin(), {s.axes[d].var, stride});
    pointwise &= place && place->constant == 0 && place->terms.size() == wanted.terms.size();
    for (const auto& [term, coefficient] : wanted.terms)
      pointwise &= place && place->CoefficientOf(term.get()) == coefficient;
  });
  return pointwise;
}

}  // namespace diapason
