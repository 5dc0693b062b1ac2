#include "compiler/schedule/library_gemm.h"

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/schedule/gemm_axis.h"

namespace diapason {
namespace {

absl::Status NoGemm(const std::string& why) {
  return absl::InvalidArgumentError(absl::StrCat("no cuBLAS call: ", why));
}

enum Tensor { kA = 0, kB = 1, kC = 2 };

// An axis, or several that move through memory as one: its extent and its distance in elements in each tensor (0: not
// there).
struct Span {
  int64_t extent = 1;
  std::array<int64_t, 3> stride{};
};

class GemmMatcher {
 public:
  explicit GemmMatcher(const LibraryParts& parts) : parts_(parts), anchor_(parts.stage(parts.anchor())) {}

  absl::StatusOr<LibraryMatch> Run() {
    const DType dtype = parts_.a()->dtype;
    if (dtype != parts_.b()->dtype || (dtype != DType::kFloat32 && dtype != DType::kFloat16))
      return NoGemm("the operands are not both in float32 or float16");
    RETURN_IF_ERROR(ReadAxes());
    RETURN_IF_ERROR(Fuse());
    // cuBLAS wants results in columns; the caller turns ours around. Columns are the axis that is dense in the result.
    if (!Unit(spans_[kN], kC)) SwapSides();
    if (!Unit(spans_[kN], kC)) return NoGemm("the result has no dense rows");
    call_.in = dtype;
    call_.batch = spans_[kBatch].extent;
    call_.m = spans_[kM].extent;
    call_.n = spans_[kN].extent;
    call_.k = spans_[kK].extent;
    if (!Matrix(kA, spans_[kM], spans_[kK], &call_.transpose_a, &call_.lda) ||
        !Matrix(kB, spans_[kK], spans_[kN], &call_.transpose_b, &call_.ldb))
      return NoGemm("an operand is dense neither in rows nor in columns");
    call_.ldc = spans_[kM].extent > 1 ? spans_[kM].stride[kC] : call_.n;
    call_.stride_a = spans_[kBatch].stride[kA];
    call_.stride_b = spans_[kBatch].stride[kB];
    call_.stride_c = spans_[kBatch].stride[kC];
    LibraryMatch match;
    match.call.what = call_;
    match.anchor = match.last = parts_.anchor();
    match.operands = {side_[kA]->buffer, side_[kB]->buffer};
    RETURN_IF_ERROR(match.call.Check());
    return match;
  }

 private:
  // Each axis of extent above 1 with its distances, in the class that its use tells.
  absl::Status ReadAxes() {
    std::vector<Expr> point;
    for (const Axis& axis : anchor_.axes) point.push_back(axis.var);
    const Expr result = Load(parts_.anchor(), anchor_.dtype, point);
    const std::optional<Affine> place[3] = {parts_.FlatIndex(*parts_.a(), anchor_),
                                            parts_.FlatIndex(*parts_.b(), anchor_), parts_.FlatIndex(*result, anchor_)};
    for (const auto& one : place)
      if (!one || one->constant != 0) return NoGemm("an operand is not read at equal distances");
    const auto add = [&](const Axis& axis, bool reduce) -> absl::Status {
      if (axis.extent == 1) return absl::OkStatus();
      Span span;
      span.extent = axis.extent;
      for (int t : {kA, kB, kC}) span.stride[t] = place[t]->CoefficientOf(axis.var.get());
      for (int64_t stride : span.stride)
        if (stride < 0) return NoGemm("an operand is read backwards");
      const bool in_a = span.stride[kA] > 0, in_b = span.stride[kB] > 0;
      if (!in_a && !in_b) return NoGemm("an axis is in neither operand");
      if (reduce && !(in_a && in_b)) return NoGemm("an axis of the reduction is missing from an operand");
      members_[reduce ? kK : in_a && in_b ? kBatch : in_a ? kM : kN].push_back(span);
      return absl::OkStatus();
    };
    for (const Axis& axis : anchor_.axes) RETURN_IF_ERROR(add(axis, false));
    for (const Axis& axis : anchor_.reduce_axes) RETURN_IF_ERROR(add(axis, true));
    return absl::OkStatus();
  }

  // True if `inner` and `outer` move as one in every tensor that has them.
  static bool Nested(const Span& outer, const Span& inner) {
    for (int t : {kA, kB, kC})
      if (outer.stride[t] != inner.stride[t] * inner.extent) return false;
    return true;
  }

  // The axes of a class as one, from the innermost; what does not fit stays in `members`, outermost first.
  static Span FuseInner(std::vector<Span>* members) {
    if (members->empty()) return Span{};
    std::stable_sort(members->begin(), members->end(), [](const Span& x, const Span& y) {
      return std::max({x.stride[kC], x.stride[kA]}) > std::max({y.stride[kC], y.stride[kA]});
    });
    Span fused = members->back();
    members->pop_back();
    while (!members->empty() && Nested(members->back(), fused)) {
      fused.extent *= members->back().extent;
      members->pop_back();
    }
    return fused;
  }

  // One span a class. Rows or columns that lie in several pieces become a batch with the other operand standing still.
  absl::Status Fuse() {
    for (int c : {kM, kN, kK}) {
      spans_[c] = FuseInner(&members_[c]);
      if (c == kK && !members_[c].empty()) return NoGemm("the reduction is no single distance");
      members_[kBatch].insert(members_[kBatch].end(), members_[c].begin(), members_[c].end());
    }
    spans_[kBatch] = FuseInner(&members_[kBatch]);
    if (!members_[kBatch].empty()) return NoGemm("there is more than one batch");
    return absl::OkStatus();
  }

  void SwapSides() {
    std::swap(side_[kA], side_[kB]);
    std::swap(spans_[kM], spans_[kN]);
    for (Span& span : spans_) std::swap(span.stride[kA], span.stride[kB]);
  }

  static bool Unit(const Span& span, Tensor t) { return span.extent == 1 || span.stride[t] == 1; }

  // How a matrix of rows and columns lies in tensor t.
  static bool Matrix(Tensor t, const Span& rows, const Span& columns, bool* transposed, int64_t* ld) {
    const auto lies = [&](const Span& outer, const Span& inner) {
      if (!Unit(inner, t)) return false;
      *ld = outer.extent > 1 ? outer.stride[t] : inner.extent;
      return *ld >= inner.extent;
    };
    *transposed = false;
    if (lies(rows, columns)) return true;
    *transposed = true;
    return lies(columns, rows);
  }

  const LibraryParts& parts_;
  const Stage& anchor_;
  std::array<const ExprNode*, 2> side_{parts_.a(), parts_.b()};
  std::array<std::vector<Span>, 4> members_;
  std::array<Span, 4> spans_;
  GemmCall call_;
};

}  // namespace

absl::StatusOr<LibraryMatch> MatchGemm(const LibraryParts& parts) { return GemmMatcher(parts).Run(); }

}  // namespace diapason
